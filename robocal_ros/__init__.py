# SPDX-License-Identifier: Apache-2.0
"""A suite of ROS 2 lifecycle nodes with which a robot arm measures itself."""

__version__ = '0.1.0'
