# SPDX-License-Identifier: Apache-2.0
"""Arm cut at its F/T sensors: sub-chains, and the readings expected without contact.

Each sensor becomes a joint with six degrees of freedom that does not move. One recursive
Newton-Euler pass then returns, besides the joint torques, the wrench that every sensor transmits:
weight and inertia of everything distal to it (Featherstone, Rigid Body Dynamics Algorithms,
2008, section 5.3).

A sub-chain is the part of the arm between a sensor and the next distal ones: one rigid link with
sensors at both ends, several links with joints between them, or the free end with the tool. It is
named after the link that its proximal sensor carries. Wrenches are forces, then moments about the
frame's origin.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import SECOND, to_seconds
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import (
    ArmModel,
    RigidBodyInertia,
    Robot,
    level_axes,
    link_covariance,
    moved_parameters,
    physically_consistent,
)
from robocal_ros.wrench.parameters import CHANNELS, TARE

Motion = tuple[Array, Array, Array]
"""Joint angles [rad], velocities [rad/s] and accelerations [rad/s²], shape (n,) each; of a link
with an IMU specific force [m/s²], angular velocity [rad/s] and angular acceleration [rad/s²] as it
measures them, shape (3,) each."""

_SUFFIX = '__sensor'
# Time for which standard deviations of torques are used for the next instants too [ns].
_FRESH = 10_000_000


@dataclass(frozen=True)
class SensorMount:
    """Mount of an F/T sensor.

    Attributes:
        frame: Frame in which it measures, a frame of the URDF.
        link: First link distal to it; that of ``frame`` if empty.

    """

    frame: str
    link: str = ''

    @property
    def carried(self) -> str:
        """First link distal to the sensor."""
        return self.link or self.frame


class TareReference(NamedTuple):
    """Readings at rest from which biases are computed anew when the load changes.

    Attributes:
        posture: Joint angles, shape (n,) [rad].
        readings: Mean readings, in measurement frames, shape (k, 6) [N, N·m].

    """

    posture: Array
    readings: Array


def bias_names(frames: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the sensors' biases in results, given their measurement frames."""
    return tuple(f'{frame}.{axis}' for frame in frames for axis in CHANNELS)


def tare_of(
    result: CalibrationResult, frames: Sequence[str]
) -> tuple[Array, TareReference | None]:
    """Return biases, shape (k, 6) [N, N·m], and readings of a tare; None if it lacks these.

    Args:
        result: The result.
        frames: The sensors' measurement frames.

    Raises:
        DataError: If it is not a tare, or lacks a sensor.

    """
    result.check_kind(TARE)
    bias = result.values(bias_names(frames)).reshape(-1, 6)
    posture, readings = (np.array(result.settings.get(name, ()), dtype=float)
                         for name in ('posture', 'readings'))
    return bias, TareReference(posture, readings) if (
        posture.size and posture.ndim and readings.shape == bias.shape) else None


class Instant(NamedTuple):
    """One instant of a record, or all of them, along a first axis.

    Attributes:
        stamp: Its stamp [ns].
        posture: Joint angles, shape (n,) [rad].
        readings: Of all sensors, in their measurement frames, shape (k, 6).
        held: As for ``SensedArm.held``, shape (k, 6).
        reasons: Why the reading of each sensor is not usable, empty if it is.
        torque: Drive torques, NaN without efforts, shape (n,) [N·m]; empty if not recorded.

    """

    stamp: Any
    posture: Array
    readings: Array
    held: Array
    reasons: Any
    torque: Array = np.empty(0)


class LinkInstant(NamedTuple):
    """One instant of a link with an IMU, all of them along a first axis, or their mean.

    Attributes:
        stamp: The stamp [ns].
        net: Its net wrench, shape (6,) [N, N·m].
        rate: Its angular velocity, shape (3,) [rad/s].
        regressor: As from ``ImuLink.regressor``, shape (6, 10).

    """

    stamp: Any
    net: Array
    rate: Array
    regressor: Array


class TareRecord:
    """Samples at rest from which a tare is estimated.

    Attributes:
        span: First and last stamp that are recorded [s].
        rows: Instants of the arm.
        links: Instants of links with IMUs, by sub-chain.

    """

    def __init__(self, span: tuple[float, float] = (-np.inf, np.inf)) -> None:
        """Start empty."""
        self.span = span
        self.rows: list[Instant] = []
        self.links: defaultdict[int, list[LinkInstant]] = defaultdict(list)

    def add(self, instant: Instant | LinkInstant, index: int | None = None) -> None:
        """Add an instant if it is within the span, of a sub-chain if its index is given."""
        rows: list[Any] = self.rows if index is None else self.links[index]
        if self.span[0] <= to_seconds(instant.stamp) <= self.span[1]:
            rows.append(instant)

    def clear(self) -> None:
        """Discard all instants."""
        self.rows.clear()
        self.links.clear()

    def drop(self, duration: float) -> None:
        """Discard the first instants, over a time [s]."""
        every: list[list[Any]] = [self.rows, *self.links.values()]
        for rows in every:
            begin = rows[0].stamp if rows else 0
            rows[:] = [row for row in rows if row.stamp - begin >= duration * SECOND]

    @property
    def complete(self) -> bool:
        """True if the first and the last instant of the span were added."""
        return bool(self.rows) and self.span == (
            to_seconds(self.rows[0].stamp), to_seconds(self.rows[-1].stamp))

    @property
    def duration(self) -> float:
        """Time between the first and the last instant [s]."""
        return _duration(self.rows)

    @property
    def link_duration(self) -> float:
        """Shortest time recorded of a link with an IMU, 0 without one [s]."""
        return min(map(_duration, self.links.values()), default=0.0)

    def stacked(self) -> Instant:
        """Return all instants."""
        return Instant(*map(np.array, zip(*self.rows, strict=True)))


def _duration(rows: Sequence[Instant | LinkInstant]) -> float:
    return (rows[-1].stamp - rows[0].stamp) / SECOND if rows else 0.0


@dataclass(frozen=True)
class Chain:
    """Part of the arm between a sensor and the next distal ones.

    Attributes:
        link: Link that the proximal sensor carries; its frame is the sub-chain's.
        proximal: Index of the proximal sensor.
        distal: Indices of the next sensors; none at a free end.
        rigid: Whether no joint moves within it.
        bodies: Joints of the cut model whose bodies it consists of.
        reference: Point in its frame about which moments are compared: its centre of mass if it
            is rigid, else the origin, shape (3,) [m].

    """

    link: str
    proximal: int
    distal: tuple[int, ...]
    rigid: bool
    bodies: frozenset[int]
    reference: Array


def _cut(robot: Robot, mounts: Sequence[SensorMount]) -> str:
    """Insert a floating joint before each carried link, named after it, with a massless parent."""
    tree = ElementTree.fromstring(robot.urdf)
    by_child = {child.get('link', ''): child for child in tree.findall('joint/child')}
    cut = set()
    for mount in mounts:
        link = mount.carried
        on, carried = (robot.model.frames[robot.frame_id(name)] for name in (mount.frame, link))
        if link not in by_child:
            raise ConfigurationError(
                f"'{link}' is not a link that a joint of the robot description carries; "
                f'an F/T sensor carries one of {", ".join(by_child)}.')
        if on.parentJoint != carried.parentJoint:
            joint = robot.model.names[max(on.parentJoint, carried.parentJoint)]
            raise ConfigurationError(
                f"The frame '{mount.frame}' of an F/T sensor and the link '{link}' that "
                f"it carries are separated by the moving joint '{joint}'; expected a constant "
                'transform between them. Correct sensor_frames or sensor_links.')
        if link in cut:
            raise ConfigurationError(
                f"Two F/T sensors carry the link '{link}'; give each sensor its own "
                'link in sensor_frames or sensor_links.')
        cut.add(link)
        by_child[link].set('link', f'{link}__mount')
        ElementTree.SubElement(tree, 'link', name=f'{link}__mount')
        joint = ElementTree.SubElement(tree, 'joint', name=f'{link}{_SUFFIX}', type='floating')
        ElementTree.SubElement(joint, 'parent', link=f'{link}__mount')
        ElementTree.SubElement(joint, 'child', link=link)
    return ElementTree.tostring(tree, encoding='unicode')


class SensedArm:
    """Dynamics of an arm between its F/T sensors.

    Attributes:
        robot: The arm, without load.
        mounts: The sensors, in the order of all arrays, k of them.
        model: Pinocchio model of the arm cut at its sensors, with its load.
        data: Its data.
        torque: Joint torques that the motion last given to ``held`` takes, shape (n,) [N·m].
        described: Dynamic parameters of the b bodies of the cut model, one per joint and one per
            sensor, by the robot description, shape (b, 10).
        urdf: URDF of the cut arm.
        chains: The sub-chains; sub-chain i is distal to sensor i.
        all_distal: By sensor, all sensors distal to it.

    """

    def __init__(self, robot: Robot, mounts: Sequence[SensorMount]) -> None:
        """Cut the arm.

        Args:
            robot: The arm.
            mounts: Its sensors, in any order.

        Raises:
            ConfigurationError: If a frame or link does not fit the robot, or a sensor carries
                nothing.
            ModelError: If Pinocchio does not accept the cut model.

        """
        self.robot = robot
        self.mounts = tuple(mounts)
        robot.check_untied('The observer of wrenches')
        self.urdf = _cut(robot, mounts)
        sensors = [f'{mount.carried}{_SUFFIX}' for mount in mounts]
        self._by_urdf = self._bare = robot.model_of(self.urdf, (*robot.joint_names, *sensors))
        self._joints = [self._bare.getJointId(name) for name in sensors]
        subtrees = [frozenset(self._bare.subtrees[joint]) for joint in self._joints]
        every = self.all_distal = [
            [i for i, tree in enumerate(subtrees) if tree < own] for own in subtrees]
        self._next = [tuple(i for i in beyond if not any(i in every[j] for j in beyond))
                      for beyond in every]
        self._bodies = [own.difference(*(subtrees[d] for d in beyond))
                        for own, beyond in zip(subtrees, self._next, strict=True)]
        zero = np.zeros(robot.n)
        self._to_link = self._placed = np.array([
            robot.transform_frame_to_root(zero, mount.carried).actInv(
                robot.transform_frame_to_root(zero, mount.frame)).toDualActionMatrix()
            for mount in mounts]).reshape(-1, 6, 6)
        self._in_place = bool(np.allclose(self._to_link, np.eye(6), atol=1e-12))
        self.torque = np.zeros(robot.n)
        self._sprung: Robot | None = None
        self.described = np.array([body.toDynamicParameters() for body in self._bare.inertias[1:]])
        self._load(self._bare)
        self._check_carried()

    # --------------------------------------------------------------------- building

    def _check_carried(self) -> None:
        tool = self._bare.frames[self._bare.getFrameId(self.robot.tool_frame)].parentJoint
        for mount, joint in zip(self.mounts, self._joints, strict=True):
            beyond = self._bare.subtrees[joint]
            mass = sum(self._bare.inertias[body].mass for body in beyond)
            if mass <= 0.0 and tool not in beyond:
                raise ConfigurationError(
                    f"Distal to '{mount.carried}' there is neither a link with mass nor the tool "
                    f"frame '{self.robot.tool_frame}', so an F/T sensor there would read "
                    'nothing. Name the first link distal to the sensor in sensor_links.')

    def _load(self, model: pin.Model) -> None:
        self.model = model
        self.data = model.createData()
        # For ``held_many``: pool, and rows of position, velocity, acceleration and effort.
        self._many: tuple[pin.ModelPool, Array, Array, Array, Array] | None = None
        self._q = pin.neutral(model)
        self._v, self._a = np.zeros((2, model.nv))
        joints = [model.getJointId(name) for name in self.robot.joint_names]
        self._q_columns = np.array([model.idx_qs[joint] for joint in joints])
        self._v_columns = np.array([model.idx_vs[joint] for joint in joints])
        self._held = np.array([range(model.idx_vs[joint], model.idx_vs[joint] + 6)
                               for joint in self._joints], dtype=np.intp).reshape(-1, 6)
        self._efforts = np.concatenate((self._v_columns, self._held.ravel()))
        self.chains = tuple(self._chain(i) for i in range(len(self.mounts)))
        self._paths = [(inner, outer, *self._path(inner, outer))
                       for inner, beyond in enumerate(self._next) for outer in beyond]
        # Placements in the root, which Pinocchio updates in place.
        self._places = [self.data.oMi[joint] for joint in self._joints]
        pin.forwardKinematics(model, self.data, self._q)
        # For regressors, which must not change the posture last given to ``held``.
        self._aside = model.createData()

    def cut_links(self) -> list[list[int]]:
        """Return the bodies of each link: that of its joint, then those distal to sensors."""
        links: dict[int, list[int]] = {
            self._bare.getJointId(name): [] for name in self.robot.joint_names}
        for joint, path in enumerate(self._bare.supports):
            carrier = next(filter(links.__contains__, reversed(list(path))), None)
            if carrier is not None:
                links[carrier].append(joint - 1)
        return list(links.values())

    def _path(self, inner: int, outer: int) -> tuple[Array, list[tuple[Array, int, Array]]]:
        """Return how the wrench at one sensor is transformed to a proximal one.

        Returns:
            The constant transform up to the first joint, shape (6, 6), and for each joint, from
            the distal end, the transform after it, its column and its dual motion operator.

        """
        model, names, data = self.model, self.robot.joint_names, self.model.createData()
        pin.forwardKinematics(model, data, self._q)
        before, steps = np.eye(6), list[tuple[Array, int, Array]]()
        for number in model.supports[self._joints[outer]]:
            if number <= self._joints[inner]:
                continue
            before = before @ model.jointPlacements[number].toDualActionMatrix()
            if model.names[number] in names:
                twist = pin.Motion(np.reshape(data.joints[number].S, 6))
                steps.insert(0, (before, names.index(model.names[number]), twist.dualAction))
                before = np.eye(6)
        return before, steps

    def outer_joints(self) -> list[int]:
        """Return the columns of the joints that are not distal to any sensor."""
        return [i for i, name in enumerate(self.robot.joint_names)
                if set(self._joints).isdisjoint(self._bare.supports[self._bare.getJointId(name)])]

    def _chain(self, index: int) -> Chain:
        joint, bodies = self._joints[index], self._bodies[index]
        rigid = bodies == {joint}
        return Chain(self.mounts[index].carried, index, self._next[index], rigid, bodies,
                     frozen(self.model.inertias[joint].lever if rigid else np.zeros(3)))

    def use_links(self, known: Robot) -> None:
        """Use links, springs and gravity of an identified arm; ``carry`` makes them take effect.

        Joint torques do not tell where on a link a difference from the URDF is: it is added
        proximal to the sensors of the link.

        Args:
            known: The arm with identified links.

        """
        self._sprung = known if known.springs[0].any() else None
        self._bare = pin.Model(self._by_urdf)
        self._bare.gravity = known.model.gravity
        for name in self.robot.joint_names:
            joint, own = self._bare.getJointId(name), known.model.getJointId(name)
            parameters = (self._by_urdf.inertias[joint].toDynamicParameters()
                          + known.model.inertias[own].toDynamicParameters()
                          - self.robot.model.inertias[own].toDynamicParameters())
            if parameters[0] != 0.0:
                self._bare.inertias[joint] = pin.Inertia.FromDynamicParameters(parameters)

    def carry(self, payload: RigidBodyInertia | None, frame: str = '') -> None:
        """Replace the load of the arm.

        Args:
            payload: The load, in the coordinates of ``frame``; None for none.
            frame: Frame on which it is mounted; the tool frame if empty.

        """
        model = pin.Model(self._bare)
        if payload is not None:
            body, placement = self.carrier(frame)
            model.appendBodyToJoint(body + 1, payload.to_pinocchio(), placement)
        self._load(model)

    def carrier(self, frame: str = '') -> tuple[int, pin.SE3]:
        """Return the body that carries a frame, and the frame's placement in it; as ``carry``."""
        frame = frame or self.robot.tool_frame
        self.robot.frame_id(frame)
        found = self._bare.frames[self._bare.getFrameId(frame)]
        return int(found.parentJoint) - 1, found.placement

    def calibrate(self, frame: str, matrix: Array) -> bool:
        """Use the calibration matrix of the sensor with a measurement frame, if there is one.

        A sensor reads the matrix times the wrench, plus a bias: biases stay in its own scale.

        Args:
            frame: The measurement frame.
            matrix: Shape (6, 6).

        Returns:
            Whether there is such a sensor.

        """
        found = [index for index, mount in enumerate(self.mounts) if mount.frame == frame]
        if found:
            self._to_link = self._to_link.copy()
            self._to_link[found] = self._placed[found] @ np.linalg.inv(matrix)
            self._in_place = False
        return bool(found)

    # --------------------------------------------------------------------- dynamics

    def in_links(self, readings: Array) -> Array:
        """Transform readings from the sensors' measurement frames to their link frames.

        Args:
            readings: Shape (..., k, 6).

        """
        if self._in_place:
            return readings
        return np.matmul(self._to_link, readings[..., None])[..., 0]

    def noise(self, std: Sequence[Array]) -> Array:
        """Return covariances of independent readings in the links' frames, shape (k, 6, 6).

        Args:
            std: Standard deviations of each sensor's readings, shape (k, 6).

        """
        factor = self._to_link * np.reshape(std, (-1, 1, 6))
        return np.asarray(factor @ factor.transpose(0, 2, 1))

    def in_measurement(self, wrenches: Array) -> Array:
        """Transform wrenches from the sensors' link frames to their measurement frames, (k, 6)."""
        return np.asarray(np.linalg.solve(self._to_link, wrenches[:, :, None])[:, :, 0])

    def held(self, q: Array, v: Array, a: Array) -> Array:
        """Return the wrench that each sensor exerts on its distal side without contact.

        A sensor reads the opposite, so reading + held is due to contacts distal to it.

        Args:
            q: Joint angles, shape (n,) [rad].
            v: Joint velocities, shape (n,) [rad/s].
            a: Joint accelerations, shape (n,) [rad/s²].

        Returns:
            In the links' frames, shape (k, 6) [N, N·m].

        """
        self._move(q, v, a)
        efforts = pin.rnea(self.model, self.data, self._q, self._v, self._a).take(self._efforts)
        pin.updateGlobalPlacements(self.model, self.data)
        self.torque = efforts[:self.robot.n]
        if self._sprung is not None:
            self.torque = self.torque + self._sprung.spring_torque(q)
        return efforts[self.robot.n:].reshape(-1, 6)

    def _move(self, q: Array, v: Array, a: Array) -> None:
        self._q[self._q_columns] = q
        self._v[self._v_columns] = v
        self._a[self._v_columns] = a

    def regressors(self, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
        """Return the regressors of ``held`` and of joint torques in all dynamic parameters.

        Args:
            q: Joint angles, shape (n,) [rad].
            v: Joint velocities, shape (n,) [rad/s].
            a: Joint accelerations, shape (n,) [rad/s²].

        Returns:
            Shapes (k, 6, 10 b) and (n, 10 b), for the b bodies of the cut model.

        """
        self._move(q, v, a)
        found = pin.computeJointTorqueRegressor(self.model, self._aside, self._q, self._v, self._a)
        pin.updateGlobalPlacements(self.model, self._aside)
        return found[self._held], found[self._v_columns]

    def tilted(self, q: Array) -> Array:
        """Return the derivatives of joint torques at rest by the tilt of the base, about two axes.

        Args:
            q: Joint angles, shape (n,) [rad].

        Returns:
            Shape (n, 2) [N·m/rad], zeros without gravity.

        """
        # A copy, because all that is observed is computed with the model.
        model, gravity = pin.Model(self.model), self.model.gravity.linear
        columns = np.zeros((len(q), 2))
        for column, axis in enumerate(level_axes(gravity) if gravity.any() else ()):
            model.gravity.linear = np.cross(axis, gravity)
            columns[:, column] = pin.computeGeneralizedGravity(
                model, self._aside, self._posture(q))[self._v_columns]
        return columns

    def held_many(self, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
        """Return the wrenches of ``held``, and joint torques, for many instants.

        Args:
            q: Joint angles, shape (m, n) [rad].
            v: Joint velocities, shape (m, n) [rad/s].
            a: Joint accelerations, shape (m, n) [rad/s²].

        Returns:
            Wrenches, shape (m, k, 6) [N, N·m], and torques, shape (m, n) [N·m].

        """
        model, count = self.model, len(q)
        if self._many is None or len(self._many[1]) < count:
            # Kept, because fresh memory takes as long as the computation.
            self._many = (pin.ModelPool(model, 1), np.tile(self._q, (count, 1)),
                          *np.zeros((3, count, model.nv)))
        pool = self._many[0]
        position, velocity, acceleration, efforts = (rows[:count] for rows in self._many[1:])
        position[:, self._q_columns] = q
        velocity[:, self._v_columns] = v
        acceleration[:, self._v_columns] = a
        # Twice as fast as with a result of the binding's own.
        pin.rneaInParallel(1, pool, position.T, velocity.T, acceleration.T, efforts.T)
        torque = efforts[:, self._v_columns]
        return efforts[:, self._held], torque if self._sprung is None else (
            torque + self._sprung.spring_torque(q))

    def expected(self, q: Array) -> Array:
        """Return the readings at rest without bias, in measurement frames, shape (k, 6).

        Args:
            q: Joint angles, shape (n,) [rad].

        """
        rest = np.zeros(self.robot.n)
        return self.in_measurement(-self.held(q, rest, rest))

    def between(self, distal: Array) -> Array:
        """Return the external wrench on each sub-chain in the posture last given to ``held``.

        It is the wrench of contacts distal to the proximal sensor, less that of contacts distal
        to the next ones.

        Args:
            distal: Reading + held of each sensor, shape (k, 6) [N, N·m].

        Returns:
            In the sub-chains' frames, about their origins, shape (k, 6) [N, N·m].

        """
        net, places = distal.copy(), self._places
        for inner, outer, _, _ in self._paths:
            net[inner] -= places[inner].actInv(places[outer]).toDualActionMatrix().dot(
                distal[outer])
        return net

    def reasons(self, missing: Sequence[str]) -> list[str]:
        """Return why each sub-chain's wrench is unknown, empty if it is known.

        Args:
            missing: By sensor, why its readings are missing; empty if none are.

        """
        return [next((missing[sensor] for sensor in (chain.proximal, *chain.distal)
                      if missing[sensor]), '') for chain in self.chains]

    def transform(self, inner: int, outer: int, *, aside: bool = False) -> Array:
        """Return the matrix of wrenches from a distal sensor's link to another's, shape (6, 6).

        It is that of the posture last given to ``held``, or to ``regressors`` if ``aside``; within
        a rigid link, of any.
        """
        places = self._aside.oMi if aside else self.data.oMi
        return np.array(places[self._joints[inner]].actInv(
            places[self._joints[outer]]).toDualActionMatrix())

    def between_many(self, q: Array, distal: Array) -> Array:
        """Return the external wrenches of ``between`` for many instants.

        The transform over a joint with motion operator A is I + sin q A + (1 - cos q) A², or
        I + q A for one that slides. Pinocchio's Python binding gives the placements of one
        instant at a time only, at a cost that all else together has in whole arrays.

        Args:
            q: Joint angles, shape (m, n) [rad].
            distal: Reading + held of each sensor, shape (m, k, 6) [N, N·m].

        Returns:
            Shape (m, k, 6) [N, N·m].

        """
        along = np.where(self.robot.prismatic, q, np.sin(q))
        across = 1.0 - np.cos(q)
        net = distal.copy()
        for inner, outer, first, steps in self._paths:
            moved = first @ distal[:, outer].T
            for after, column, operator in steps:
                once = operator @ moved
                moved = after @ (moved + along[:, column] * once
                                 + across[:, column] * (operator @ once))
            net[:, inner] -= moved.T
        return net

    def force_series(self, index: int, readings: Array) -> Array:
        """Return the difference of the sensors' forces on a sub-chain, without inertia and weight.

        Args:
            index: The sub-chain.
            readings: Successive readings in the posture last given, shape (m, k, 6).

        Returns:
            In the sub-chain's frame, shape (m, 3) [N].

        """
        series = readings[:, index, :3] @ self.sensor_rotation(index, index).T
        for outer in self.chains[index].distal:
            series = series - readings[:, outer, :3] @ self.sensor_rotation(index, outer).T
        return series

    def sensor_rotation(self, index: int, sensor: int) -> Array:
        """Return the matrix of readings of force to force on a sub-chain, shape (3, 3).

        Args:
            index: The sub-chain.
            sensor: Its proximal sensor, or one of its distal ones; in the posture last given.

        """
        return self.transform(index, sensor)[:3, :3] @ self._to_link[sensor, :3, :3]

    def inertia(self, q: Array) -> Array:
        """Return the derivatives of joint torques and of ``held`` by joint accelerations.

        Args:
            q: Joint angles, shape (n,) [rad].

        Returns:
            Rows of the torques, then of the wrenches, shape (n + 6 k, n).

        """
        return np.array(pin.crba(self.model, self._aside, self._posture(q))[
            np.ix_(self._efforts, self._v_columns)])

    def _posture(self, q: Array) -> Array:
        """Return the coordinates of the cut model at joint angles."""
        posture = self._q.copy()
        posture[self._q_columns] = q
        return posture

    def effective_mass(
        self, index: int, q: Array, rotors: Array, point: Array, direction: Array
    ) -> float:
        """Return the effective mass of the arm with its load at a point on a link [kg].

        1 / (uᵀ J M⁻¹ Jᵀ u), the mass that a contact along u meets (Khatib, Inertial Properties in
        Robotic Manipulation, Int. J. Robot. Res. 14 (1995) 19, doi 10.1177/027836499501400103).

        Args:
            index: The sub-chain, on whose link the point is.
            q: Joint angles, shape (n,) [rad].
            rotors: Inertias of the drives reflected to the joints, shape (n,) [kg·m²].
            point: In the link's frame, shape (3,) [m].
            direction: In the link's frame, a unit vector, shape (3,).

        """
        mass = self.inertia(q)[:len(q)] + np.diag(rotors)
        jacobian = pin.computeJointJacobian(
            self.model, self._aside, self._posture(q), self._joints[index])[:, self._v_columns]
        row = direction @ (jacobian[:3] - pin.skew(point) @ jacobian[3:])
        mobility = float(row @ np.linalg.solve(mass, row))
        return 1.0 / mobility if mobility > 0.0 else np.inf

    def placement(self, chain: Chain, joint: int) -> pin.SE3:
        """Return a body's placement in a sub-chain's frame, in the posture last given.

        Args:
            chain: The sub-chain.
            joint: One of its bodies.

        """
        return self._places[chain.proximal].actInv(self.data.oMi[joint])

    def frame_in_chain(self, chain: Chain, frame: str) -> pin.SE3:
        """Return the placement of a frame on a sub-chain, in the posture last given.

        Raises:
            ConfigurationError: If the frame is not on the sub-chain.

        """
        found = self.model.frames[self.model.getFrameId(frame)]
        if found.parentJoint not in chain.bodies:
            raise ConfigurationError(f"Frame '{frame}' is not on '{chain.link}'.")
        return self.placement(chain, found.parentJoint) * found.placement

    def chain_of_frame(self, frame: str) -> Chain | None:
        """Return the sub-chain with a frame, None if it is proximal to all sensors."""
        joint = self.model.frames[self.model.getFrameId(frame)].parentJoint
        return next((chain for chain in self.chains if joint in chain.bodies), None)


class ImuLink:
    """Rigid link between sensors, with an IMU.

    The accelerometer measures the specific force a − g at its position; it is transferred to the
    link's origin by α × r + ω × (ω × r). The wrench follows from the Newton-Euler equations.
    """

    def __init__(self, arm: SensedArm, chain: Chain, frame: str) -> None:
        """Place the IMU.

        Args:
            arm: The arm cut at its sensors.
            chain: The sub-chain, which must be rigid.
            frame: The IMU's frame.

        Raises:
            ConfigurationError: If the sub-chain is not rigid or has several distal sensors, or
                the frame is not on it.

        """
        arm.robot.frame_id(frame)
        if not chain.rigid or len(chain.distal) > 1:
            raise ConfigurationError(
                f"There are joints or several sensors distal to '{chain.link}'; kinematics imu "
                'requires one rigid link. Use joint_states there.')
        self._arm = arm
        (self._body,) = chain.bodies
        self._placement = arm.frame_in_chain(chain, frame)

    def inertial(self, regressor: Array) -> Array:
        """Return m (a − g) and the matching moment about the link's origin, shape (6,)."""
        return np.asarray(regressor @ self._arm.model.inertias[self._body].toDynamicParameters())

    def regressor(self, specific: Array, omega: Array, alpha: Array) -> Array:
        """Return the regressor of ``inertial`` in the dynamic parameters, shape (6, 10).

        Args:
            specific: Specific force at the IMU, in its axes, shape (3,) [m/s²].
            omega: Angular velocity, in its axes, shape (3,) [rad/s].
            alpha: Angular acceleration, in its axes, shape (3,) [rad/s²].

        """
        # In axes that move with the IMU, spatial and classical acceleration agree there.
        velocity, acceleration = (self._placement.act(pin.Motion(*parts)) for parts in (
            (np.zeros(3), omega), (specific, alpha)))
        return np.array(pin.bodyRegressor(velocity, acceleration))


class ModelErrors:
    """Errors of an arm's wrenches and torques that errors of its model cause, by the unknowns.

    Wrenches and torques are linear in the dynamic parameters of the bodies. The errors of these
    parameters are linear in p independent unknowns of unit variance: of each body by itself, of
    all bodies together, since a robot description may be too light or too heavy as a whole, and
    of the load. Those of an identified arm are unknowns of its rotors, drive gains and springs,
    too: what is known of links and gains together makes torques as certain as it is. So the error
    of each output is a matrix of shape (..., p), and the product of two such matrices is the
    covariance of these outputs.

    A tare freezes the error of its posture in the biases. Afterwards the difference counts. It
    includes what the distal sensors of a sub-chain have frozen, turned by the joints in between.

    Attributes:
        parameters: Errors of the dynamic parameters of the b bodies of the cut model, in the
            order of its joints, shape (10 b, p).

    """

    def __init__(self, arm: SensedArm, std: float) -> None:
        """Start with the arm by its robot description, without load and tare.

        Args:
            arm: The arm cut at its sensors.
            std: Standard deviation of the masses, as a share of them.

        """
        self._arm, self._std = arm, std
        self._reference: TareReference | None = None
        self._load = np.zeros((10 * len(arm.described), 0))
        self._weighed = True
        self._links_at_rest: Mapping[int, Array] = {}
        self.use_links(None)

    def use_links(self, identified: ArmModel | None) -> None:
        """Use the covariance of an identified arm, or of the links of the robot description."""
        arm, std = self._arm, self._std
        self._drives: tuple[Robot, list[Array]] | None = None
        described = arm.described
        own = scipy.linalg.block_diag(*(
            np.linalg.cholesky(link_covariance(body, std)) if mass > 0.0 < std
            else np.zeros((10, 10)) for mass, body in zip(
                described[:, 0].tolist(), physically_consistent(described), strict=True)))
        shared = std * described.reshape(-1, 1)
        if identified is not None:
            # Known is the whole of a link, not each of the parts into which sensors cut it.
            n, factor = arm.robot.n, np.hstack(identified.factor())
            shared = np.zeros((len(own), factor.shape[1]))
            for index, (whole, *parts) in enumerate(arm.cut_links()):
                own[rows_of(whole)] = 0.0
                shared[rows_of(whole)] = factor[10 * index:10 * index + 10]
                for part in parts:
                    place = arm.data.oMi[whole + 1].actInv(arm.data.oMi[part + 1])
                    own[rows_of(whole)] -= moved_parameters(place) @ own[rows_of(part)]
            # Of rotors, drive gains and springs, beside the links.
            self._drives = identified.robot, np.split(factor[10 * n:], 3)
        self._links = np.column_stack((own, shared))
        self._gather()

    def carry(self, frame: str, deviations: Array, *, weighed: bool) -> None:
        """Replace the errors of the load.

        Args:
            frame: Frame of the load, as for ``SensedArm.carry``.
            deviations: Errors of its dynamic parameters in that frame, shape (10, r).
            weighed: Whether the load was on the arm at the tare.

        """
        body, placement = self._arm.carrier(frame)
        self._load = np.zeros((len(self._links), deviations.shape[1]))
        self._load[rows_of(body)] = moved_parameters(placement) @ deviations
        self._weighed = weighed
        self._gather()

    def tare(self, reference: TareReference | None, links: Mapping[int, Array]) -> None:
        """Freeze the errors of a tare.

        Args:
            reference: Its posture; None without one, or if it is not known.
            links: Regressors of the links with IMUs that were tared as a whole, by sub-chain, as
                from ``ImuLink.regressor``.

        """
        self._reference, self._links_at_rest, self._weighed = reference, links, True
        self._gather()

    def _gather(self) -> None:
        """Combine the unknowns, and compute what the tare froze."""
        self.parameters = np.column_stack((self._links, self._load))
        self._then = self.parameters.copy()
        if not self._weighed:
            self._then[:, self._links.shape[1]:] = 0.0
        self._at_rest = np.zeros((len(self._arm.mounts), 6, len(self._then)))
        if self._reference is not None:
            rest = np.zeros_like(self._reference.posture)
            self._at_rest, _ = self._arm.regressors(self._reference.posture, rest, rest)
        self._frozen = np.asarray(self._at_rest @ self._then)
        self._dynamic = np.concatenate([
            body.toDynamicParameters() for body in self._arm.model.inertias.tolist()[1:]])
        self._torque_std: tuple[int, Array] = -_FRESH, np.zeros(0)

    def outputs(self, motion: Motion) -> tuple[Array, Array]:
        """Return the errors of held wrenches since the tare, and of joint torques.

        Returns:
            Shapes (k, 6, p) [N, N·m] and (n, p) [N·m].

        """
        held, torques = self._arm.regressors(*motion)
        return held @ self.parameters - self._frozen, self._of_torques(motion, torques)

    def _of_torques(self, motion: Motion, regressor: Array) -> Array:
        """Return the errors of joint torques, given their regressor, shape (n, p) [N·m]."""
        errors = np.asarray(regressor @ self.parameters)
        if self._drives is not None:
            (q, _, a), (robot, (rotors, gains, springs)) = motion, self._drives
            torque, end = regressor @ self._dynamic + robot.spring_torque(q), self._links.shape[1]
            errors[:, end - rotors.shape[1]:end] += a[:, None] * rotors + (
                torque[:, None] * gains + (q - robot.springs[1])[:, None] * springs)
        return errors

    def torque_std(self, stamp: int, motion: Motion) -> Array:
        """Return the standard deviations of joint torques at a stamp [ns], shape (n,) [N·m].

        It may be one computed just before.
        """
        if not 0 <= stamp - self._torque_std[0] < _FRESH:
            self._torque_std = stamp, np.linalg.norm(
                self._of_torques(motion, self._arm.regressors(*motion)[1]), axis=1)
        return self._torque_std[1]

    def link(self, index: int, motion: Motion) -> Array:
        """Return the errors of the wrench on a sub-chain, in its frame, shape (6, p)."""
        now = self._net(index, self._arm.regressors(*motion)[0])
        return now @ self.parameters - self._net(index, self._frozen)

    def by_acceleration(self, index: int, q: Array, errors: Array) -> Array:
        """Return the errors of the wrench on a sub-chain by those of accelerations, shape (6, m).

        Args:
            index: The sub-chain.
            q: Joint angles, those last given to ``link``, shape (n,) [rad].
            errors: Errors of the accelerations, shape (n, m) [rad/s²].

        """
        held = self._arm.inertia(q)[len(q):].reshape(-1, 6, len(q))
        return self._net(index, held) @ errors

    def _net(self, index: int, held: Array) -> Array:
        """Return what is held on a sub-chain of what all sensors hold, shape (6, ...)."""
        net = held[index]
        for outer in self._arm.chains[index].distal:
            net = net - self._arm.transform(index, outer, aside=True) @ held[outer]
        return np.asarray(net)

    def rigid(self, index: int, regressor: Array) -> Array:
        """Return the errors of the wrench on a link with an IMU, in its frame, shape (6, p).

        Args:
            index: The sub-chain.
            regressor: As from ``ImuLink.regressor``, shape (6, 10).

        """
        (joint,) = self._arm.chains[index].bodies
        rows = rows_of(joint - 1)
        then = self._links_at_rest.get(index, self._at_rest[index][:, rows])
        return np.asarray(regressor @ self.parameters[rows] - then @ self._then[rows])


def rows_of(body: int) -> slice:
    """Return the rows of a body's dynamic parameters."""
    return slice(10 * body, 10 * body + 10)
