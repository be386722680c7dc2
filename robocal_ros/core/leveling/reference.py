# SPDX-License-Identifier: Apache-2.0
"""The axis that the tool is to be parallel to: of the base, against gravity, or of a frame."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from robocal_ros.core.arrays import Array, frozen
from robocal_ros.core.robot import Robot
from robocal_ros.errors import ConfigurationError

BASE, GRAVITY = 'base', 'gravity'


def base_frame(robot: Robot) -> str:
    """Return the frame of the link that carries the arm's first joint."""
    model = robot.model
    joint = model.frames[model.getFrameId(robot.joint_names[0], pin.FrameType.JOINT)]
    index = joint.parentFrame
    while index and model.frames[index].type != pin.FrameType.BODY:
        index = model.frames[index].parentFrame
    return str(model.frames[index].name) if index else robot.root_frame


def reference_axis(robot: Robot, reference: str) -> Array:
    """Return the reference's z axis in the root frame, a unit vector of shape (3,).

    Args:
        robot: The arm.
        reference: ``base`` (the link that carries the first joint), ``gravity`` (against it),
            or a frame of the URDF that does not move with the arm.

    Raises:
        ConfigurationError: If the frame does not exist or moves, or there is no gravity.

    """
    if reference == GRAVITY:
        strength = float(np.linalg.norm(robot.gravity))
        if strength < 1e-3:
            raise ConfigurationError(
                "reference is 'gravity', but the parameter gravity is zero; give gravity in the "
                'root frame, or another reference.')
        return frozen(-robot.gravity / strength)
    frame = base_frame(robot) if reference == BASE else reference
    index = robot.frame_id(frame)
    if robot.model.frames[index].parentJoint != 0:
        raise ConfigurationError(
            f"The reference '{frame}' moves with the arm; name a frame that stands still, "
            f"'{BASE}' or '{GRAVITY}'.")
    rotation = robot.transform_frame_to_root(np.zeros(robot.n), frame).rotation
    return frozen(rotation[:, 2])
