# SPDX-License-Identifier: Apache-2.0
"""Numerics that the capabilities share; no ROS."""
