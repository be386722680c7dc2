# SPDX-License-Identifier: Apache-2.0
"""External wrenches and contacts from samples, at every instant.

All sub-chains whose motion comes from joint states are computed together, at the instants of
the joint states. A link with an IMU is computed on its own, at the instants of its proximal
sensor, and needs no joint states. In both cases readings are interpolated to the instant.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from robocal_ros.arrays import Array, Flags, frozen
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import SECOND, Stamps, to_seconds
from robocal_ros.parameters import named
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import (
    ArmModel,
    RigidBodyInertia,
    Robot,
    SteadyFriction,
    TorqueZero,
    alternative_loads,
    arm_zero,
    calibration_matrix,
    carried_load,
    identified_arm,
    mesh_folders,
    per_joint,
    relative_covariance,
    torque_zero,
    without_zeros,
)
from robocal_ros.wrench.alignment import (
    COLUMNS,
    LONGEST,
    NEVER,
    AlignedWindow,
    Feed,
    Reading,
    Saturated,
    leaps,
    parabola_weights,
    scatter_of_accelerations,
    slopes_without,
)
from robocal_ros.wrench.contact import (
    EVERY,
    Contact,
    ContactJudge,
    ForceErrors,
    ForceMotion,
    ForceTest,
    Surface,
)
from robocal_ros.wrench.model import (
    ImuLink,
    Instant,
    LinkInstant,
    ModelErrors,
    Motion,
    SensedArm,
    SensorMount,
    TareRecord,
    TareReference,
    tare_of,
)
from robocal_ros.wrench.parameters import Source, WrenchParameters, sensor_std, sensors_of
from robocal_ros.wrench.torque import JointTorques

FILLING = 'Filling the window'
"""Beginning of the reason that resolves by itself."""

NO_EFFORT = ('joint_states contains no efforts. Add <state_interface name="effort"/> to each '
             "joint of the URDF's <ros2_control> block.")
"""Reason without external joint torques."""

NUMBERS = re.compile(r'[0-9.]+')
"""Numbers in sentences that differ in nothing else."""

IMPOSSIBLE = 1e7
"""Wrench or torque that no arm takes [N, N·m]."""

IMPLAUSIBLE = ('Velocities or accelerations are beyond those of any arm. Check the stamps and '
               'velocities of joint_states.')
"""Sentence on an instant with such a wrench or torque."""

_EMPTY, _CONSTANT = frozen(()), frozen((0.0,))
# Deviations of a load that is known exactly.
_EXACT = frozen(np.zeros((10, 0)))
# Largest change of a joint angle [rad] or of an IMU's specific force [m/s²] in which model errors
# count as similar.
_NEAR, _NEAR_BY_IMU = 0.3, 3.0
# Multiple of the threshold that a force must reach when leaps have been removed: what remains
# is less certain.
_WITHOUT_LEAPS = 1.5
# Share of the thresholds below which nothing touches the arm, and least speed of the fastest joint
# while it moves [rad/s], where drifts are followed.
_FREE, _MOVING = 0.5, 0.05
# Component of a direction that counts as zero.
_PARALLEL = 1e-9


@dataclass(slots=True)
class Observation:
    """Estimates at one instant.

    Attributes:
        nanoseconds: Stamp of the newest sample in it [ns].
        delay: The estimate is of the instant ``stamp`` − ``delay`` [s].
        links: Indices of the sub-chains that it is about.
        wrench: External wrench on each sub-chain, in its frame about its origin; rows of
            others and of those with a reason are undefined, shape (k, 6) [N, N·m].
        reasons: By sub-chain, why its wrench is invalid; empty if it is valid.
        contacts: Contacts by sub-chain.
        external: External joint torques; None without efforts, shape (n,) [N·m].
        colliding: Whether each joint's torque exceeds its threshold, shape (n,).
        motion: Motion of the joints, or of a link as its IMU measures it; None if nothing is
            known.
        distal: Sum of the external wrenches distal to each sensor, in its link's frame; undefined
            where readings are missing; empty without joint states, shape (k, 6) [N, N·m].
        held: As for ``SensedArm.held``; empty without joint states, shape (k, 6) [N, N·m].
        missing: By sensor, why its readings are missing; None if none are.
        needed: Joint torques that the rigid arm takes; empty without joint states, (n,) [N·m].
        scatter: Errors of the accelerations by independent unknowns of unit variance, where they
            are those of positions, shape (n, m) [rad/s²].
        torque_rate: Slope of the drive torques, shape (n,), or one zero if unknown [N·m/s].
        instants: Number of instants since the last observation, skipped ones and its own.
        problem: Why nothing is known about the instant; empty if something is.
        failed: Whether that is because its computation failed.

    """

    nanoseconds: int
    delay: float
    links: tuple[int, ...]
    wrench: Array
    reasons: list[str]
    contacts: dict[int, Contact] = field(default_factory=dict)
    external: Array | None = None
    colliding: Flags | None = None
    motion: Motion | None = None
    distal: Array = field(default_factory=lambda: _EMPTY)
    held: Array = field(default_factory=lambda: _EMPTY)
    missing: list[str] | None = None
    needed: Array = field(default_factory=lambda: _EMPTY)
    scatter: Array = field(default_factory=lambda: _EXACT)
    torque_rate: Array = field(default_factory=lambda: _CONSTANT)
    instants: int = 1
    problem: str = ''
    failed: bool = False

    @property
    def stamp(self) -> float:
        """Stamp of the newest sample in it [s]."""
        return to_seconds(self.nanoseconds)


class WrenchObserver:
    """Observer of all sub-chains of an arm.

    Attributes:
        values: The parameters.
        sensors: The F/T sensors, in the order of all arrays, k of them.
        arm: The arm cut at them.
        feeds: Their readings.
        imu_chains: Links with IMUs, by sub-chain.
        inputs: Sensors and IMUs with their readings.
        all_chains: The sub-chains by the instants at which they are observed.
        bias: Bias of each sensor, in its measurement frame, shape (k, 6) [N, N·m].
        tared: Whether biases are known.
        reference: Readings from which the biases were computed; None if they are not known.
        judges: Contact state of each sub-chain.
        torques: External joint torques; None if they are not estimated.
        recorder: Collects samples during a tare, else None.
        remarks: Sentences on the collision geometry.
        errors: Errors of wrenches and torques due to the model.
        gain_covariance: Covariance of the relative errors of drive gains that are not those of an
            identified arm, shape (n, n).
        zero_covariance: Covariance of the zeros of the joint torques, shape (n, n) [N²·m²].

    """

    def __init__(self, robot: Robot, values: WrenchParameters) -> None:
        """Build the observer, without load, friction and tare.

        Args:
            robot: The arm.
            values: The parameters.

        Raises:
            ConfigurationError: If robot, sensors and parameters do not fit each other.
            ModelError: If the collision geometry cannot be read.

        """
        self.values = values
        self.sensors = sensors_of(values, robot.urdf)
        if not self.sensors and not values.observe_torque:
            raise ConfigurationError(
                'There is nothing to observe: no F/T sensor is named, no link begins with ft_, '
                'and observe_torque is false. Name a sensor in sensor_frames, or set '
                'observe_torque.')
        self.arm = SensedArm(
            robot, [SensorMount(sensor.frame, sensor.link) for sensor in self.sensors])
        self.feeds = tuple(Feed(sensor.frame, values, sensor.ranges, sensor.delay)
                           for sensor in self.sensors)
        surface = Surface(self.arm, mesh_folders(named(values.mesh_folders)))
        self.remarks = surface.remarks
        if any(values.tool_box):
            surface.add_box(robot.tool_frame, values.tool_box)
        self.torques = JointTorques(robot, values) if values.observe_torque else None
        self.bias = np.zeros((len(self.sensors), COLUMNS))
        self.tared = not values.require_tare or not self.sensors
        self.recorder: TareRecord | None = None
        self.reference: TareReference | None = None
        self._load: tuple[RigidBodyInertia | None, str, Array] = None, '', _EXACT
        self.errors = ModelErrors(self.arm, values.arm_model_std)
        self._identified = False
        self._laws: Mapping[str, SteadyFriction] = {}
        self._zero: TorqueZero | None = None
        self.use_gains(None)
        self.judges = tuple(
            ContactJudge(index, values.force_threshold, std[3], surface)
            for index, std in enumerate(sensor_std(values, len(self.sensors))))
        self.imu_chains = {
            index: ImuChain(self, index, sensor.imu.frame)
            for index, sensor in enumerate(self.sensors) if sensor.imu is not None}
        self.inputs: tuple[tuple[Source, Feed], ...] = (
            *zip(self.sensors, self.feeds, strict=True),
            *((sensor.imu, self.imu_chains[index].imu)
              for index, sensor in enumerate(self.sensors) if sensor.imu is not None))
        self.joint_chains = JointChains(
            self, tuple(i for i in range(len(self.sensors)) if i not in self.imu_chains))
        self.all_chains: tuple[_Chains, ...] = self.joint_chains, *self.imu_chains.values()

    def clear(self) -> None:
        """Discard all samples, as after a jump of the clock; biases stay."""
        for _, feed in self.inputs:
            feed.clear()
        for chains in self.all_chains:
            chains.clear()
        if self.recorder is not None:
            self.recorder.clear()
        self._end_contacts()

    def _end_contacts(self) -> None:
        """End all contacts, and forget the forces seen so far."""
        for judge in self.judges:
            judge.clear()
            judge.level = 0.0
        for chains in self.all_chains:
            chains.test.clear()

    # -------------------------------------------------- results of identification

    def use_bias(self, bias: Array, reference: TareReference | None = None) -> None:
        """Compensate sensor biases from now on; all contacts end.

        Args:
            bias: Of each sensor, in its measurement frame, shape (k, 6) [N, N·m].
            reference: Readings from which it was computed; None if they are not known.

        """
        self.bias = bias
        self.reference = reference
        self.use_link_biases({})

    def use_tare(self, result: CalibrationResult) -> None:
        """Compensate the biases of a tare result from now on; all contacts end.

        Raises:
            DataError: If it is not a tare, or lacks a sensor.

        """
        self.use_bias(*tare_of(result, [sensor.frame for sensor in self.sensors]))

    def use_calibration(self, result: CalibrationResult) -> None:
        """Use the calibration matrix of an F/T sensor from now on; all contacts end.

        Readings of the tare stand for the same weights, so that their biases follow.

        Raises:
            DataError: If the result is of another kind.

        """
        readings = self.bias if self.reference is None else self.reference.readings
        weights = self.arm.in_links(readings - self.bias)
        if self.arm.calibrate(*calibration_matrix(result)):
            if self.reference is not None:
                self.bias = readings - self.arm.in_measurement(weights)
            self._end_contacts()

    def use_link_biases(self, links: Mapping[int, LinkInstant]) -> None:
        """Compensate the net wrenches of links with IMUs at rest; all contacts end.

        Args:
            links: Means of a rest by sub-chain; other links are not tared as a whole.

        """
        for index, chain in self.imu_chains.items():
            chain.bias = links[index].net if index in links else None
        self.errors.tare(self.reference, {index: rest.regressor for index, rest in links.items()})
        self._end_contacts()
        self.tared = True

    def use_payload(self, result: CalibrationResult) -> str:
        """Compensate an identified payload from now on; returns a sentence.

        Raises:
            DataError: If the result is not one of a payload.

        """
        load = carried_load(result)
        parameters = load.to_pinocchio().toDynamicParameters()
        redone = self.carry(load, result.frame, np.array([
            other.to_pinocchio().toDynamicParameters() - parameters
            for other in alternative_loads(result, inertia=True)]).reshape(-1, 10).T)
        return f'The identified payload of {load.mass:.3f} kg is compensated.' + (
            ' The biases were computed anew from the readings of the tare.' if redone else '')

    def carry(
        self, payload: RigidBodyInertia | None, frame: str = '',
        deviations: Array = _EXACT,
    ) -> bool:
        """Replace the load.

        Biases are computed anew from the readings of the tare, if that explains the newest
        readings better: a load that was mounted after the tare is not in its readings.

        Args:
            payload: As for ``SensedArm.carry``.
            frame: As for ``SensedArm.carry``.
            deviations: Deviations of its dynamic parameters, as Pinocchio orders them, by one
                standard deviation along each principal axis of its covariance, shape (10, p).

        Returns:
            Whether biases were computed anew.

        """
        self._load = payload, frame, deviations
        self.arm.carry(payload, frame)
        redone = False
        if self.reference is not None:
            bias = self.reference.readings - self.arm.expected(self.reference.posture)
            left = self.joint_chains.residuals((bias, self.bias))
            redone = left is None or left[0] <= left[1]
            self.bias = bias if redone else self.bias
        self.errors.carry(frame, deviations, weighed=redone)
        self._end_contacts()
        return redone

    @property
    def weighed_otherwise(self) -> bool:
        """Whether the biases are those of other loads or links, beyond what sensors scatter."""
        return self.reference is not None and bool((np.abs(
            self.reference.readings - self.arm.expected(self.reference.posture) - self.bias)
            > sensor_std(self.values, len(self.sensors))).any())

    def reweigh(self) -> bool:
        """Compute the biases anew with load and links in use, as by ``carry``.

        Returns:
            Whether there are readings that tell what it was.

        """
        known = self.joint_chains.residuals(()) is not None
        if known:
            self.carry(*self._load)
        return known

    def use_gains(self, gains: CalibrationResult | None) -> bool:
        """Use drive gains, None for none, and the arm if it was identified with them.

        Returns:
            Whether links and rotors were replaced.

        """
        robot, values = self.arm.robot, self.values
        arm = identified_arm(robot, values, gains)
        # Those of an identified arm are errors of its model, with its links.
        self.gain_covariance = relative_covariance(robot, gains, values.gain_std) if (
            arm is None) else np.zeros((robot.n, robot.n))
        self._arm_zero = arm_zero(robot, gains) if values.use_torque_zero else None
        self._use_zeros()
        replaced = arm is not None or self._identified
        if replaced:
            self.use_arm(arm)
        return replaced

    def use_arm(self, identified: ArmModel | None) -> None:
        """Use links and rotors of an identified arm, or of the robot description.

        Biases are computed anew as by ``carry``.
        """
        self._identified = identified is not None
        known = self.arm.robot if identified is None else identified.robot
        self.arm.use_links(known)
        self.errors.use_links(identified)
        if self.torques is not None:
            self.torques.use_rotors(known.model.armature)
        self.carry(*self._load)

    def inertia(self, q: Array) -> Array:
        """Return derivatives by accelerations as from ``SensedArm.inertia``, with the drives."""
        found = self.arm.inertia(q)
        if self.torques is not None:
            found[:len(q)] += np.diag(self.torques.rotors)
        return found

    def use_friction(self, laws: Mapping[str, SteadyFriction]) -> None:
        """Compensate friction in the joint torques, if they are estimated.

        Args:
            laws: Identified friction by joint name.

        """
        self._laws = laws
        self._use_zeros()

    def use_torque_zero(self, result: CalibrationResult | None) -> None:
        """Subtract zeros from the joint torques from now on; None if they are not known.

        Raises:
            DataError: If the result is of another kind.

        """
        self._zero = None if result is None else torque_zero(self.arm.robot, result)
        self._use_zeros()

    def _use_zeros(self) -> None:
        """Combine zeros from rest, of the identified arm and of the friction laws.

        Rests show the zero alone. What an arm identification finds contains the difference of
        friction between the directions, as does half the difference of a friction law's levels:
        in motion they are the same, and at standstill the latter is the middle of the torques at
        which friction holds the joint. So a law that contains the zero keeps their sum.
        """
        torques, names = self.torques, self.arm.robot.joint_names
        std = per_joint(self.values.torque_zero_std, len(names), 'torque_zero_std')
        known = self._zero or self._arm_zero or TorqueZero(np.zeros(len(names)), np.diag(std**2))
        offset, covariance = known.offset.copy(), known.covariance.copy()
        for joint, name in enumerate(names):
            law = self._laws.get(name)
            if law is not None and law.holds_zero:
                if self._zero is None:
                    offset[joint] = law.difference
                # The covariance of the law contains it.
                covariance[joint] = covariance[:, joint] = 0.0
        self.zero_covariance = covariance
        if torques is not None:
            torques.use_friction(without_zeros(self._laws, dict(zip(names, offset, strict=True))))
            torques.zero = offset

    # ----------------------------------------------------------------------- output

    def take(self, *, newest: bool = False) -> Observation | None:
        """Return the next observation, None if more samples are needed first.

        Args:
            newest: Whether only the newest instant is observed, and those before it are skipped;
                not during a tare.

        """
        newest = newest and self.recorder is None
        for chains in self.all_chains:
            observation = chains.take(newest=newest)
            if observation is not None:
                return observation
        return None


class _Chains(ABC):
    """Sub-chains that are observed at the same instants.

    Attributes:
        links: Their indices.
        samples: Window over the samples.
        test: Test of forces against what model errors explain.

    """

    def __init__(
        self, observer: WrenchObserver, links: tuple[int, ...], samples: AlignedWindow,
        errors: ForceErrors, near: float,
    ) -> None:
        """Start without samples.

        Args:
            observer: The observer of the arm.
            links: Indices of the sub-chains.
            samples: Window over the samples.
            errors: As for ``ForceTest``.
            near: As for ``ForceTest``.

        """
        self._observer = observer
        self._arm, self._feeds = observer.arm, observer.feeds
        self._judges = observer.judges
        self._count = len(observer.feeds)
        self.links = links
        self.samples = samples
        std = sensor_std(observer.values, self._count)
        self.test = ForceTest(errors, [
            float(sum(std[sensor][0]**2 for sensor in (chain.proximal, *chain.distal)))
            for chain in observer.arm.chains], observer.values.force_threshold, near)

    def clear(self) -> None:
        """Discard all samples."""
        self.samples.clear()

    def take(self, *, newest: bool = False) -> Observation | None:
        """Return the next observation as ``WrenchObserver.take``."""
        stamp, instants = self._next(), 1
        while newest and stamp is not None and (later := self._next()) is not None:
            stamp = later
            instants += 1
        if stamp is None:
            return None
        try:
            return self._observed(stamp, instants)
        except (ArithmeticError, ValueError) as error:
            return self._invalid(stamp, instants, failure(error), failed=True)

    def _next(self) -> int | None:
        """Move the next row into the window; return its stamp [ns], None without a row."""
        return self.samples.take()

    def _invalid(
        self, stamp: int, instants: int, problem: str, *, failed: bool = False
    ) -> Observation:
        """Return an observation of which nothing is valid; all contacts end."""
        self.end_contacts()
        return Observation(
            stamp, 0.5 * self.samples.window.length / SECOND, self.links,
            np.zeros((self._count, COLUMNS)), [problem] * self._count,
            instants=instants, problem=problem, failed=failed)

    def end_contacts(self) -> None:
        """End the contacts on these sub-chains, as when nothing is known about an instant."""
        for index in self.links:
            self._judges[index].clear()

    def find_contacts(
        self, observation: Observation, motion: Motion,
        consistency: Callable[[int, Array], float],
    ) -> None:
        """Set the contacts.

        Args:
            observation: The observation.
            motion: Its motion.
            consistency: As for ``ContactJudge.update``, given a sub-chain and its wrench.

        """
        stamp, wrench, reasons = observation.nanoseconds, observation.wrench, observation.reasons
        instant, rows, loud = stamp / SECOND - observation.delay, wrench.tolist(), []
        uncertain = *motion, observation.scatter
        for index in self.links:
            judge, (x, y, z, _, _, _) = self._judges[index], rows[index]
            judge.force = 0.0 if reasons[index] else math.sqrt(x * x + y * y + z * z)
            if judge.force < judge.threshold and not (judge.in_contact or reasons[index]):
                judge.rest(instant)
            else:
                loud.append(index)
        for index in loud:
            judge, own = self._judges[index], wrench[index]
            contact = judge.bounded(instant) if reasons[index] else judge.update(
                instant, own, max(other.force for other in self._judges),
                partial(consistency, index, own),
                partial(self.test.size, stamp, uncertain, index, own))
            if contact is not None:
                observation.contacts[index] = contact
        self.test.note(stamp, uncertain, wrench, reasons, observation.contacts)

    @abstractmethod
    def _observed(self, stamp: int, instants: int) -> Observation:
        """Return the observation of the newest window, at its stamp [ns]."""

    def _bound(
        self, observation: Observation, motion: Motion, index: int,
        readings: Sequence[list[Reading | None]], model: Array,
    ) -> None:
        """Pass the smallest force on a sub-chain that its sensors allow to the contacts.

        Nothing is passed if no sensor is saturated, or a reading was refused. A component at the
        end of its range may be anything beyond.

        Args:
            observation: The observation.
            motion: Its motion; the arm is in its posture.
            index: The sub-chain.
            readings: Of its proximal sensor, then of its distal ones, about the same instant; None
                for refused ones.
            model: Force that the sub-chain itself takes, in its frame, shape (3,) [N].

        """
        every = [values for found in readings for values in found]
        if None in every or not any(isinstance(values, Saturated) for values in every):
            return
        low = high = model
        sensors = index, *self._arm.chains[index].distal
        for sensor, found in zip(sensors, readings, strict=True):
            rows = np.array([np.array(values)[:3] for values in found])
            ends = np.array([rows.min(axis=0), rows.max(axis=0)])
            for column, limit in self._feeds[sensor].limits:
                if column < 3:
                    ends[0, column] = -np.inf if ends[0, column] <= -limit else ends[0, column]
                    ends[1, column] = np.inf if ends[1, column] >= limit else ends[1, column]
            ends -= self._observer.bias[sensor, :3]
            turn = self._arm.sensor_rotation(index, sensor) * (1.0 if sensor == index else -1.0)
            # Of 0 · ∞, an axis that a component does not act on.
            with np.errstate(invalid='ignore'):
                terms = np.where(np.abs(turn) > _PARALLEL, turn * ends[:, None], 0.0)
            low = low + terms.min(axis=0).sum(axis=1)
            high = high + terms.max(axis=0).sum(axis=1)
        least, stamp, delay = np.clip(0.0, low, high), observation.nanoseconds, observation.delay
        self._judges[index].saturate(
            stamp / SECOND - delay, 2.0 * delay, least,
            partial(self.test.size, stamp, (*motion, observation.scatter), index, least))


class JointChains(_Chains):
    """Sub-chains whose motion comes from joint states, all of them in one pass.

    Attributes:
        problem: Problem of the newest joint state, empty if there is none.
        refused: Number of joint states that were not usable, and the problem of the last one.

    """

    def __init__(self, observer: WrenchObserver, links: tuple[int, ...]) -> None:
        robot, values = observer.arm.robot, observer.values
        # Position, velocity, torque; then the sensors.
        super().__init__(
            observer, links, AlignedWindow(observer.feeds, 3 * robot.n, values),
            self._force_errors, _NEAR)
        self.problem = ''
        self.refused = 0, ''
        self._values = values
        self._torques = observer.torques
        self._n = robot.n
        # Means of a window, and its wrenches without leaps: computed once for all sub-chains.
        self._settled: tuple[Array, Array | None] | None = None
        self.clear()

    def clear(self) -> None:
        """Discard all samples, and what was derived from them."""
        super().clear()
        # Stamp of the newest joint state without torques [ns].
        self._without_effort = NEVER
        # The same without the velocity of each joint, and of any.
        self._without_velocity, self._without_any = np.full(self._n, NEVER), NEVER
        # Stamp of the instant to which drifts were followed last [ns].
        self._followed = NEVER
        # Newest means of motion and readings.
        self._latest: tuple[Array, Array, Array] | None = None
        if self._torques is not None:
            self._torques.clear()

    def residuals(self, biases: Sequence[Array]) -> list[float] | None:
        """Return the norm of the forces that the model does not explain, with each of the biases.

        It is of the newest window; None without one.

        Args:
            biases: Biases of all sensors, shape (k, 6) each [N, N·m].

        """
        if self._latest is None:
            return None
        means, a, readings = self._latest
        held = self._arm.held(means[:self._n], means[self._n:2 * self._n], a)
        return [float(np.linalg.norm((self._arm.in_links(readings - bias) + held)[:, :3]))
                for bias in biases]

    def add(self, stamp: int, row: Array) -> None:
        """Add a joint state.

        Args:
            stamp: Its stamp, newer than the newest [ns].
            row: Plausible joint angles without turns [rad], velocities [rad/s], NaN for joints
                whose velocity is not known, and drive torques [N·m], not used if one is NaN, as
                from ``JointIntake``; shape (3 n,).

        """
        if not self._values.use_velocity:
            row = row.copy()
            row[self._n:2 * self._n] = np.nan
        self.problem = ''
        self.samples.add(stamp, row)

    def take_state(self, stamp: int | None, content: Array | str) -> None:
        """Add a joint state, or note the problem of one that is not usable."""
        if isinstance(content, str):
            self.problem, self.refused = content, (self.refused[0] + 1, content)
        elif stamp is not None:
            self.add(stamp, content)

    def _next(self) -> int | None:
        n, stamp = self._n, self.samples.take()
        if stamp is None:
            return None
        rows = self.samples.window.rows
        if _within(rows[-1, :3 * n], np.inf):
            return stamp
        effort, velocity = rows[-1, 2 * n:3 * n], rows[-1, n:2 * n]
        if not _within(effort, np.inf):
            effort[:] = 0.0
            self._without_effort = stamp
        unknown = np.isnan(velocity)
        if unknown.any():
            velocity[unknown] = 0.0
            self._without_velocity[unknown] = self._without_any = stamp
        return stamp

    def _observed(self, stamp: int, instants: int) -> Observation:
        samples = self.samples
        n, count, arm, window = self._n, self._count, self._arm, samples.window
        rows = window.rows
        weights = window.weights()
        if weights is None:
            return self._invalid(stamp, instants, self._not_full_reason())
        both, intervals, delay, rate = weights
        # For small arrays, dot is faster than @.
        found = both.dot(rows)
        means = found[0]
        oldest = window.oldest
        if samples.uneven_mean >= oldest:
            means[3 * n:] += intervals.dot(window.extra)
        v, a, scatter = means[n:2 * n], rate * found[1, n:2 * n], _EXACT
        if self._without_any >= oldest:
            unknown = self._without_velocity >= oldest
            time = (window.time - stamp) / SECOND + delay
            _, v[unknown], a[unknown] = parabola_weights(time) @ rows[:, :n][:, unknown]
            scatter = unknown[:, None] * scatter_of_accelerations(time, rows[:, :n])
        motion = means[:n], v, a
        held = arm.held(*motion)
        raw = means[3 * n:].reshape(count, COLUMNS)
        readings = arm.in_links(raw - self._observer.bias)
        distal, needed = readings + held, arm.torque
        every = distal.ravel()
        if not every.dot(every) + needed.dot(needed) < IMPOSSIBLE**2:
            raise ArithmeticError(IMPLAUSIBLE)
        missing = samples.missing(oldest)
        observation = Observation(
            stamp, delay, self.links, arm.between(distal), [''] * count, {}, None, None,
            motion, distal, held, missing, needed, scatter,
            rate * found[1, 2 * n:3 * n], instants)
        if missing is None:
            self._latest = means, a, raw
        else:
            observation.reasons = arm.reasons(missing)
            self.bound(observation, motion, [feed.around(stamp) for feed in self._feeds])
        self.find_contacts(observation, motion, lambda index, wrench: self.consistency(
            both[0], window.time, rows, means, readings, index, wrench, exact=not scatter.size))
        if self._torques is not None and self._without_effort < oldest:
            observation.external = self._torques.update(
                needed, v, a, means[2 * n:3 * n],
                lambda: self.torque_std(stamp, motion, scatter))
            observation.colliding = self._torques.colliding
        if self._values.drift_lag and stamp - self._followed >= EVERY:
            self._follow(observation)
        if (recorder := self._observer.recorder) is not None:
            newest = rows[-1].copy()
            torque = newest[2 * n:3 * n]
            recorder.add(Instant(stamp, newest[:n], newest[3 * n:].reshape(count, COLUMNS), held,
                                 missing or [''] * count,
                                 torque if stamp > self._without_effort else np.nan * torque))
        return observation

    def _follow(self, observation: Observation) -> None:
        """Let biases and torque zeros follow a drift, with a lag of first order.

        Only while the arm moves and nothing touches it, by less than half of the thresholds: what
        rests against it would look like a drift. Friction of a joint near standstill is unknown.
        """
        stamp, since = observation.nanoseconds, observation.nanoseconds - self._followed
        self._followed = stamp
        observer, torques, external = self._observer, self._torques, observation.external
        if observation.motion is None or not observer.tared or since > 2 * EVERY:
            return
        speed = np.abs(observation.motion[1])
        force = np.linalg.norm(observation.distal[:, :3], axis=1)
        limit = _FREE * self._values.force_threshold
        if (speed.max() < _MOVING or observation.contacts or observation.missing is not None
                or force.max(initial=0.0) > limit):
            return
        gain = since / SECOND / self._values.drift_lag
        if torques is not None and external is not None:
            half = _FREE * torques.threshold
            unknown = torques.friction.uncertainty(
                observation.motion[1], observation.needed - external)
            if (np.abs(external) > half + unknown).any():
                return
            torques.zero = torques.zero - gain * np.where(unknown < half, external, 0.0)
        step = gain * self._arm.in_measurement(observation.distal)
        observer.bias = observer.bias + step
        if observer.reference is not None:
            observer.reference = observer.reference._replace(
                readings=observer.reference.readings + step)

    def bound(
        self, observation: Observation, motion: Motion, around: Sequence[list[Reading | None]]
    ) -> None:
        """Pass lower bounds of the force to the contacts, where sensors are saturated.

        Args:
            observation: The observation, with ``held``.
            motion: Its motion.
            around: Readings of each sensor before and after its stamp, as for ``Feed.around``.

        """
        if not any(isinstance(values, Saturated) for pair in around for values in pair):
            return
        model = self._arm.between(observation.held)
        for index in self.links:
            pairs = [around[sensor] for sensor in (index, *self._arm.chains[index].distal)]
            if any(len(pair) < 2 or None in pair for pair in pairs):
                continue
            if len(pairs) == 1:
                # No other sensor has to be compared at the same instant.
                pairs = [[values for values in pairs[0] if isinstance(values, Saturated)]]
            self._bound(observation, motion, index, pairs, model[index, :3])

    def _force_errors(self, index: int, motion: ForceMotion) -> tuple[Array, Array]:
        errors, (q, v, a, scatter) = self._observer.errors, motion
        return errors.link(index, (q, v, a))[:3], (
            errors.by_acceleration(index, q, scatter)[:3] if scatter.size else _EXACT[:3])

    def torque_std(self, stamp: int, motion: Motion, scatter: Array) -> Array:
        """Return the standard deviations of joint torques at a stamp [ns], shape (n,) [N·m].

        Args:
            stamp: The stamp.
            motion: The motion.
            scatter: As for ``Observation``.

        """
        std = self._observer.errors.torque_std(stamp, motion)
        if scatter.size:
            std = np.hypot(std, np.linalg.norm(
                self._observer.inertia(motion[0])[:self._n] @ scatter, axis=1))
        return std

    def _not_full_reason(self) -> str:
        if self.problem:
            return self.problem
        window = self.samples.window
        count, length, step = len(window), window.length / SECOND, window.step / SECOND
        rate = 1.0 / step if step > 0.0 else 0.0
        longest = max(window.length, LONGEST) / SECOND
        if step * (window.fewest - 1) > longest:
            return (f'Joint states are {1e3 * step:.0f} ms apart ({rate:.0f} Hz); '
                    f'{window.fewest} of them within {longest:g} s are needed for accelerations, '
                    f'{(window.fewest - 1) / longest:.0f} Hz. Raise their rate, or lengthen '
                    'window.')
        return f'{FILLING} of {length:g} s ({count} joint states, {rate:.0f} Hz).'

    def consistency(
        self, mean: Array, time: Stamps, rows: Array, means: Array, readings: Array, index: int,
        wrench: Array, *, exact: bool,
    ) -> float:
        """Return how consistently the readings in a window show a contact that begins.

        Args:
            mean: Weights of the mean, shape (m,).
            time: Stamps of the rows, shape (m,) [ns].
            rows: The window's rows.
            means: Their mean.
            readings: Mean readings without bias, in the links' frames, shape (k, 6).
            index: The sub-chain.
            wrench: External wrench on it, shape (6,) [N, N·m].
            exact: Whether the velocities are measured; what leaps of positions do to
                accelerations is in their errors.

        Returns:
            As for ``Contacts.update``; zero if the force is due to leaps of single velocities.

        """
        if self._settled is None or self._settled[0] is not means:
            self._settled = means, self._without_leaps(
                time, rows, means, readings) if exact else None
        without = self._settled[1]
        if without is not None and np.linalg.norm(
                without[index, :3]) < _WITHOUT_LEAPS * self._values.force_threshold:
            return 0.0
        series = rows[:, 3 * self._n:].reshape(len(rows), self._count, COLUMNS)
        return _consistency(mean, self._arm.force_series(index, series), wrench[:3])

    def _without_leaps(
        self, time: Stamps, rows: Array, means: Array, readings: Array
    ) -> Array | None:
        """Return the wrenches without leaps of single velocities, (k, 6); None without leaps."""
        n = self._n
        velocity = rows[:, n:2 * n]
        leaping = leaps(time, rows[:, :n], velocity)
        if not leaping.any():
            return None
        return self._arm.between(readings + self._arm.held(
            means[:n], means[n:2 * n], slopes_without(time, velocity, leaping)))


class ImuChain(_Chains):
    """Rigid link whose motion its IMU measures, at the instants of its proximal sensor.

    Attributes:
        link: The link.
        imu: Readings of its IMU: specific force [m/s²], then angular velocity [rad/s].
        bias: Its net wrench at rest if it was tared as a whole, else None, shape (6,).

    """

    def __init__(self, observer: WrenchObserver, index: int, frame: str) -> None:
        chain, values = observer.arm.chains[index], observer.values
        self.link = link = ImuLink(observer.arm, chain, frame)
        self.imu = Feed(frame, values)
        # Readings of the proximal sensor, then of IMU and distal sensor.
        super().__init__(
            observer, (index,),
            AlignedWindow([self.imu, *(observer.feeds[d] for d in chain.distal)], COLUMNS, values,
                          f"sensor '{observer.feeds[index].name}'"),
            lambda index, motion: (
                observer.errors.rigid(index, link.regressor(*motion[:3]))[:3], motion[3][:3]),
            _NEAR_BY_IMU)
        self.bias: Array | None = None
        self._index = index
        self._sensors = [index, *chain.distal]
        observer.feeds[index].on_reading = self.samples.add

    def _observed(self, stamp: int, instants: int) -> Observation:
        window, index = self.samples.window, self._index
        weights = window.weights()
        if weights is None:
            return self._invalid(stamp, instants, f'{FILLING} of {window.length / SECOND:g} s.')
        missing = self.samples.missing(window.oldest)
        refused, why = self._feeds[index].refused
        problem = why if refused >= window.oldest else next(filter(None, missing or ()), '')
        if problem and missing is not None and missing[0]:
            return self._invalid(stamp, instants, problem)
        (mean, slope), _, delay, scale = weights
        rows = window.rows
        means = mean @ rows
        rate = means[9:12]
        motion = means[6:9], rate, scale * (slope @ rows[:, 9:12])
        observation = Observation(
            stamp, delay, self.links, np.zeros((self._count, COLUMNS)), [''] * self._count,
            motion=motion, instants=instants)
        regressor = self.link.regressor(*motion)
        inertial = self.link.inertial(regressor)
        if problem:
            observation.reasons[index] = problem
            # The proximal sensor reads at the instant itself, the others beside it.
            pairs = [self._feeds[i].around(stamp) for i in self._sensors]
            pairs[0] = pairs[0][:1]
            self._bound(observation, motion, index, pairs, inertial[:3])
        else:
            readings = self._arm.in_links(self._all_sensors(means[None])[0] - self._observer.bias)
            net = inertial + self._arm.between(readings)[index]
            if not _within(net, IMPOSSIBLE):
                raise ArithmeticError('Its force or moment is beyond that of any arm.')
            if (recorder := self._observer.recorder) is not None:
                recorder.add(LinkInstant(stamp, net, rate, regressor), index)
            observation.wrench[index] = net if self.bias is None else net - self.bias
        self.find_contacts(observation, motion, lambda index, wrench: _consistency(
            mean, self._arm.force_series(index, self._all_sensors(rows)), wrench[:3]))
        return observation

    def _all_sensors(self, rows: Array) -> Array:
        """Return the readings in rows as readings of all sensors, others zero, (m, k, 6)."""
        readings = np.zeros((len(rows), self._count, COLUMNS))
        # The second six columns are those of the IMU.
        readings[:, self._sensors] = rows.reshape(len(rows), -1, COLUMNS)[:, ::2]
        return readings


def _within(values: Array, limit: float) -> bool:
    """Return whether the norm of a few values is finite and below a limit.

    It is faster for these than NumPy's own tests.
    """
    # For small arrays, dot is faster than @.
    return bool(values.dot(values) < limit * limit)


def failure(error: Exception) -> str:
    """Return a sentence on an instant whose computation failed."""
    return f'The wrench could not be computed: {error} The next samples are tried again.'


def _consistency(mean: Array, series: Array, force: Array) -> float:
    """Return the size of a mean force divided by the mean size of the force.

    Args:
        mean: Weights of the mean, shape (m,).
        series: Differences of the sensors' forces, shape (m, 3) [N].
        force: The mean force, inertia and weight compensated, shape (3,) [N].

    """
    deviation = series - mean @ series + force
    return float(np.linalg.norm(force) / (mean @ np.linalg.norm(deviation, axis=1)))
