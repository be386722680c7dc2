# SPDX-License-Identifier: Apache-2.0
"""URDF files: reading, and writing identified values back into them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import pinocchio as pin

from robocal_ros.errors import ConfigurationError, DataError, FileFormatError
from robocal_ros.files import read_text
from robocal_ros.results import CalibrationResult
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import RigidBodyInertia, link_of, parse_urdf

PAYLOAD_LINK = 'robocal_payload'
"""Name of the link of an identified payload."""

FRAME_AXES = ('x', 'y', 'z', 'rx', 'ry', 'rz')
"""Displacements of a joint's frame in that frame: shift [m], then rotation vector [rad]."""

# Density of aluminium [kg/m³]: few tools are more compact than a solid sphere of it.
_DENSITY = 2700.0


def read_urdf(path: Path) -> str:
    """Return the text of a URDF file.

    Raises:
        ConfigurationError: If it cannot be read.
        FileFormatError: If it is a xacro file, or not a text file.

    """
    if path.suffix == '.xacro':
        raise FileFormatError(
            f"'{path}' is a xacro file; expected a URDF. Expand it first: 'xacro {path} -o "
            f"{path.with_suffix('').with_suffix('.urdf').name}'.")
    return read_text(path, 'URDF')


def least_inertia(mass: float) -> float:
    """Return the moment of inertia of an aluminium sphere, ⅖ m r² [kg·m²].

    It replaces an unknown inertia, because physics engines reject zero.
    """
    radius = (3.0 * mass / (4.0 * np.pi * _DENSITY)) ** (1.0 / 3.0)
    return float(0.4 * mass * radius**2)


def formatted(urdf: str) -> str:
    """Return a URDF in the form of the functions below, to compare their results with.

    Raises:
        ModelError: If the text is not a URDF.

    """
    return _text(parse_urdf(urdf))


def without_payload(urdf: str) -> str:
    """Return a URDF without the link of ``with_payload``; unchanged if it has none.

    Raises:
        ModelError: If the text is not a URDF.

    """
    root = parse_urdf(urdf)
    own = [item for item in (*root.findall('link'), *root.findall('joint'))
           if item.get('name') in (PAYLOAD_LINK, f'{PAYLOAD_LINK}_joint')]
    for item in own:
        root.remove(item)
    return _text(root) if own else urdf


def with_payload(urdf: str, payload: RigidBodyInertia, frame: str) -> str:
    """Return a URDF with a payload as a further link, fixed to one of its links.

    The payload of an earlier call is replaced.

    Args:
        urdf: URDF text.
        payload: The payload, in the coordinates of ``frame``; an inertia of zeros is replaced
            by ``least_inertia``.
        frame: Name of the link that carries it.

    Raises:
        ModelError: If the text is not a URDF.
        ConfigurationError: If it has no such link.

    """
    root = parse_urdf(without_payload(urdf))
    _named(root, 'link', [frame], 'on which the payload')
    tensor = np.asarray(payload.inertia)
    if not tensor.any():
        tensor = least_inertia(payload.mass) * np.eye(3)
    link = ElementTree.SubElement(root, 'link', name=PAYLOAD_LINK)
    link.append(_inertial(RigidBodyInertia(payload.mass, payload.com, tensor)))
    joint = ElementTree.SubElement(root, 'joint', name=f'{PAYLOAD_LINK}_joint', type='fixed')
    ElementTree.SubElement(joint, 'parent', link=frame)
    ElementTree.SubElement(joint, 'child', link=PAYLOAD_LINK)
    ElementTree.SubElement(joint, 'origin', xyz='0 0 0', rpy='0 0 0')
    return _text(root)


def with_links(
    urdf: str, bodies: Mapping[str, RigidBodyInertia], *, kept: Collection[str] = ()
) -> str:
    """Return a URDF whose moving links have other masses, centres of mass and inertias.

    A body includes everything that is fixed to its link: the inertial data of links on fixed
    joints below it are removed.

    Args:
        urdf: URDF text.
        bodies: Bodies by the name of the joint that moves them, in the frame of its child link.
        kept: Links that are not part of a body and keep their inertial data.

    Raises:
        ModelError: If the text is not a URDF.
        ConfigurationError: If it has no such joint.

    """
    root = parse_urdf(urdf)
    joints, links = _named(root, 'joint', bodies, 'whose link'), _named(root, 'link')
    for name, body in bodies.items():
        carriers = [link_of(joints[name], 'child')]
        for carrier in carriers:
            carriers += [link_of(joint, 'child') for other, joint in joints.items()
                         if other not in bodies and link_of(joint, 'parent') == carrier]
            old = links[carrier].find('inertial')
            if old is not None and carrier not in kept:
                links[carrier].remove(old)
        links[carriers[0]].append(_inertial(body))
    return _text(root)


def _named(
    root: ElementTree.Element, kind: str, wanted: Iterable[str] = (), role: str = ''
) -> dict[str, ElementTree.Element]:
    """Return all links or joints by name; raises ConfigurationError if a wanted one is missing."""
    found = {item.get('name', ''): item for item in root.findall(kind)}
    for name in wanted:
        if name not in found:
            raise ConfigurationError(
                f"The URDF has no {kind} '{name}', {role} was identified; it has "
                f'{", ".join(found) or "none"}. Give the URDF of the robot that was calibrated.')
    return found


def _inertial(body: RigidBodyInertia) -> ElementTree.Element:
    tensor = np.asarray(body.inertia)
    inertial = ElementTree.Element('inertial')
    ElementTree.SubElement(inertial, 'origin', xyz=_numbers(body.com), rpy='0 0 0')
    ElementTree.SubElement(inertial, 'mass', value=repr(float(body.mass)))
    ElementTree.SubElement(inertial, 'inertia', {
        f'i{a}{b}': repr(float(tensor['xyz'.index(a), 'xyz'.index(b)]))
        for a, b in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')})
    return inertial


def with_friction(urdf: str, laws: Mapping[str, SteadyFriction]) -> str:
    """Return a URDF whose joints have identified friction in their ``<dynamics>``.

    URDF has Coulomb friction and viscous damping, the same in both directions: the values of
    ``SteadyFriction.linear`` are written, without the Stribeck part and the dependence on load. A
    law without viscous friction leaves the damping as it is.

    Args:
        urdf: URDF text.
        laws: Friction by joint name.

    Raises:
        ModelError: If the text is not a URDF.
        ConfigurationError: If it has no such joint.
        DataError: If friction or damping is negative.

    """
    root = parse_urdf(urdf)
    joints = _named(root, 'joint', laws, 'whose friction')
    for name, law in laws.items():
        dynamics = _child(joints[name], 'dynamics')
        friction, damping = law.linear()
        if min(friction, damping) < 0.0:
            raise DataError(
                f"Friction of joint '{name}' would be {friction:.4g} and its damping "
                f'{damping:.4g} in the URDF; expected numbers that are not negative. Identify '
                'its friction again.')
        dynamics.set('friction', repr(friction))
        if law.viscous.any():
            dynamics.set('damping', repr(damping))
    return _text(root)


def with_frames(urdf: str, result: CalibrationResult) -> str:
    """Return a URDF whose joints have the origins of a geometry result.

    Args:
        urdf: URDF text.
        result: A geometry result, also with displacements that are held by their priors: together
            they are what fits the data.

    Raises:
        ModelError: If the text is not a URDF.
        ConfigurationError: If it has no such joint.
        DataError: If the result is of another kind.

    """
    result.check_kind('geometry')
    root, names = parse_urdf(urdf), result.robot.joint_names
    joints = _named(root, 'joint', names, 'whose frame')
    for name in names:
        moved = result.values([f'{name}.{axis}' for axis in FRAME_AXES])
        origin = _child(joints[name], 'origin')
        xyz, rpy = ([float(number) for number in origin.get(key, '0 0 0').split()]
                    for key in ('xyz', 'rpy'))
        placed = pin.SE3(pin.rpy.rpyToMatrix(*rpy), np.array(xyz)) * pin.SE3(
            pin.exp3(moved[3:]), moved[:3])
        origin.set('xyz', _numbers(placed.translation))
        origin.set('rpy', _numbers(pin.rpy.matrixToRpy(placed.rotation)))
    return _text(root)


def _child(element: ElementTree.Element, tag: str) -> ElementTree.Element:
    """Return the child with a tag, a new one if there is none."""
    found = element.find(tag)
    return ElementTree.SubElement(element, tag) if found is None else found


def _numbers(values: Iterable[float]) -> str:
    return ' '.join(repr(float(x)) for x in values)


def _text(root: ElementTree.Element) -> str:
    ElementTree.indent(root, '  ')
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(root, 'unicode')}\n"
