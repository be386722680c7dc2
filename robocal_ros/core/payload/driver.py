# SPDX-License-Identifier: Apache-2.0
"""A payload as robot drivers want it: in the flange frame, in their order of numbers."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from robocal_ros.core.robot import RigidBodyInertia, Robot
from robocal_ros.errors import ConfigurationError


def in_frame(
    robot: Robot, payload: RigidBodyInertia, frame: str, other: str
) -> RigidBodyInertia:
    """Return a payload in the coordinates of another frame of the same body.

    Args:
        robot: The arm.
        payload: The payload, in the coordinates of ``frame``.
        frame: Its frame.
        other: The frame wanted.

    Raises:
        ConfigurationError: If a frame does not exist, or a joint moves between the two.

    """
    first, second = (robot.model.frames[robot.frame_id(name)] for name in (frame, other))
    if first.parentJoint != second.parentJoint:
        raise ConfigurationError(
            f"Frames '{frame}' and '{other}' are not fixed to each other; name a frame of the "
            'link that carries the tool.')
    transform: pin.SE3 = second.placement.actInv(first.placement)
    moved = transform.act(payload.to_pinocchio())
    return RigidBodyInertia(
        float(moved.mass), np.array(moved.lever), np.array(moved.inertia))


def ur_call(payload: RigidBodyInertia) -> str:
    """Return the service call by which the driver of Universal Robots takes a payload.

    Args:
        payload: The payload, in the coordinates of ``tool0``. An inertia of zeros is left out,
            as older versions of ur_msgs do not have it.

    """
    x, y, z = payload.com
    tensor = np.asarray(payload.inertia)
    inertia = ''.join(
        f', i{a}{b}: {tensor["xyz".index(a), "xyz".index(b)]:.6f}'
        for a, b in ('xx', 'yy', 'zz', 'xy', 'xz', 'yz')) if tensor.any() else ''
    return ('ros2 service call /io_and_status_controller/set_payload ur_msgs/srv/SetPayload '
            f'"{{mass: {payload.mass:.4f}, center_of_gravity: '
            f'{{x: {x:.5f}, y: {y:.5f}, z: {z:.5f}}}{inertia}}}"')


def franka_call(payload: RigidBodyInertia) -> str:
    """Return the service call by which the driver of Franka arms takes a load.

    Args:
        payload: The payload, in the coordinates of the flange (link 8).

    """
    com = ', '.join(f'{value:.5f}' for value in payload.com)
    # Column by column; the tensor is symmetric.
    inertia = ', '.join(f'{value:.6f}' for value in np.asarray(payload.inertia).ravel('F'))
    return ('ros2 service call /service_server/set_load franka_msgs/srv/SetLoad '
            f'"{{mass: {payload.mass:.4f}, center_of_mass: [{com}], load_inertia: [{inertia}]}}"')
