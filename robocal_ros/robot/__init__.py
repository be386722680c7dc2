# SPDX-License-Identifier: Apache-2.0
"""The robot: URDF to Pinocchio, collision, limits, trajectories; no ROS."""
