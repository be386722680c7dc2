# SPDX-License-Identifier: Apache-2.0
"""Identification and observation: arrays in, results out, nothing of ROS."""
