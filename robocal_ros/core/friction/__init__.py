# SPDX-License-Identifier: Apache-2.0
"""Friction identification: torque against speed, joint by joint, and what it is good for."""

from robocal_ros.core.friction.law import DIRECTIONS, SteadyFriction, friction_by_joint

__all__ = ['DIRECTIONS', 'SteadyFriction', 'friction_by_joint']
