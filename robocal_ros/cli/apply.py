# SPDX-License-Identifier: Apache-2.0
"""`robocal apply`: write results into a URDF, and show the service calls of robot drivers."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pinocchio as pin

from robocal_ros.cli.console import ERRORS, print_line
from robocal_ros.cli.show import result_files
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import read_result
from robocal_ros.robot.arm_model import parameter_names
from robocal_ros.robot.friction_law import friction_by_joint
from robocal_ros.robot.load import carried_load
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.setup import ARM
from robocal_ros.robot.urdf import (
    least_inertia,
    read_urdf,
    with_friction,
    with_links,
    with_payload,
)


def run(options: argparse.Namespace) -> int:
    """Write the URDF and show the service calls of drivers.

    Raises:
        RobocalError: If the result is unsuitable, or does not fit the URDF.

    """
    files = result_files([options.file])
    if len(files) > 1:
        raise ConfigurationError(
            f"Several robots have a result '{options.file}': name one of "
            f'{", ".join(map(str, files))}.')
    result = read_result(files[0])
    urdf = read_urdf(options.urdf)
    if result.verdict is not Verdict.PASS and not options.force:
        raise DataError(
            f"The verdict of '{files[0]}' is {result.verdict.value}: "
            f'{" ".join(result.reasons)} Use a result that passed, or --force.')
    if hashlib.sha256(urdf.encode()).hexdigest() != result.robot.urdf_sha256:
        ERRORS.print('This URDF differs from the one that the result was identified with. Check '
                     'that links, frames and masses are the same.', style='yellow',
                     soft_wrap=True)
    if result.kind == 'payload':
        _apply_payload(result, urdf, options)
    elif result.kind == 'friction':
        _apply_friction(result, urdf, options.out)
    elif result.kind == ARM:
        _apply_arm(result, urdf, options.out)
    else:
        raise DataError(
            f"A result of kind '{result.kind}' cannot be written into a URDF; expected a payload, "
            'friction or arm result.')
    return 0


def _apply_payload(result: CalibrationResult, urdf: str, options: argparse.Namespace) -> None:
    payload = carried_load(result)
    merged = with_payload(urdf, payload, result.frame)
    robot = Robot(urdf, tool_frame=result.frame, joints=result.robot.joint_names)
    frame = options.frame or result.frame
    moved = in_frame(robot, payload, result.frame, frame)
    mounted = robot.distal_inertia(frame)
    _write(options.out, merged)
    print_line(f"{options.out}: {payload.mass:.4f} kg on link '{result.frame}'.")
    if not payload.inertia.any():
        print_line('Its inertia was not identified and is replaced by that of a sphere of its '
                   f'mass ({least_inertia(payload.mass):.2g} kg·m²).', 'yellow')
    if mounted.mass > 0.0:
        print_line(f'The URDF already has {mounted.mass:.4f} kg distal to '
                   f"'{frame}'. The total is {moved.mass + mounted.mass:.4f} kg.")
        total = moved.to_pinocchio() + mounted.to_pinocchio()
        # Without the payload's inertia, the total inertia is unknown too.
        inertia = total.inertia if payload.inertia.any() else np.zeros((3, 3))
        moved = RigidBodyInertia(float(total.mass), np.array(total.lever), np.array(inertia))
    _show_driver_values(moved, frame)


def _show_driver_values(payload: RigidBodyInertia, frame: str) -> None:
    print_line(f"\nFor the driver, in frame '{frame}' (it must be the driver's flange; set "
               'another one with --frame):')
    for name, call in (('Universal Robots', ur_call(payload)),
                       ('Universal Robots, drivers from 2026 on', ur_inertia_call(payload)),
                       ('Franka', franka_call(payload)),
                       ('UFACTORY', xarm_call(payload))):
        print_line(f'{name}:\n  {call}')


def in_frame(
    robot: Robot, payload: RigidBodyInertia, frame: str, other: str
) -> RigidBodyInertia:
    """Return a payload in the coordinates of another frame of the same body.

    Args:
        robot: The arm.
        payload: The payload, in the coordinates of ``frame``.
        frame: Its frame.
        other: Frame of the returned payload.

    Raises:
        ConfigurationError: If a frame does not exist, or a joint is between the two.

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


def _ur_fields(payload: RigidBodyInertia, order: str) -> tuple[str, str]:
    """Return a payload's centre and its inertia as YAML; the latter is empty for zeros."""
    x, y, z = payload.com
    tensor = np.asarray(payload.inertia)
    inertia = ''.join(
        f', i{pair}: {tensor[tuple("xyz".index(axis) for axis in pair)]:.6f}'
        for pair in order.split()) if tensor.any() else ''
    return f'{{x: {x:.5f}, y: {y:.5f}, z: {z:.5f}}}', inertia


def ur_call(payload: RigidBodyInertia) -> str:
    """Return the service call that sets a payload in the driver of Universal Robots.

    Args:
        payload: The payload, in the coordinates of ``tool0``. An inertia of zeros is left out;
            older versions of ur_msgs have no inertia.

    """
    centre, inertia = _ur_fields(payload, 'xx yy zz xy xz yz')
    return ('ros2 service call /io_and_status_controller/set_payload ur_msgs/srv/SetPayload '
            f'"{{mass: {payload.mass:.4f}, center_of_gravity: {centre}{inertia}}}"')


def ur_inertia_call(payload: RigidBodyInertia) -> str:
    """Return the same call with ``geometry_msgs/Inertia``, of ur_msgs for Makoa and later.

    Args:
        payload: The payload, in the coordinates of ``tool0``. An inertia of zeros is left out.

    """
    centre, inertia = _ur_fields(payload, 'xx xy xz yy yz zz')
    return ('ros2 service call /io_and_status_controller/set_payload ur_msgs/srv/SetPayload '
            f'"{{payload: {{m: {payload.mass:.4f}, com: {centre}{inertia}}}}}"')


def xarm_call(payload: RigidBodyInertia) -> str:
    """Return the service call that sets a load in the driver of UFACTORY arms.

    Args:
        payload: The payload, in the coordinates of ``link_eef``.

    """
    centre = ', '.join(f'{1e3 * value:.2f}' for value in payload.com)
    return ('ros2 service call /xarm/set_tcp_load xarm_msgs/srv/SetTcpLoad '
            f'"{{weight: {payload.mass:.4f}, center_of_gravity: [{centre}]}}"')


def franka_call(payload: RigidBodyInertia) -> str:
    """Return the service call that sets a load in the driver of Franka arms.

    Args:
        payload: The payload, in the coordinates of the flange (link 8).

    """
    com = ', '.join(f'{value:.5f}' for value in payload.com)
    # The order of elements is irrelevant: the tensor is symmetric.
    inertia = ', '.join(f'{value:.6f}' for value in np.asarray(payload.inertia).ravel('F'))
    return ('ros2 service call /service_server/set_load franka_msgs/srv/SetLoad '
            f'"{{mass: {payload.mass:.4f}, center_of_mass: [{com}], load_inertia: [{inertia}]}}"')


def _apply_friction(result: CalibrationResult, urdf: str, out: Path) -> None:
    laws = friction_by_joint(result)
    if not laws:
        raise DataError('The friction result has no joint with identified friction; identify at '
                        'least one joint first.')
    _write(out, with_friction(urdf, laws))
    print_line(f'{out}: damping and friction of {", ".join(laws)}, means of both directions. URDF '
               "cannot describe Stribeck friction; the node's feed-forward compensates it too.")


def _apply_arm(result: CalibrationResult, urdf: str, out: Path) -> None:
    joints = result.robot.joint_names
    links = result.values(parameter_names(joints)).reshape(-1)[:10 * len(joints)].reshape(-1, 10)
    bodies = {}
    for joint, parameters in zip(joints, links, strict=True):
        body = pin.Inertia.FromDynamicParameters(parameters)
        bodies[joint] = RigidBodyInertia(
            float(body.mass), np.array(body.lever), np.array(body.inertia))
    _write(out, with_links(urdf, bodies))
    print_line(
        f'{out}: masses, centres of mass and inertias of the links of {", ".join(joints)}. '
        'Parameter combinations that the motion does not identify keep the values of the URDF. '
        'URDF cannot describe rotor inertias and torque offsets.')


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f"'{path}' cannot be written: {error.strerror}. Make the folder writable or name "
            'another file.') from error
