# SPDX-License-Identifier: Apache-2.0
"""A second simulation of real arms, from physics alone, to judge simulator and estimators by.

It shares no code and no constant with `robocal_ros` and `robocal_sim`: it reads a URDF by itself,
evaluates Newton's and Euler's equations of the links as they really are, adds what drives, gears,
encoders, controllers and F/T sensors do to them, and returns arrays. Every effect is drawn from a
generator of its own, so that switching one off leaves all others as they were.

Bodies are pseudo-inertia matrices: 4 × 4, second moments of mass in the upper left, first moments
beside them, mass in the corner. A placement T turns one into T J Tᵀ, bodies add up, and any affine
map of a body is a body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pinocchio
import scipy.signal

Array = npt.NDArray[np.float64]

GRAVITY = 9.81
_CHUNK = 20000
# Step of slow states: warmth, rest, hysteresis [s].
_SLOW = 0.05
# Resonance of the joints' springs [Hz].
_RESONANCE = 12.0


@dataclass(frozen=True)
class ArmData:
    """Where an arm's description is, its frames, a posture with space around it, its payload."""

    path: str
    tool: str
    sensor: str
    home: tuple[float, ...]
    payload: float


ARMS = {
    'UR10': ArmData('ur_description/urdf/ur10_robot.urdf', 'tool0', 'tool0',
                    (0.0, -1.2, 1.2, -0.8, 0.9, 0.0), 10.0),
    'Panda': ArmData('panda_description/urdf/panda.urdf', 'panda_hand', 'panda_link8',
                     (0.0, 0.2, 0.0, -1.8, 0.0, 1.8, 0.5), 3.0),
    'xArm 7': ArmData('xarm_description/urdf/xarm7.urdf', 'link_eef', 'link_eef',
                      (0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0), 3.5),
    'Kinova j2': ArmData('kinova_description/robots/kinova.urdf', 'j2s6s200_end_effector',
                         'j2s6s200_end_effector', (0.0, 3.6, 2.2, 0.0, 1.5, 0.0), 2.2),
    'Z1': ArmData('z1_description/urdf/z1.urdf', 'link06', 'link06',
                  (0.0, 1.2, -1.3, 0.2, 0.0, 0.0), 2.0),
}
"""Arms of PyPI's example-robot-data."""

OTHER_ARMS = {
    'UR5': ArmData('ur_description/urdf/ur5_robot.urdf', 'tool0', 'tool0',
                   (0.0, -1.2, 1.2, -0.8, 0.9, 0.0), 5.0),
    'UR3': ArmData('ur_description/urdf/ur3_robot.urdf', 'tool0', 'tool0',
                   (0.0, -1.2, 1.2, -0.8, 0.9, 0.0), 3.0),
}
"""Further ones, which no campaign uses."""

DATA = {**ARMS, **OTHER_ARMS}


def shares() -> Path:
    """Return the folder above that of the robots' data."""
    found = (parent / 'share' for parent in Path(pinocchio.__file__).parents)
    return next(share for share in found if (share / 'example-robot-data').is_dir())


def urdf_of(name: str) -> str:
    """Return the URDF of an arm."""
    path = shares() / 'example-robot-data' / 'robots' / DATA[name].path
    # The product cannot read a joint with the name of a link.
    return path.read_text(encoding='utf-8').replace(
        '<joint name="gripperStator"', '<joint name="jointGripperStator"')


# -------------------------------------------------------------------------------- bodies


def cross_matrix(vector: Array) -> Array:
    """Return the matrices of cross products by vectors, shape (…, 3, 3)."""
    x, y, z = np.moveaxis(vector, -1, 0)
    o = np.zeros_like(x)
    return np.stack((np.stack((o, -z, y), -1), np.stack((z, o, -x), -1),
                     np.stack((-y, x, o), -1)), -2)


def rotation(vector: Array) -> Array:
    """Return the rotation by a vector, shape (3, 3)."""
    return np.asarray(scipy.spatial.transform.Rotation.from_rotvec(vector).as_matrix())


def body(mass: float, centre: Array, inertia: Array) -> Array:
    """Return the pseudo-inertia matrix of a body.

    Args:
        mass: Mass [kg].
        centre: Its centre, shape (3,) [m].
        inertia: Its inertia about the centre, shape (3, 3) [kg·m²].

    """
    second = 0.5 * np.trace(inertia) * np.eye(3) - inertia + mass * np.outer(centre, centre)
    first = (mass * centre)[:, None]
    return np.block([[second, first], [first.T, np.array([[mass]])]])


def parts(pseudo: Array) -> tuple[float, Array, Array]:
    """Return mass, centre, and inertia about it, of a pseudo-inertia matrix; undoes `body`."""
    mass, first = pseudo[3, 3], pseudo[:3, 3]
    second = pseudo[:3, :3] - np.outer(first, first) / mass
    return float(mass), first / mass, np.trace(second) * np.eye(3) - second


def placed(rotated: Array, at: Array) -> Array:
    """Return a placement, shape (4, 4)."""
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = rotated, at
    return found


def _placement(element: ElementTree.Element | None) -> Array:
    xyz, rpy = (np.array([float(x) for x in (
        '0 0 0' if element is None else element.get(key, '0 0 0')).split()])
        for key in ('xyz', 'rpy'))
    return placed(scipy.spatial.transform.Rotation.from_euler('xyz', rpy).as_matrix(), xyz)


@dataclass(frozen=True)
class Arm:
    """The chain of an arm by its URDF.

    Attributes:
        name: Name of the arm.
        joints: Names of the n joints.
        before: Placements of the joints in the frames of those before, shape (n, 4, 4).
        axis: Axes of the joints, shape (n, 3).
        bodies: Joint, placement-free pseudo-inertia in its frame, and whether it is distal to the
            sensor, for each link.
        tool: Placement of the tool frame in that of the last joint, shape (4, 4).
        sensor: Placement of the sensor, shape (4, 4).
        lower: Lower limits, shape (n,) [rad].
        upper: Upper limits, shape (n,) [rad].

    """

    name: str
    joints: tuple[str, ...]
    before: Array
    axis: Array
    bodies: tuple[tuple[int, Array, bool], ...]
    tool: Array
    sensor: Array
    lower: Array
    upper: Array

    @property
    def links(self) -> Array:
        """Pseudo-inertia of what each joint carries by the URDF, shape (n, 4, 4)."""
        found = np.zeros_like(self.before)
        for at, one, _ in self.bodies:
            found[at] += one
        return found


@cache
def read_arm(name: str) -> Arm:
    """Return an arm of `DATA`; joints beside the chain to its tool are at zero."""
    data, tree = DATA[name], ElementTree.fromstring(urdf_of(name))
    joints = {joint.find('child').get('link'): joint  # type: ignore[union-attr]
              for joint in tree.findall('joint')}
    chain, link = [], data.tool
    while link in joints:
        chain.append(link)
        link = joints[link].find('parent').get('link')  # type: ignore[union-attr, assignment]
    moving = [link for link in chain[::-1] if joints[link].get('type') != 'fixed']
    frames: dict[str | None, tuple[int, Array, bool]] = {}

    def frame(link: str) -> tuple[int, Array, bool]:
        """Return joint, placement in its frame, and whether the link is distal to the sensor."""
        if link not in joints:
            return -1, np.eye(4), False
        if link not in frames:
            joint = joints[link]
            at, place, distal = frame(str(joint.find('parent').get('link')))  # type: ignore
            place = place @ _placement(joint.find('origin'))
            if link in moving:
                before.append(place)
                at, place = at + 1, np.eye(4)
            frames[link] = at, place, distal or link == data.sensor
        return frames[link]

    before: list[Array] = []
    bodies = []
    tool, sensor = frame(data.tool)[1], frame(data.sensor)[1]
    for item in tree.findall('link'):
        at, place, distal = frame(str(item.get('name')))
        mass, tensor = item.find('inertial/mass'), item.find('inertial/inertia')
        if mass is None or tensor is None or at < 0:
            continue
        xx, xy, xz, yy, yz, zz = (float(tensor.get(key, 0.0)) for key in (
            'ixx', 'ixy', 'ixz', 'iyy', 'iyz', 'izz'))
        own = place @ _placement(item.find('inertial/origin'))
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        bodies.append((at, own @ body(float(mass.get('value', 0.0)), np.zeros(3), inertia)
                       @ own.T, distal))
    limits = np.array([[float(joints[link].find('limit').get(key, 0.0))  # type: ignore
                        for key in ('lower', 'upper')] for link in moving])
    free = np.array([joints[link].get('type') == 'continuous' for link in moving])
    axes = np.array([_placement(None)[:3, 2] if (axis := joints[link].find('axis')) is None else
                     [float(x) for x in axis.get('xyz', '1 0 0').split()] for link in moving])
    return Arm(name, tuple(str(joints[link].get('name')) for link in moving), np.array(before),
               axes / np.linalg.norm(axes, axis=1)[:, None], tuple(bodies), tool, sensor,
               np.where(free, -np.pi, limits[:, 0]), np.where(free, np.pi, limits[:, 1]))


def turned(arm: Arm, joint: int, angle: Array) -> Array:
    """Return the rotations of a joint by some angles [rad], shape (k, 3, 3)."""
    matrix = cross_matrix(arm.axis[joint])
    s, c = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.asarray(np.eye(3) + s * matrix + (1.0 - c) * (matrix @ matrix))


def reached(arm: Arm, q: Array, point: Array, bend: Array | None = None) -> Array:
    """Return where a point of the tool frame is in the root frame, shape (k, 3) [m].

    Args:
        arm: The chain.
        q: Joint angles, shape (k, n) [rad].
        point: Shape (3,) [m].
        bend: Small rotations behind each joint, shape (k, n, 3) [rad].

    """
    found = np.tile(arm.tool[:3, :3] @ point + arm.tool[:3, 3], (len(q), 1))
    for joint, before in reversed(list(enumerate(arm.before))):
        if bend is not None:
            small = scipy.spatial.transform.Rotation.from_rotvec(bend[:, joint])
            found = small.apply(found)
        found = np.einsum('kij,kj->ki', turned(arm, joint, q[:, joint]), found)
        found = found @ before[:3, :3].T + before[:3, 3]
    return found


def moments(
    arm: Arm, links: Array, q: Array, v: Array, a: Array, gravity: Array,
    bend: tuple[Array, Array, Array] | None = None, beyond: Array | None = None,
) -> tuple[Array, Array]:
    """Return what carries the arm, by Newton's and Euler's equations of each link.

    Args:
        arm: Its chain.
        links: Pseudo-inertia of what each joint carries, in its frame, shape (n, 4, 4).
        q: Joint angles, shape (k, n) [rad].
        v: Joint speeds, shape (k, n) [rad/s].
        a: Joint accelerations, shape (k, n) [rad/s²].
        gravity: In the root frame, shape (3,) [m/s²].
        bend: Small rotations behind each joint and their first two derivatives, shape (k, n, 3)
            each [rad, rad/s, rad/s²].
        beyond: Pseudo-inertia distal to the sensor, in the last joint's frame, shape (4, 4).

    Returns:
        The moments about each joint's origin in its frame, shape (k, n, 3) [N·m], and the reading
        of the sensor, shape (k, 6) [N, N·m].

    """
    some = [_moments(arm, links, q[rows], v[rows], a[rows], gravity,
                     [] if bend is None else [part[rows] for part in bend], beyond)
            for rows in (slice(at, at + _CHUNK) for at in range(0, len(q), _CHUNK))]
    about, wrench = (np.concatenate(part) for part in zip(*some, strict=True))
    return about, wrench


def torques(arm: Arm, links: Array, q: Array, v: Array, a: Array, gravity: Array) -> Array:
    """Return the torques of the joints that carry the arm, shape (k, n); see `moments`."""
    return np.asarray(np.einsum('kni,ni->kn', moments(arm, links, q, v, a, gravity)[0], arm.axis))


def _carrying(one: Array, acceleration: Array, w: Array, dw: Array) -> tuple[Array, Array]:
    """Return force and moment about the frame's origin that move a body, shape (k, 3) each."""
    first, second = one[:3, 3], one[:3, :3]
    inertia = np.trace(second) * np.eye(3) - second
    force = one[3, 3] * acceleration + np.cross(dw, first) + np.cross(w, np.cross(w, first))
    return force, np.cross(first, acceleration) + dw @ inertia + np.cross(w, w @ inertia)


def _moments(
    arm: Arm, links: Array, q: Array, v: Array, a: Array, gravity: Array, bend: list[Array],
    beyond: Array | None,
) -> tuple[Array, Array]:
    count, n = q.shape
    w = dw = np.zeros((count, 3))
    acceleration = np.tile(-gravity, (count, 1))
    turns, forces, torques = [], [], []
    for i in range(n):
        axis, at = arm.axis[i], arm.before[i, :3, 3]
        turn = arm.before[i, :3, :3] @ turned(arm, i, q[:, i])
        if bend:
            small = cross_matrix(bend[0][:, i])
            turn = turn @ (np.eye(3) + small + 0.5 * small @ small)
        acceleration = acceleration + np.cross(dw, at) + np.cross(w, np.cross(w, at))
        acceleration, w, dw = (np.einsum('kji,kj->ki', turn, part)
                               for part in (acceleration, w, dw))
        dw = dw + np.cross(w, v[:, i, None] * axis) + a[:, i, None] * axis
        w = w + v[:, i, None] * axis
        if bend:
            dw = dw + np.cross(w, bend[1][:, i]) + bend[2][:, i]
            w = w + bend[1][:, i]
        force, torque = _carrying(links[i], acceleration, w, dw)
        turns.append(turn)
        forces.append(force)
        torques.append(torque)
    for i in range(n - 1, 0, -1):
        force = np.einsum('kij,kj->ki', turns[i], forces[i])
        forces[i - 1] = forces[i - 1] + force
        torques[i - 1] = torques[i - 1] + np.cross(arm.before[i, :3, 3], force) + np.einsum(
            'kij,kj->ki', turns[i], torques[i])
    wrench = np.zeros((count, 6))
    if beyond is not None:
        force, torque = _carrying(beyond, acceleration, w, dw)
        torque = torque - np.cross(arm.sensor[:3, 3], force)
        wrench = -np.hstack((force @ arm.sensor[:3, :3], torque @ arm.sensor[:3, :3]))
    return np.stack(torques, axis=1), wrench


# ------------------------------------------------------------------------------- effects

EFFECTS: dict[str, tuple[float, float, float]] = {
    # Links and base: shares, rad.
    'links off': (0.025, 0.10, 0.8), 'links off together': (0.03, 0.085, 0.5),
    'tilt': (0.1 * np.pi / 180, 0.8 * np.pi / 180, 0.8),
    'large tilt': (0.8 * np.pi / 180, 10.0 * np.pi / 180, 0.05),
    'sag': (5e-4, 2e-3, 0.8), 'bending': (5e-4, 2e-3, 0.6), 'zeros': (2.5e-4, 1e-3, 0.6),
    # Drives: share of the joint's inertia; shares of the torque, of Coulomb friction; Hz; s.
    'rotor': (0.1, 1.0, 0.8), 'gains': (0.10, 0.15, 0.3), 'small gains': (0.0025, 0.01, 0.6),
    'offsets': (0.05, 0.4, 0.6), 'offset drift': (1e-3, 1e-2, 0.5),
    'saturation': (0.005, 0.04, 0.5), 'effort steps': (2e-4, 4e-3, 0.6),
    'effort filter': (10.0, 60.0, 0.5),
    'effort delay': (1e-3, 2.5e-2, 0.8), 'current': (5.0, 20.0, 0.25),
    # Friction: rad/s, shares of Coulomb friction, of the load, exponent, rad.
    'Stribeck': (0.02, 0.3, 0.8), 'load friction': (0.025, 0.1, 0.7),
    'driven friction': (0.1, 0.6, 0.5), 'sublinear': (0.4, 0.9, 0.6),
    'warming': (0.04, 0.25, 0.7), 'pause': (0.04, 0.25, 0.5), 'cold start': (0.1, 0.3, 0.4),
    'ripple': (0.03, 0.25, 0.7), 'presliding': (1e-3, 5e-2, 0.7),
    # Motion and stamps: s, rad, s.
    'lag': (5e-3, 4e-2, 0.8), 'encoder': (1e-5, 1.5e-3, 0.8), 'jitter': (3e-5, 2e-3, 0.7),
    'gaps': (0.3, 1.0, 0.1), 'approach': (0.5, 20.0, 0.6),
    # Wrist sensor: shares, rad, share, share, N·m/rad, N in 5 min, s.
    'F/T gain': (2.5e-3, 1e-2, 0.7), 'F/T rotation': (1e-3, 1e-2, 0.6),
    'F/T cross-talk': (1e-3, 1e-2, 0.7), 'F/T hysteresis': (5e-4, 5e-3, 0.6),
    'F/T cable': (0.025, 0.1, 0.5), 'F/T drift': (0.3, 1.5, 0.7), 'F/T warming': (1.5, 4.0, 0.1),
    'F/T delay': (1e-3, 2.5e-2, 0.8),
}
"""Smallest and largest strength of each effect, log-uniform, and how often it is present."""


def drawn_effects(seed: int) -> dict[str, float]:
    """Return the strengths of the effects of a cell; one cell in ten has none."""
    if np.random.default_rng([seed, 1]).random() < 0.1:
        return {}
    found = {}
    for name, (low, high, chance) in EFFECTS.items():
        generator = _generator(seed, name)
        strength = float(np.exp(generator.uniform(np.log(low), np.log(high))))
        if generator.random() < chance:
            found[name] = strength
    return found


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(name.encode())])


@dataclass(frozen=True)
class Recorded:
    """What driver and sensor publish.

    Attributes:
        time: Stamps of the joint states, shape (k,) [s].
        position: Shape (k, n) [rad].
        velocity: Shape (k, n) [rad/s].
        effort: Shape (k, n) [N·m, or A].
        wrench_time: Stamps of the wrenches, shape (m,) [s].
        wrench: What hangs on the sensor exerts on it, shape (m, 6) [N, N·m].

    """

    time: Array
    position: Array
    velocity: Array
    effort: Array
    wrench_time: Array
    wrench: Array


class World:
    """One real arm: its links, drives, gears, sensors, and its clock.

    Attributes:
        arm: Its chain.
        effects: Strengths of the effects.
        links: Pseudo-inertia of what each joint carries without load, shape (n, 4, 4).
        beyond: That of the links distal to the sensor, in the last joint's frame, shape (4, 4).
        excess: The same minus that of the URDF, shape (4, 4).
        rotor: Reflected inertia of the rotors in the efforts, shape (n,) [kg·m²].
        gain: Reported over true torque at small torques, shape (n,).
        constant: Torque per reported effort by the maker, shape (n,) [1 or N·m/A].
        offset: Offset of the efforts of cold drives, shape (n,) [N·m].
        offsets: The same in the last motion, shape (k, n).
        slope: The same as ``gain`` over the torques of the last motion, shape (n,).
        factor: Friction over its nominal value in the last motion, shape (k, n), at ``moments``.
        clock: Time [s].

    """

    def __init__(self, arm: Arm, seed: int, effects: Mapping[str, float]) -> None:
        """Draw the arm.

        Args:
            arm: Its chain by the URDF.
            seed: Seed of the draw.
            effects: Strengths of the effects that are present.

        """
        self.arm, self.seed, self.effects, self.clock = arm, seed, dict(effects), 100.0
        n = len(arm.joints)
        self._runs = 0
        self.beyond, self.excess = np.zeros((4, 4)), np.zeros((4, 4))
        self.links, nominal = np.zeros((n, 4, 4)), arm.links
        deform, every = self._drawn('links off'), self._drawn('links off together')
        sign = 1.0 + self.effects.get('links off together', 0.0) * every.choice((-1.0, 1.0))
        share = self.effects.get('links off', 0.0)
        for at, one, distal in arm.bodies:
            map_ = np.eye(4)
            extent = np.sqrt(max(np.trace(one[:3, :3]) / max(one[3, 3], 1e-9) - (
                one[:3, 3] @ one[:3, 3]) / max(one[3, 3], 1e-9) ** 2, 0.0))
            map_[:3, 3] = 0.7 * share * extent * deform.normal(size=3)
            map_[:3, :3] += 0.5 * share * deform.normal(size=(3, 3))
            real = sign * (1.0 + share * deform.normal()) * map_ @ one @ map_.T
            self.links[at] += real
            if distal:
                self.beyond += real
                self.excess += real - one
        # What the joints are built for: largest torques at rest with the rated load, their own and
        # those of the joints behind them.
        nominal[-1] += arm.tool @ body(
            DATA[arm.name].payload, np.array([0.0, 0.0, 0.1]), np.zeros((3, 3))) @ arm.tool.T
        plain = np.random.default_rng([seed, 2])
        postures = plain.uniform(arm.lower, arm.upper, (300, n))
        still, down = np.zeros_like(postures), np.array([0.0, 0.0, -GRAVITY])
        weight = np.abs(torques(arm, nominal, postures, still, still, down)).max(axis=0)
        self.largest = float(weight.max())
        self.typical = np.maximum(np.maximum.accumulate(weight[::-1])[::-1], 0.05 * self.largest)
        inertia = np.array([torques(
            arm, nominal, postures[:40], still[:40], still[:40] + unit, np.zeros(3))[:, i].mean()
            for i, unit in enumerate(np.eye(n))])
        self.inertia = np.maximum(inertia, 0.02 * inertia.max())
        self._draw_drives(plain, n)
        self._draw_friction(plain, n)
        self._draw_sensor(plain)

    def _drawn(self, name: str) -> np.random.Generator:
        return _generator(self.seed + 1_000_000, name)

    def _spread(self, name: str, n: int, low: float = 0.5, high: float = 1.5) -> Array:
        """Return an effect's strength for each joint, zero if it is absent."""
        return self.effects.get(name, 0.0) * self._drawn(name).uniform(low, high, n)

    def _draw_drives(self, plain: np.random.Generator, n: int) -> None:
        tilt = max(self.effects.get('tilt', 0.0), self.effects.get('large tilt', 0.0))
        to = self._drawn('tilt').uniform(0.0, 2.0 * np.pi)
        self.gravity = rotation(tilt * np.array([np.cos(to), np.sin(to), 0.0])).T @ np.array(
            [0.0, 0.0, -GRAVITY])
        self.compliance = (self._spread('sag', n) / self.typical)[:, None] * self.arm.axis**2 + (
            self._spread('bending', n) / self.typical)[:, None] * (1.0 - self.arm.axis**2)
        self.zeros = self.effects.get('zeros', 0.0) * self._drawn('zeros').normal(size=n)
        self.rotor = self._spread('rotor', n) * self.inertia
        signs = self._drawn('signs').choice((-1.0, 1.0), n)
        self.gain = 1.0 + signs * self._spread('gains', n, 1.0, 1.0) + self.effects.get(
            'small gains', 0.0) * self._drawn('small gains').normal(size=n)
        self.constant = np.ones(n) if 'current' not in self.effects else self._spread('current', n)
        self.slope, self.factor = self.gain.copy(), np.ones((1, n))
        self.noise = self.typical * plain.uniform(0.001, 0.008)

    def _draw_friction(self, plain: np.random.Generator, n: int) -> None:
        # From torque sensors behind the gears to stiff gears; more for their size in small drives.
        level = np.exp(plain.uniform(np.log(0.004), np.log(0.08)))
        coulomb = level * (self.typical * plain.uniform(0.5, 1.5, n) + 0.1 * self.largest)
        sides = 1.0 + plain.uniform(-0.1, 0.1, n) * np.array([[1.0], [-1.0]])
        self.coulomb = coulomb * sides
        self.offset = coulomb * self._spread('offsets', n, -1.0, 1.0)
        # Zeros of torque and current sensors move as the drives warm up.
        self.drift = self.typical * self._spread('offset drift', n, -1.0, 1.0)
        self.viscous = coulomb * plain.uniform(0.5, 1.5, n) * sides[::-1]
        rise = self._drawn('Stribeck')
        self.breakaway = rise.uniform(0.1, 1.0, n) * ('Stribeck' in self.effects)
        self.bend_speed = np.maximum(self._spread('Stribeck', n), 0.01)
        self.bend_power = rise.uniform(0.7, 2.0, n)
        self.load = self._spread('load friction', n)
        self.driven = self._spread('driven friction', n, -1.0, 1.0)
        self.exponent = np.clip(self.effects.get('sublinear', 1.0) + self._drawn(
            'sublinear').uniform(-0.1, 0.1, n) * ('sublinear' in self.effects), 0.3, 1.0)
        sign = self._drawn('sign of warming').choice((-1.0, -1.0, 1.0))
        self.warming, self.pause = sign * self._spread('warming', n), self._spread('pause', n)
        self.warm_time = self._drawn('warming').uniform(60.0, 400.0)
        self.cold = self._spread('cold start', n)
        self.warmth, self.rested, self.cooled = np.zeros(n), np.ones(n), np.zeros(n)
        slide = self._spread('presliding', n) if 'presliding' in self.effects else np.full(n, 5e-4)
        # The larger part of the bristles yields over a third, the rest over a thirtieth of it.
        self.slide = np.stack((slide / 3.0, slide / 30.0))
        ripple = self._drawn('ripple')
        # Cycles per turn: eccentricity, teeth in mesh, poles of the motor.
        self.cycles = np.stack((ripple.integers(1, 4, n), ripple.integers(8, 60, n),
                                ripple.integers(80, 300, n)))
        self.phase = ripple.uniform(0.0, 2.0 * np.pi, self.cycles.shape)
        self.ripple = self._spread('ripple', n) * coulomb * np.array([[0.25], [0.35], [0.5]])

    def _draw_sensor(self, plain: np.random.Generator) -> None:
        generator = self._drawn('F/T')
        matrix = np.eye(6) + self.effects.get('F/T cross-talk', 0.0) * generator.normal(
            size=(6, 6)) * np.repeat([1.0, 10.0], 3) * np.repeat([1.0, 0.1], 3)[:, None]
        matrix *= 1.0 + self.effects.get('F/T gain', 0.0) * generator.choice((-1.0, 1.0))
        turn = rotation(self.effects.get('F/T rotation', 0.0) * generator.normal(size=3))
        self.calibration = matrix @ np.kron(np.eye(2), turn.T)
        self.bias = plain.uniform(-1.0, 1.0, 6) * np.repeat([15.0, 0.8], 3)
        self.wrench_noise = np.repeat([plain.uniform(0.05, 0.4), plain.uniform(0.002, 0.015)], 3)
        self.wrench_rate = float(plain.choice([100.0, 125.0, 250.0, 500.0, 800.0]))

    # --------------------------------------------------------------------------- friction

    def dry(self, speed: Array, load: Array) -> Array:
        """Return the dry friction of sliding joints over its nominal factor, shape (k, n) [N·m].

        Args:
            speed: Joint speeds, whose sign counts, shape (k, n) [rad/s].
            load: Torques that the gears transmit, shape (k, n) [N·m].

        """
        level = np.where(speed < 0.0, self.coulomb[1], self.coulomb[0])
        rise = self.breakaway * np.exp(-(np.abs(speed) / self.bend_speed) ** self.bend_power)
        return level * (1.0 + rise) + self.load * np.abs(load) * (
            1.0 + self.driven * np.sign(speed * load))

    def sliding(self, speed: Array, load: Array) -> Array:
        """Return the friction of sliding joints, shape (k, n) [N·m]; arguments as of `dry`."""
        side = np.where(speed < 0.0, self.viscous[1], self.viscous[0])
        return np.sign(speed) * (self.dry(speed, load) + side * np.abs(speed) ** self.exponent)

    def friction(
        self, joint: int, speed: Array, row: int | None = None, *, reported: bool = True
    ) -> Array:
        """Return a joint's friction, mean over the loads of the last motion.

        Args:
            joint: Number of the joint.
            speed: Speeds, shape (m,) [rad/s].
            row: Instant of the motion whose friction is meant, -1 for the last one in which the
                joint moved; None for the mean of all.
            reported: Whether it is that of the reported efforts; otherwise of those over
                ``moving_gain``, which contains what driven gears lose less.

        """
        rows = np.flatnonzero(np.abs(self.speed[:, joint]) > 1e-3)
        at = rows if row is None else rows[-1] if row < 0 else row
        factor, offset = (one[at, joint].mean() for one in (self.factor, self.offsets))
        load = self.carried[rows[::max(1, len(rows) // 400)], joint]
        speeds, loads = np.zeros((2, len(speed) * len(load), self.carried.shape[1]))
        speeds[:, joint] = np.repeat(speed, len(load))
        loads[:, joint] = np.tile(load, len(speed))
        mean = self.sliding(speeds, loads)[:, joint].reshape(len(speed), -1).mean(axis=1)
        if not reported:
            mean = mean - self.load[joint] * self.driven[joint] * load.mean()
        torque = self.slope[joint] * mean * factor + offset
        return np.asarray(torque / (1.0 if reported else self.moving_gain[joint]))

    @property
    def moving_gain(self) -> Array:
        """Reported over transmitted torque of moving joints, over the last motion, shape (n,).

        What gears lose less when they are driven, load |τ| sign(v) driven sign(τ v), is
        proportional to the torque τ.
        """
        return self.slope * (1.0 + self.load * self.driven * self.factor.mean(axis=0))

    def _slow_states(self, v: Array, step: float) -> Iterable[Array]:
        """Follow warmth and rest through a motion; return factors of friction, and offsets."""
        stride = max(1, round(_SLOW / step))
        found = np.empty((2, len(v[::stride]), v.shape[1]))
        for row, moves in enumerate(np.abs(v[::stride]) > 2e-3):
            self.warmth += (moves - self.warmth) * stride * step / self.warm_time
            self.rested += np.where(moves, -self.rested / 6.0, (1.0 - self.rested) / 15.0) * (
                stride * step)
            self.cooled -= moves * self.cooled * stride * step / self.warm_time
            found[:, row] = (1.0 + self.warming * self.warmth) * (
                1.0 + self.pause * self.rested) * (1.0 + self.cold * self.cooled), (
                    self.offset + self.drift * self.warmth)
        at = np.arange(len(v)) / stride
        return (_at(at, np.arange(1.0 * found.shape[1]), one) for one in found)

    def _bristles(self, travel: Array) -> Array:
        """Return the share of dry friction that is built up, from -1 to 1, shape (k, n)."""
        sign = np.sign(travel)
        left = np.exp(-np.abs(travel)[:, None] / self.slide)
        gone = (1.0 - left) * sign[:, None]
        state, found = np.zeros_like(self.slide), np.empty((len(travel), 2, travel.shape[1]))
        for row in range(len(travel)):
            state = state * left[row] + gone[row]
            found[row] = state
        return 0.6 * found[:, 0] + 0.4 * found[:, 1]

    # -------------------------------------------------------------------------- recording

    def run(
        self, wanted: Array, step: float, rate: float, load: Array | None = None,
        pause: float = 60.0,
    ) -> Recorded:
        """Follow a motion and record it.

        Args:
            wanted: Joint angles that the controller is given, from rest to rest, shape (k, n)
                [rad].
            step: Time between them [s].
            rate: Rate of the joint states [Hz].
            load: Pseudo-inertia of the load in the tool frame, shape (4, 4); None for none.
            pause: Rest since the last motion [s].

        """
        arm, tool = self.arm, self.arm.tool
        self._runs += 1
        self.warmth *= np.exp(-pause / self.warm_time)
        self.rested += (1.0 - self.rested) * (1.0 - np.exp(-pause / 15.0))
        self.cooled += (1.0 - self.cooled) * (1.0 - np.exp(-pause / 1800.0))
        generator = np.random.default_rng([self.seed, 3, self._runs])
        q, v, a = self._tracked(wanted, step)
        links, beyond = self.links.copy(), self.beyond
        if load is not None:
            links[-1] += tool @ load @ tool.T
            beyond = beyond + tool @ load @ tool.T
        about, wrench = moments(arm, links, q, v, a, self.gravity, beyond=beyond)
        if self.compliance.any():
            # Joints and links yield as springs, up to their resonance.
            sections = scipy.signal.butter(2, 2.0 * _RESONANCE * step, output='sos')
            bend = -self.compliance * scipy.signal.sosfiltfilt(sections, about, axis=0)
            turning = np.asarray(np.gradient(bend, step, axis=0))
            about, wrench = moments(
                arm, links, q, v, a, self.gravity,
                (bend, turning, np.asarray(np.gradient(turning, step, axis=0))), beyond)
        carried = np.einsum('kni,ni->kn', about, arm.axis)
        self.carried, self.speed = carried, v
        self.factor, self.offsets = self._slow_states(v, step)
        built = self._bristles(np.diff(q, axis=0, prepend=q[:1]))
        slide = self.dry(np.where(v == 0.0, built, v), carried)
        side = np.where(v < 0.0, self.viscous[1], self.viscous[0])
        torque = carried + self.rotor * a + self.factor * (
            built * slide + side * np.sign(v) * np.abs(v) ** self.exponent)
        torque += (self.ripple * np.sin(self.cycles * q[:, None] + self.phase)).sum(axis=1)
        bent = 1.0 + self.effects.get('saturation', 0.0) * (torque / (1.5 * self.typical)) ** 2
        signal, size = self.gain * bent * torque, torque**2 + 1e-12
        self.slope = self.gain * (bent * size).sum(axis=0) / size.sum(axis=0)
        time, seen = self._sampled(len(q), step, rate, generator)
        effort = self._effort(signal + self.offsets, step, time, generator)
        grain, at = self.effects.get('encoder', 1e-6), np.arange(len(q)) * step
        position = _at(time, at, q) + self.zeros
        position = grain * np.round(position / grain)
        speed = _low_passed(np.gradient(position, 1.0 / rate, axis=0), 30.0, 1.0 / rate)
        stamps = self._stamped(time, generator)
        wrench_time, wrench = self._wrenches(q, wrench, step, generator)
        begin, self.clock = self.clock + pause, self.clock + pause + len(q) * step
        return Recorded(begin + stamps[seen], position[seen], speed[seen], effort[seen],
                        begin + wrench_time, wrench)

    def _tracked(self, wanted: Array, step: float) -> tuple[Array, Array, Array]:
        """Return angles, speeds and accelerations of the drives that follow a motion late."""
        lag = max(self.effects.get('lag', 0.0), 4.0 * step)
        stuck = 0.02 * self.effects.get('lag', 0.0) * self._drawn('lag').uniform(
            0.2, 1.0, wanted.shape[1])
        given = wanted - stuck * np.tanh(np.gradient(wanted, step, axis=0) / 0.02)
        start, omega = given[:1], 2.0 / lag
        found = []
        for order in range(3):
            numerator = [omega**2, *[0.0] * order]
            b, a = scipy.signal.bilinear(numerator, [1.0, 2.0 * omega, omega**2], 1.0 / step)
            found.append(scipy.signal.lfilter(b, a, given - start, axis=0))
        return found[0] + start, found[1], found[2]

    def _sampled(
        self, count: int, step: float, rate: float, generator: np.random.Generator
    ) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Return the times of the joint states, and which of them are not lost."""
        time = np.arange(0.0, (count - 1) * step, 1.0 / rate)
        seen = np.ones(len(time), dtype=bool)
        if 'gaps' in self.effects:
            for begin in generator.uniform(0.1, 0.9, 2) * time[-1]:
                seen &= (time < begin) | (time > begin + self.effects['gaps'])
        return time, seen

    def _stamped(self, time: Array, generator: np.random.Generator) -> Array:
        late = self.effects.get('jitter', 0.0) * np.abs(generator.normal(size=len(time)))
        return np.asarray(np.maximum.accumulate(time + late) + 1e-8 * np.arange(len(time)))

    def _effort(
        self, signal: Array, step: float, time: Array, generator: np.random.Generator
    ) -> Array:
        signal = signal + self.noise * generator.normal(size=signal.shape)
        if 'effort filter' in self.effects:
            signal = _low_passed(signal, self.effects['effort filter'], step)
        late = time - self.effects.get('effort delay', 0.0) * self._drawn('effort delay').choice(
            (1.0, 1.0, 1.0, -1.0))
        effort = _at(late, np.arange(len(signal)) * step, signal)
        effort += 0.3 * self.noise * generator.normal(size=effort.shape)
        grain = np.maximum(self.effects.get('effort steps', 0.0), 1e-7) * self.typical
        return np.asarray(grain * np.round(effort / grain) / self.constant)

    def _wrenches(
        self, q: Array, wrench: Array, step: float, generator: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return stamps [s] and readings of the wrist sensor at its own rate."""
        last = q[:, -1] - q[0, -1]
        cable = np.zeros((len(q), 6))
        stiff = self.effects.get('F/T cable', 0.0)
        cable[:, 5] = stiff * last
        cable[:, :3] = 4.0 * stiff * np.stack((np.sin(q[:, -1]), np.cos(q[:, -1]), np.sin(
            q[:, -2])), axis=1)
        at = np.arange(len(q)) * step
        time = np.arange(generator.uniform(0.0, 1.0 / self.wrench_rate), at[-1],
                         1.0 / self.wrench_rate)
        true = _at(time - self.effects.get('F/T delay', 0.0), at, wrench + cable)
        size = np.repeat([np.linalg.norm(part, axis=1).max() + 0.1
                          for part in (wrench[:, :3], wrench[:, 3:])], 3)
        stride = max(1, round(_SLOW * self.wrench_rate))
        moved = np.diff(true[::stride], axis=0, prepend=true[:1]) / (0.3 * size)
        state, followed = np.zeros(6), np.empty_like(moved)
        for row, travel in enumerate(moved):
            state = state * np.exp(-np.abs(travel)) + np.sign(travel) * (
                1.0 - np.exp(-np.abs(travel)))
            followed[row] = state
        lost = self.effects.get('F/T hysteresis', 0.0) * size * _at(time, time[::stride], followed)
        to = generator.normal(size=6) * np.repeat([1.0, 0.04], 3)
        walk = np.cumsum(generator.normal(size=(len(followed), 6)), axis=0) * np.sqrt(
            _SLOW / 300.0) * np.repeat([1.0, 0.04], 3)
        drift = self.effects.get('F/T drift', 0.0) * (
            0.5 * _at(time, time[::stride], walk) + np.outer(time / 300.0, to))
        drift += self.effects.get('F/T warming', 0.0) * np.outer(
            1.0 - np.exp(-time / 150.0), to) / 0.86
        read = (true - lost) @ self.calibration.T + self.bias + drift
        read += self.wrench_noise * generator.normal(size=read.shape)
        return self._stamped(time, generator), read


def _at(wanted: Array, time: npt.NDArray[np.floating[Any]], values: Array) -> Array:
    """Return columns at other times."""
    return np.column_stack([np.interp(wanted, time, column) for column in values.T])


def _low_passed(values: Array, cutoff: float, step: float) -> Array:
    """Return the output of a first-order low-pass, at rest before its first value."""
    share = 1.0 - np.exp(-2.0 * np.pi * cutoff * step)
    return np.asarray(scipy.signal.lfilter(
        [share], [1.0, share - 1.0], values - values[:1], axis=0) + values[:1])
