# SPDX-License-Identifier: Apache-2.0
"""Accuracy and speed of the estimators over many seeds."""
