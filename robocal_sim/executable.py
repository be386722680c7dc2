# SPDX-License-Identifier: Apache-2.0
"""Entry point of the simulated arm."""

from __future__ import annotations

from robocal_ros.node.executables import executable

sim_arm = executable('numpy', 'rclpy', 'mujoco', 'robocal_sim.node')
