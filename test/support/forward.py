# SPDX-License-Identifier: Apache-2.0
"""Measurements of an arm with a payload, independent of the estimators.

Nothing here uses the code under test: the model is Pinocchio's of the original URDF (so
continuous joints have two coordinates), torques come from recursive Newton-Euler with the
payload's inertia added to its carrier, profiles from the formula of a trapezoidal speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

import numpy as np
import pinocchio as pin
from scipy.optimize import least_squares

RATE = 500.0


@dataclass(frozen=True)
class Tool:
    """A payload: mass, centre of mass in the tool frame, inertia about it."""

    mass: float
    com: np.ndarray
    inertia: np.ndarray = field(default_factory=lambda: np.diag([3e-3, 4e-3, 2e-3]))


def random_tool(generator: np.random.Generator) -> Tool:
    """Draw a tool of 1 to 3 kg with its centre of mass up to 0.15 m from the flange."""
    direction = generator.normal(size=3)
    direction *= generator.uniform(0.02, 0.15) / np.linalg.norm(direction)
    return Tool(generator.uniform(1.0, 3.0), direction)


class Reference:
    """Kinematics and dynamics of an arm by Pinocchio alone."""

    def __init__(
        self, urdf: str, tool: str, gravity: Sequence[float], payload: Tool | None = None
    ) -> None:
        full = pin.buildModelFromXML(urdf)
        chain = []
        joint = full.frames[full.getFrameId(tool)].parentJoint
        while joint:
            chain.append(joint)
            joint = full.parents[joint]
        locked = [j for j in range(1, full.njoints) if j not in chain]
        self.model = pin.buildReducedModel(full, locked, pin.neutral(full))
        self.model.gravity.linear = np.array(gravity)
        self.gravity = np.array(gravity)
        self.tool = self.model.getFrameId(tool)
        self.n = self.model.nv
        self._places = [(joint.idx_v, joint.idx_q, joint.nq) for joint in self.model.joints[1:]]
        if payload is not None:
            frame = self.model.frames[self.tool]
            body = pin.Inertia(payload.mass, payload.com, payload.inertia)
            total = self.model.inertias[frame.parentJoint] + frame.placement.act(body)
            self.model.inertias[frame.parentJoint] = total
        self.data = self.model.createData()
        self._axes = [np.ravel(joint.S)[3:] for joint in self.data.joints[1:]]

    def configuration(self, angles: np.ndarray) -> np.ndarray:
        """Return Pinocchio's coordinates of joint angles, shape (…, n)."""
        q = np.empty((*angles.shape[:-1], self.model.nq))
        for at, into, count in self._places:
            angle = angles[..., at]
            if count == 1:
                q[..., into] = angle
            else:
                q[..., into], q[..., into + 1] = np.cos(angle), np.sin(angle)
        return q

    def torque(
        self, angles: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray
    ) -> np.ndarray:
        """Return the joint torques of every row of a motion, shape (k, n)."""
        placed = self.configuration(np.asarray(angles))
        return np.array([pin.rnea(self.model, self.data, q, v, a)
                         for q, v, a in zip(placed, velocity, acceleration, strict=True)])

    def placement(self, angles: np.ndarray, frame: str) -> pin.SE3:
        """Return the placement of a frame in the root frame."""
        pin.framesForwardKinematics(self.model, self.data, self.configuration(angles))
        return self.data.oMf[self.model.getFrameId(frame)].copy()

    def axis(self, angles: np.ndarray, joint: int) -> np.ndarray:
        """Return a joint's axis in the root frame, from its own motion subspace."""
        return self.axes(angles)[joint]

    def axes(self, angles: np.ndarray) -> np.ndarray:
        """Return the axes of all joints in the root frame, shape (n, 3)."""
        pin.forwardKinematics(self.model, self.data, self.configuration(angles))
        return np.array([placed.rotation @ axis for placed, axis in zip(
            self.data.oMi[1:], self._axes, strict=True)])


def sensed_wrench(
    urdf: str, sensor: str, mount: str, motion: tuple[np.ndarray, np.ndarray, np.ndarray],
    gravity: Sequence[float], tool: tuple[str, Tool] | None = None, end: str = '',
) -> np.ndarray:
    """Return what a sensor reads without noise and bias, in its own frame, shape (k, 6).

    Its fixed joint is made one that turns and rests, whose wrench Newton-Euler's recursion has.

    Args:
        urdf: The description.
        sensor: Frame of the sensor.
        mount: The fixed joint that carries it.
        motion: Position, velocity and acceleration of all other joints, shape (k, n) each.
        gravity: Gravity in the root frame.
        tool: Frame of a payload that the sensor carries, and the payload.
        end: Frame at the end of the arm, that of the sensor by default.

    """
    tree = ElementTree.fromstring(urdf)
    joint = tree.find(f"joint[@name='{mount}']")
    joint.set('type', 'revolute')
    for axis in joint.findall('axis'):
        joint.remove(axis)
    ElementTree.SubElement(joint, 'axis', xyz='0 0 1')
    ElementTree.SubElement(joint, 'limit', lower='-1', upper='1', effort='1', velocity='1')
    cut = Reference(ElementTree.tostring(tree, 'unicode'), end or sensor, gravity)
    model, data = cut.model, cut.data
    index = model.getJointId(mount)
    if tool is not None:
        frame, body = tool
        # A tool frame beside the sensor's does not move against it.
        carrier = max(index, model.frames[model.getFrameId(frame)].parentJoint)
        placed = cut.placement(np.zeros(cut.n), frame)
        model.inertias[carrier] += data.oMi[carrier].actInv(placed).act(
            pin.Inertia(body.mass, body.com, body.inertia))
    position, velocity, acceleration = (
        np.insert(rows, model.joints[index].idx_v, 0.0, axis=1) for rows in motion)
    readings = []
    for row in zip(cut.configuration(position), velocity, acceleration, strict=True):
        pin.rnea(model, data, *row)
        # Pinocchio has the wrench that the parent exerts on the child.
        readings.append(-data.f[index].vector)
    return np.array(readings)


def horizontal_posture(
    arm: Reference, low: np.ndarray, high: np.ndarray, seed: int = 0, second: int = -2
) -> np.ndarray:
    """Find a posture in which the last axis and another one are horizontal."""
    generator = np.random.default_rng(seed)
    up = arm.gravity / np.linalg.norm(arm.gravity)
    low, high = low + 0.15, high - 0.15
    joints = (arm.n - 1, (arm.n + second) % arm.n)
    def tilts(q: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.concatenate((arm.axes(q)[list(joints)] @ up, 1e-4 * (q - start)))

    def slopes(q: np.ndarray, _: np.ndarray) -> np.ndarray:
        """An axis turns about those of the joints before it."""
        axes = arm.axes(q)
        turning = [np.where(np.arange(arm.n) < j, np.cross(axes, axes[j]) @ up, 0.0)
                   for j in joints]
        return np.vstack((turning, 1e-4 * np.eye(arm.n)))

    for _ in range(200):
        start = generator.uniform(low, high)
        found = least_squares(tilts, start, slopes, bounds=(low, high), ftol=1e-5, xtol=1e-5,
                              args=(start,)).x
        # Room for the sweeps on both sides of the second joint.
        room = min(found[joints[1]] - low[joints[1]], high[joints[1]] - found[joints[1]])
        if max(abs(arm.axis(found, j) @ up) for j in joints) < 1e-3 and room > 1.2:
            found[-1] = np.clip(found[-1], low[-1] + 1.6, high[-1] - 1.6)
            return found
    raise RuntimeError('no posture with two horizontal axes')


def trapezoid(
    start: np.ndarray, goal: np.ndarray, speed: float, acceleration: float, rate: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions, velocities and accelerations of a line in joint space, LSPB profile."""
    span = np.abs(goal - start).max()
    direction = (goal - start) / span
    blend = speed / acceleration
    total = span / speed + blend
    t = np.arange(0.0, total, 1.0 / rate)
    rise, fall = t < blend, t > total - blend
    way = speed * (t - 0.5 * blend)
    way = np.where(rise, 0.5 * acceleration * t**2, way)
    way = np.where(fall, span - 0.5 * acceleration * (total - t)**2, way)
    rate_of_way = np.where(rise, acceleration * t, np.where(
        fall, acceleration * (total - t), speed))
    change = np.where(rise, acceleration, np.where(fall, -acceleration, 0.0))
    return (start + np.outer(way, direction), np.outer(rate_of_way, direction),
            np.outer(change, direction))


@dataclass(frozen=True)
class SweepPlan:
    """A sweep of one joint in both directions about a posture."""

    joint: int
    posture: np.ndarray
    half: float
    both: bool = True


def procedure(
    posture: np.ndarray, low: np.ndarray, high: np.ndarray, second: int = -2,
    held_out: bool = True,
) -> list[SweepPlan]:
    """Return the sweeps of the two-plane method about a posture: fitted, then held out."""
    n = len(posture)
    last, other = n - 1, (n + second) % n

    def plan(joint: int, about: np.ndarray, half: float) -> SweepPlan:
        room = min(about[joint] - low[joint], high[joint] - about[joint]) - 0.02
        return SweepPlan(joint, about, min(half, room))

    sweeps = [plan(last, posture, np.radians(90.0)), plan(other, posture, np.radians(80.0))]
    if held_out:
        for moving, away in ((last, other), (other, last)):
            about = posture.copy()
            about[away] += 0.6
            sweeps.append(plan(moving, about, np.radians(45.0)))
    return sweeps


@dataclass(frozen=True)
class Motion:
    """Evenly sampled motion; ``window`` numbers the parts with constant speed."""

    time: np.ndarray
    position: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray
    window: np.ndarray


def tour(
    start: np.ndarray, ways: Sequence[tuple[np.ndarray, float, int]], acceleration: float,
    rate: float, rest: float = 0.3,
) -> Motion:
    """Rest, then go to a posture at a speed, again and again; each way has a number, or 0."""
    pieces, windows, here = [], [], start
    for goal, speed, number in ways:
        still = np.zeros((int(rest * rate), len(here)))
        pieces.append((still + here, still, still))
        windows.append(np.zeros(len(still), int))
        span = np.abs(goal - here).max()
        if span > 1e-9:
            # A path too short for its speed gets a triangular profile.
            way = trapezoid(here, goal, min(speed, np.sqrt(span * acceleration)), acceleration,
                            rate)
            pieces.append(way)
            windows.append(np.where(np.abs(way[2]).max(axis=1) == 0.0, number, 0))
        here = goal
    position, velocity, change = (np.vstack(column) for column in zip(*pieces, strict=True))
    return Motion(np.arange(len(position)) / rate, position, velocity, change,
                  np.concatenate(windows))


def run(
    start: np.ndarray, sweeps: Sequence[SweepPlan], speed: float = 0.35, acceleration: float = 1.5,
    rate: float = RATE, rest: float = 0.3,
) -> Motion:
    """Move to each sweep, sweep in both directions, and rest in between."""
    ways, here, count = [], start, 0
    for sweep in sweeps:
        low, high = sweep.posture.copy(), sweep.posture.copy()
        low[sweep.joint] -= sweep.half
        high[sweep.joint] += sweep.half
        for goal, cruise in ((low, False), (high, True), (low, True))[:2 + sweep.both]:
            count += cruise
            fast = 0.9 * np.sqrt(np.abs(goal - here).max() * acceleration)
            ways.append((goal, min(speed, fast), count * cruise))
            here = goal
    return tour(start, ways, acceleration, rate, rest)


def coulomb(velocity: np.ndarray, forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Return friction that is constant in each direction, and zero at rest."""
    moving = np.abs(velocity) > 1e-6
    return np.where(moving, np.where(velocity > 0.0, forward, -backward), 0.0)


def friction_of(n: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw friction levels that differ by a tenth between the directions."""
    forward = generator.uniform(0.5, 2.0, n)
    return forward, 1.1 * forward


@dataclass(frozen=True)
class Noise:
    """Noise of the reference cell, without its ripple."""

    quantisation: float = 2e-5
    effort: float = 0.1
    velocity: float = 1e-3


def measured(
    motion: Motion, torque: np.ndarray, noise: Noise, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return position, velocity and effort as the sensors give them."""
    position = motion.position
    if noise.quantisation > 0.0:
        position = np.round(position / noise.quantisation) * noise.quantisation
    return (position,
            motion.velocity + noise.velocity * generator.normal(size=position.shape),
            torque + noise.effort * generator.normal(size=position.shape))
