# SPDX-License-Identifier: Apache-2.0
"""Robots, recordings and processes that several test modules share."""
