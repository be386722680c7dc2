# SPDX-License-Identifier: Apache-2.0
"""`robocal apply`: identified values into a URDF, and into the words of robot drivers."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from robocal_ros.cli.console import ERRORS, say
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.payload.model import franka_call, in_frame, ur_call
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import read_result
from robocal_ros.robot.friction_law import friction_by_joint
from robocal_ros.robot.load import carried_load
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.urdf import least_inertia, read_urdf, with_friction, with_payload


def run(options: argparse.Namespace) -> int:
    """Write the URDF and show the driver's values.

    Raises:
        RobocalError: If the result is not fit for it, or does not fit the URDF.

    """
    result = read_result(options.file)
    urdf = read_urdf(options.urdf)
    if result.verdict is not Verdict.PASS and not options.force:
        raise DataError(
            f"The verdict of '{options.file}' is {result.verdict.value}: "
            f'{" ".join(result.reasons)} Use a result that passed, or insist with --force.')
    if hashlib.sha256(urdf.encode()).hexdigest() != result.robot.urdf_sha256:
        ERRORS.print('This URDF is not, letter by letter, the one that the result was identified '
                     'with. See that links, frames and masses are the same.', style='yellow',
                     soft_wrap=True)
    if result.kind == 'payload':
        _apply_payload(result, urdf, options)
    elif result.kind == 'friction':
        _apply_friction(result, urdf, options.out)
    else:
        raise DataError(
            f"A result of kind '{result.kind}' has no place in a URDF; expected one of a payload "
            'or of friction.')
    return 0


def _apply_payload(result: CalibrationResult, urdf: str, options: argparse.Namespace) -> None:
    payload = carried_load(result)
    merged = with_payload(urdf, payload, result.frame)
    robot = Robot(merged, tool_frame=result.frame, joints=result.robot.joint_names)
    frame = options.frame or result.frame
    moved = in_frame(robot, payload, result.frame, frame)
    _write(options.out, merged)
    say(f"{options.out}: {payload.mass:.4f} kg on link '{result.frame}'.")
    if not payload.inertia.any():
        say(f'Its inertia was not identified; a ball of its mass stands in for it '
            f'({least_inertia(payload.mass):.2g} kg·m²).', 'yellow')
    _show_driver_values(moved, frame)


def _show_driver_values(payload: RigidBodyInertia, frame: str) -> None:
    say(f"\nFor the driver, in frame '{frame}' (it must be the driver's flange; another one "
        'by --frame):')
    for name, call in (('Universal Robots', ur_call(payload)), ('Franka', franka_call(payload))):
        say(f'{name}:\n  {call}')


def _apply_friction(result: CalibrationResult, urdf: str, out: Path) -> None:
    laws = friction_by_joint(result)
    if not laws:
        raise DataError('The friction result has no joint with identified friction.')
    _write(out, with_friction(urdf, laws))
    say(f'{out}: damping and friction of {", ".join(laws)}, the mean of both directions. '
        'URDF has no place for what is between standstill and sliding (Stribeck); the '
        "node's feed-forward compensates that too.")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f"'{path}' cannot be written: {error.strerror}. Make the folder writable or name "
            'another file.') from error
