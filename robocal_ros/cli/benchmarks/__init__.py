# SPDX-License-Identifier: Apache-2.0
"""Benchmarks, one module for each capability."""
