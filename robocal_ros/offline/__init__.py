# SPDX-License-Identifier: Apache-2.0
"""Estimation from bags, without a robot and without ROS."""
