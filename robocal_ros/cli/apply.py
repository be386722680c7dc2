# SPDX-License-Identifier: Apache-2.0
"""`robocal apply`: write results into a URDF, and show what `drivers` take of them."""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pinocchio as pin
import yaml

from robocal_ros import registry
from robocal_ros.cli.console import ERRORS, print_line
from robocal_ros.cli.drivers import Recognised, desk_settings, listed, payload_calls, recognised
from robocal_ros.cli.show import result_files
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.files import read_text, write_output
from robocal_ros.payload import static_poses
from robocal_ros.results import CalibrationResult, Verdict, read_result
from robocal_ros.robot import (
    ARM,
    PAYLOAD_LINK,
    RigidBodyInertia,
    Robot,
    carried_load,
    friction_by_joint,
    identity_of,
    least_inertia,
    on_leaning_base,
    parameter_names,
    parse_urdf,
    read_urdf,
    with_frames,
    with_friction,
    with_links,
    with_payload,
    without_payload,
)

# What MuJoCo's joints take of results, by kind.
_MJCF = {'friction': 'friction', ARM: 'rotor inertia'}
# Joints of UR arms, apart from a prefix, by the part of ur_description's file that places them.
_UR_JOINTS = {
    'shoulder': 'shoulder_pan_joint', 'upper_arm': 'shoulder_lift_joint', 'forearm': 'elbow_joint',
    'wrist_1': 'wrist_1_joint', 'wrist_2': 'wrist_2_joint', 'wrist_3': 'wrist_3_joint'}
# What the written URDF contains of a result, by kind; a payload is described in detail.
_WRITTEN = {
    'friction': 'damping and friction of {joints}: the line, Coulomb plus viscous friction, that '
    'fits the law of both directions at the measured speeds. The feed-forward of the node '
    'compensates the whole law.',
    'geometry': 'origins of {joints}. URDF cannot describe compliance; sag is corrected by a '
    'compliance result. The controller of the arm keeps its own kinematics.',
    ARM: 'masses, centres of mass and inertias of the links of {joints}. Parameter combinations '
    'that the motion does not identify keep the values of the URDF. URDF cannot describe rotor '
    'inertias, torque offsets and springs.'}
# Masses of URDFs that agree to this are of the same links [kg].
_SAME_MASS = 1e-6


def run(options: argparse.Namespace) -> int:
    """Write the URDF and show what drivers take.

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
    if not identity_of(urdf).is_described_as(result.robot):
        print_line('This URDF differs from the one that the result was identified with. Check '
                   'that links, frames and masses are the same.', 'yellow', ERRORS)
    merged = urdf_with(result, urdf)
    payload = list(_payload_lines(result, urdf, options)) if result.kind == 'payload' else []
    if options.send and not payload:
        raise ConfigurationError(
            f"--send is for a payload; '{files[0]}' is a result of {result.kind}.")
    mjcf = '' if options.mjcf is None else mjcf_with(
        result, read_text(options.mjcf[0], 'MuJoCo model'))
    kinematics = ur_kinematics(result, merged) if options.ur_kinematics else ''
    desk = franka_desk(result, urdf) if options.desk else ''
    write_output(options.out, merged, 'URDF')
    if kinematics:
        write_output(options.ur_kinematics, kinematics, 'file of kinematics')
        print_line(f'{options.ur_kinematics}: for ur_robot_driver, as kinematics_params_file.')
        if "hash: ''" in kinematics:
            print_line(
                "It has no checksum of the robot's own calibration, because the URDF has no "
                "ros2_control parameter 'kinematics/hash': the driver will say at its start that "
                'the calibration does not match.', 'yellow')
    if desk:
        write_output(options.desk, desk, 'end effector of Franka Desk')
        print_line(f'{options.desk}: end effector for Franka Desk, with the flange as its frame. '
                   'Use it or the call of set_load below: both would add up.')
    if mjcf:
        write_output(options.mjcf[1], mjcf, 'MuJoCo model')
        print_line(f'{options.mjcf[1]}: {_MJCF[result.kind]} of '
                   f'{", ".join(_joint_dynamics(result))}.')
    if result.kind in _WRITTEN:
        joints = _lines(result) if result.kind == 'friction' else result.robot.joint_names
        print_line(f'{options.out}: {_WRITTEN[result.kind].format(joints=", ".join(joints))}')
    for text, style in payload:
        print_line(text, style)
    if options.send:
        # ROS starts slowly, and reports do without it.
        from robocal_ros.cli.driver_call import send

        send([text.strip() for line, _ in payload for text in line.splitlines()],
             files[0].with_suffix('.sent'))
    return 0


def urdf_with(result: CalibrationResult, urdf: str) -> str:
    """Return a URDF with the values of a result.

    Raises:
        DataError: If a result of this kind, or with these values, does not go into a URDF.
        ConfigurationError: If the URDF lacks a link or joint of the result.

    """
    if result.kind == 'payload':
        load = carried_load(result)
        if (earlier := _earlier_load(result, identified_on(result, urdf))) is not None:
            if not load.inertia.any():
                load = replace(load, inertia=least_inertia(load.mass) * np.eye(3))
            load = _body(load.to_pinocchio() + earlier.to_pinocchio())
        return with_payload(urdf, load, result.frame)
    if result.kind == 'friction':
        laws = friction_by_joint(result)
        if not laws:
            raise DataError('The friction result has no joint with identified friction; identify '
                            'at least one joint first.')
        return with_friction(urdf, laws)
    if result.kind == 'geometry':
        return with_frames(urdf, result)
    if result.kind == ARM:
        joints = result.robot.joint_names
        # The body that each joint moves, in the frame of its link.
        bodies = result.values(parameter_names(joints)[:10 * len(joints)]).reshape(-1, 10)
        return with_links(
            urdf, {joint: _body(pin.Inertia.FromDynamicParameters(body))
                   for joint, body in zip(joints, bodies, strict=True)},
            kept=() if identified_on(result, urdf) == urdf else (PAYLOAD_LINK,))
    raise DataError(
        f"A result of kind '{result.kind}' cannot be written into a URDF; expected one of "
        f'{", ".join(item.kind for item in registry.procedures().values() if item.urdf)}.')


def _lines(result: CalibrationResult) -> Iterator[str]:
    """Yield each joint with friction, and how far its line is off its law."""
    for name, law in friction_by_joint(result).items():
        level, slope = law.linear()
        low, high = law.speeds
        speed = np.linspace(low, high, 50) if np.isfinite(high) else np.zeros(0)
        torque = np.array([sign * law.torque(sign * speed) for sign in (1.0, -1.0)])
        error = np.abs(torque - level - slope * speed).max(initial=0.0)
        yield f'{name} (off by up to {error:.2g} of {torque.max():.2g} ' \
              f'{result.parameter(f"{name}.coulomb_forward").unit})' if error > 0.0 else name


def _joint_dynamics(result: CalibrationResult) -> dict[str, dict[str, float]]:
    """Return attributes of MuJoCo's joints by joint name."""
    if result.kind == 'friction':
        return {
            name: dict(zip(('frictionloss', 'damping'), law.linear(), strict=True))
            if law.viscous.any() else {'frictionloss': law.linear()[0]}
            for name, law in friction_by_joint(result).items()}
    rotors = {name: result.parameter(f'{name}.rotor_inertia') for name in result.robot.joint_names}
    return {name: {'armature': float(rotor.value)} for name, rotor in rotors.items()
            if rotor.value is not None and rotor.note == ''}


def mjcf_with(result: CalibrationResult, mjcf: str) -> str:
    """Return a MuJoCo model whose joints have the friction or the rotor inertias of a result.

    Coulomb friction becomes `frictionloss`, viscous friction `damping`, both as in a URDF, and a
    rotor inertia about the joint's axis `armature` (MuJoCo's XML reference, body/joint).

    Raises:
        DataError: If a result of this kind has neither.
        ConfigurationError: If the text is no MuJoCo model, or lacks a joint of the result.

    """
    if result.kind not in _MJCF:
        raise DataError(
            f"A result of kind '{result.kind}' has no properties of MuJoCo's joints; expected one "
            f'of {", ".join(_MJCF)}. Compile the written URDF instead.')
    try:
        # An entity may expand without end.
        root = ElementTree.fromstring('' if '<!DOCTYPE' in mjcf else mjcf, ElementTree.XMLParser(
            target=ElementTree.TreeBuilder(insert_comments=True)))
    except ElementTree.ParseError as error:
        raise ConfigurationError(f'The MuJoCo model is not well-formed XML ({error}), or has a '
                                 'DOCTYPE.') from error
    joints = {joint.get('name', ''): joint for joint in root.iter('joint')}
    for name, values in _joint_dynamics(result).items():
        if name not in joints:
            raise ConfigurationError(
                f"The MuJoCo model has no joint '{name}', whose {_MJCF[result.kind]} was "
                f'identified; it has {", ".join(filter(None, joints)) or "none"}. Name its joints '
                'as in the URDF.')
        for attribute, value in values.items():
            joints[name].set(attribute, repr(value))
    return ElementTree.tostring(root, 'unicode') + '\n'


def ur_kinematics(result: CalibrationResult, urdf: str) -> str:
    """Return the kinematics of a calibrated UR arm as ur_description reads them.

    Of each joint's origin x, y, z [m] and roll, pitch, yaw [rad], and the checksum of the robot's
    own calibration, with which ur_robot_driver compares that of the robot (ur_calibration,
    kinematics_params_file).

    Args:
        result: A geometry result.
        urdf: URDF with its frames, whose parameter ``kinematics/hash`` is the checksum.

    Raises:
        DataError: If the result is of another kind.
        ConfigurationError: If the arm is no UR arm.

    """
    result.check_kind('geometry')
    root, names = parse_urdf(urdf), result.robot.joint_names
    if len(names) != len(_UR_JOINTS) or not all(map(str.endswith, names, _UR_JOINTS.values())):
        raise ConfigurationError(
            'Only UR arms have a file of kinematics for ur_robot_driver; expected the joints '
            f'{", ".join(_UR_JOINTS.values())}, got {", ".join(names)}.')
    content: dict[str, object] = {}
    for part, name in zip(_UR_JOINTS, names, strict=True):
        origin = root.find(f".//joint[@name='{name}']/origin")
        numbers = [0.0] * 6 if origin is None else [
            float(number) for key in ('xyz', 'rpy')
            for number in origin.get(key, '0 0 0').split()]
        content[part] = dict(zip(('x', 'y', 'z', 'roll', 'pitch', 'yaw'), numbers, strict=True))
    content['hash'] = (root.findtext(".//param[@name='kinematics/hash']") or '').strip()
    return yaml.safe_dump({'kinematics': content}, sort_keys=False)


def franka_desk(result: CalibrationResult, urdf: str) -> str:
    """Return what the flange of a Franka arm carries, as Franka Desk reads it (`desk_settings`).

    Args:
        result: A payload result.
        urdf: URDF that it was identified with, as for `driver_load`.

    Raises:
        DataError: If the result is of another kind.
        ConfigurationError: If the arm is no Franka arm, or the result does not fit the URDF.

    """
    result.check_kind('payload')
    known = recognised(joints=result.robot.joint_names, urdf=urdf)
    if known is None or not known.driver.name.startswith('Franka'):
        raise ConfigurationError(
            'Only Franka arms have an end effector of Franka Desk; expected joints such as '
            f'fr3_joint1, got {", ".join(result.robot.joint_names)}.')
    return desk_settings(driver_load(result, urdf, known.tool_frame)[0])


def _body(body: pin.Inertia) -> RigidBodyInertia:
    return RigidBodyInertia(float(body.mass), np.array(body.lever), np.array(body.inertia))


def identified_on(result: CalibrationResult, urdf: str) -> str:
    """Return the URDF that a payload or an arm was identified with.

    A URDF may contain the payload link of an earlier `apply`. A payload that was identified with
    it is what the arm carries beside that link. A payload that was identified without it is the
    same one measured anew, or another one in its place.

    Args:
        result: A payload or arm result.
        urdf: URDF with or without such a link.

    Returns:
        The URDF itself, or without the link.

    Raises:
        ConfigurationError: If the result fits neither.

    """
    bare = without_payload(urdf)
    if bare == urdf or identity_of(urdf).is_described_as(result.robot):
        return urdf
    known = result.settings.get('urdf_payload_mass')
    if known is None:
        return bare
    frame = _arm(result, urdf).tool_frame
    masses = [_arm(result, text).distal_inertia(frame).mass for text in (bare, urdf)]
    for text, mass in zip((bare, urdf), masses, strict=True):
        if abs(mass - known) <= _SAME_MASS:
            return text
    raise ConfigurationError(
        f"The URDF has {masses[1]:.4f} kg distal to '{frame}', {masses[0]:.4f} kg without its "
        f"link '{PAYLOAD_LINK}', and the {result.kind} was identified with a URDF that has "
        f'{known:.4f} kg there. Give the URDF that it was identified with.')


def _arm(result: CalibrationResult, urdf: str) -> Robot:
    # The tool frame and the gravity that a payload or an arm was identified with.
    stated = {'gravity': result.settings['gravity']} if 'gravity' in result.settings else {}
    robot = Robot(urdf, tool_frame=result.frame or str(result.settings['tool_frame']),
                  joints=result.robot.joint_names, **stated)
    tilts = [item.value for item in result.parameters
             if item.name in static_poses.TILT and item.value is not None]
    return on_leaning_base(robot, np.array(tilts)) if tilts else robot


def _earlier_load(result: CalibrationResult, base: str) -> RigidBodyInertia | None:
    """Return the payload link that stays part of the payload, in the frame of the result.

    Args:
        result: A payload result.
        base: URDF that it was identified with.

    """
    if without_payload(base) == base:
        return None
    robot = _arm(result, base)
    return in_frame(robot, robot.distal_inertia(PAYLOAD_LINK), PAYLOAD_LINK, result.frame)


def _payload_lines(
    result: CalibrationResult, urdf: str, options: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """Yield what to print of a payload, and its style: what was written, and the driver's values.

    Raises:
        ConfigurationError: If another frame is wanted than the one of a known driver.

    """
    payload, bare = carried_load(result), identified_on(result, urdf)
    yield f"{options.out}: {payload.mass:.4f} kg on link '{result.frame}'.", ''
    if (earlier := _earlier_load(result, bare)) is not None:
        yield (f"It was identified in addition to the {earlier.mass:.4f} kg of the URDF's link "
               f"'{PAYLOAD_LINK}', which now has both: {payload.mass + earlier.mass:.4f} kg."), ''
    elif without_payload(urdf) != urdf:
        yield f"It replaces the URDF's link '{PAYLOAD_LINK}' of an earlier payload.", ''
    if not payload.inertia.any():
        yield ('Its inertia was not identified and is replaced by that of a sphere of its mass '
               f'({least_inertia(payload.mass):.2g} kg·m²).'), 'yellow'

    known, frame = recognised(joints=result.robot.joint_names, urdf=urdf), options.frame
    if known is not None:
        _check_frame(_arm(result, urdf), frame or known.tool_frame, known)
    frame = known.tool_frame if known else frame or result.frame
    total, mounted = driver_load(result, urdf, frame)
    if mounted > 0.0:
        yield (f"The URDF already has {mounted:.4f} kg distal to '{frame}'. The total is "
               f'{total.mass:.4f} kg.'), ''
    yield f"\nFor the driver, in frame '{frame}'" + (
        f', that of {known.driver.name}:' if known else
        " (it must be the driver's flange; set another one with --frame):"), ''
    for name, call in payload_calls(total, known.driver if known else None):
        yield f'{name}:\n  {call}', ''
    if sensor := str(result.settings.get('sensor_frame', '')):
        weight, robot = driver_load(result, urdf, sensor)[0], _arm(result, bare)
        yield (
            f"\nFor control_toolbox's filter of the weight in the readings of '{sensor}' (with "
            'sensor_sign -1, turn the signs of gravity_field):\n'
            '  type: control_filters/GravityCompensationWrench\n'
            f'  params: {{world_frame: {robot.model.frames[1].name}, sensor_frame: {sensor}, '
            f'tool: {{mass: {weight.mass:.4f}, CoG: [{listed(weight.com, ".5f")}], '
            f'gravity_field: [{listed(robot.gravity, ".5g")}]}}}}'), ''


def _check_frame(robot: Robot, frame: str, known: Recognised) -> None:
    """Raise a ConfigurationError if a frame is another one than that of a known driver."""
    one, other = (robot.model.frames[robot.frame_id(name)] for name in (frame, known.tool_frame))
    moved = other.placement.actInv(one.placement)
    if one.parentJoint != other.parentJoint or not moved.isIdentity(1e-4):
        raise ConfigurationError(
            f"Frame '{frame}' is {1e3 * np.linalg.norm(moved.translation):.1f} mm off and turned "
            f'by {np.degrees(np.linalg.norm(pin.log3(moved.rotation))):.1f}° against '
            f"'{known.tool_frame}', in which {known.driver.name} takes a payload. Leave --frame "
            'away.')


def driver_load(
    result: CalibrationResult, urdf: str, frame: str
) -> tuple[RigidBodyInertia, float]:
    """Return the load that a driver must know: payload and what the URDF has distal to a frame.

    Args:
        result: A payload result.
        urdf: URDF that it was identified with, or the same with the payload of an earlier
            `apply`, which counts as `identified_on` decides.
        frame: The driver's flange.

    Returns:
        The load in the coordinates of the frame, with an inertia of zeros if that of the payload
        was not identified, and the mass that is in the URDF [kg].

    Raises:
        ConfigurationError: If the frame does not exist, a joint is between it and the payload, or
            the result does not fit the URDF.

    """
    payload = carried_load(result)
    robot = _arm(result, identified_on(result, urdf))
    total = in_frame(robot, payload, result.frame, frame)
    mounted = robot.distal_inertia(frame)
    if mounted.mass > 0.0:
        total = _body(total.to_pinocchio() + mounted.to_pinocchio())
    if not payload.inertia.any():
        total = replace(total, inertia=np.zeros((3, 3)))
    return total, mounted.mass


def in_frame(robot: Robot, payload: RigidBodyInertia, frame: str, other: str) -> RigidBodyInertia:
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
    return _body(second.placement.actInv(first.placement).act(payload.to_pinocchio()))
