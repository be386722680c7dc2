# SPDX-License-Identifier: Apache-2.0
"""Estimation of many bags of many robots, and the catalogue of their results."""
