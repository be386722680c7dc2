# SPDX-License-Identifier: Apache-2.0
"""Simulated arm: a robot that the product communicates with over ROS only."""
