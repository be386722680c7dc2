# SPDX-License-Identifier: Apache-2.0
"""External wrenches and contacts from samples, at every instant.

All sub-chains whose motion comes from joint states are computed together, at the instants of
the joint states. A link with an IMU is computed for itself, at the instants of its proximal
sensor, and needs no joint states. In both cases readings are interpolated to the instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.parameters import named
from robocal_ros.results.result import CalibrationResult
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.load import carried_load
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.setup import mesh_folders
from robocal_ros.wrench.alignment import COLUMNS, AlignedWindow, Feed
from robocal_ros.wrench.contact import Contact, Contacts
from robocal_ros.wrench.estimate import TareRecord
from robocal_ros.wrench.model import ImuLink, SensedArm, SensorMount
from robocal_ros.wrench.parameters import WrenchParameters, sensors_of
from robocal_ros.wrench.smoothing import FEWEST, leaps, slopes_without
from robocal_ros.wrench.surface import Surface
from robocal_ros.wrench.torque import JointFriction, MomentumObserver

FILLING = 'Filling the window'
"""How the reason begins that passes by itself."""

_NONE: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
# Share of the usual threshold that a force must reach when leaps have been taken out: what is
# left is less certain.
_WITHOUT_LEAPS = 1.5


@dataclass(slots=True)
class Observation:
    """What is known at one instant.

    Attributes:
        stamp: Stamp of the sample that gave it [s].
        delay: The estimate is of the instant ``stamp`` − ``delay`` [s].
        links: Indices of the sub-chains that it is about.
        wrench: External wrench on each sub-chain, in its frame about its origin; rows of
            others and of those with a reason mean nothing, shape (k, 6) [N, N·m].
        reasons: By sub-chain, why its wrench is not known; empty where it is.
        contacts: Contacts by sub-chain; only those that are pushed.
        external: External joint torques; None where they are not followed, shape (n,) [N·m].
        colliding: Which joints carry more than friction explains, shape (n,).
        posture: Joint angles; None without joint states, shape (n,) [rad].

    """

    stamp: float
    delay: float
    links: tuple[int, ...]
    wrench: Array
    reasons: list[str]
    contacts: dict[int, Contact] = field(default_factory=dict)
    external: Array | None = None
    colliding: npt.NDArray[np.bool_] | None = None
    posture: Array | None = None


class WrenchObserver:
    """Follows all sub-chains of an arm.

    Attributes:
        sensors: The F/T sensors, in the order of all arrays, k of them.
        arm: The arm cut at them.
        feeds: Their readings.
        imu_feeds: Readings of IMUs (specific force [m/s²], then angular velocity [rad/s]), by
            sub-chain.
        bias: Bias of each sensor, in its measurement frame, shape (k, 6) [N, N·m].
        tared: Whether biases are known.
        contacts: Contacts on the sub-chains.
        momentum: The momentum observer; None where torques are not used.
        recorder: Takes what a tare needs while one is under way, else None.
        remarks: What is to be said about the geometry, in sentences.

    """

    def __init__(self, robot: Robot, values: WrenchParameters) -> None:
        """Put the parts together, without results of others: no payload, no friction, no tare.

        Args:
            robot: The arm.
            values: The parameters.

        Raises:
            ConfigurationError: If robot, sensors and parameters do not fit each other.
            ModelError: If the collision geometry cannot be read.

        """
        self._values = values
        self.sensors = sensors_of(values, robot.urdf)
        self.arm = SensedArm(
            robot, [SensorMount(sensor.frame, sensor.link) for sensor in self.sensors])
        self.feeds = tuple(Feed(sensor.frame, values, sensor.ranges) for sensor in self.sensors)
        self.remarks: tuple[str, ...] = ()
        surface = self._surface()
        self.momentum = MomentumObserver(
            robot, JointFriction({}, robot.joint_names, values), values,
        ) if values.observe_torque else None
        self.bias = np.zeros((len(self.sensors), COLUMNS))
        self.tared = not values.require_tare
        self.recorder: TareRecord | None = None
        self.contacts = Contacts(self.arm.chains, values, surface)
        self._imu_chains = {
            index: _ImuChain(self.arm, index, sensor.imu.frame, self.feeds, values, self.contacts)
            for index, sensor in enumerate(self.sensors) if sensor.imu is not None}
        self.imu_feeds = {index: chain.imu for index, chain in self._imu_chains.items()}
        self._joint_chains = _JointChains(
            self.arm, tuple(i for i in range(len(self.sensors)) if i not in self._imu_chains),
            self.feeds, values, self.contacts, self.momentum)

    def _surface(self) -> Surface:
        """Return the collision geometry, with a box around the tool where one is given."""
        arm, values = self.arm, self._values
        surface = Surface(arm, mesh_folders(named(values.mesh_folders)))
        if surface.missing_meshes:
            self.remarks = (
                f'No collision geometry for {", ".join(surface.missing_meshes)}: their meshes '
                'were not found, so no contact point can be located there. Set mesh_folders.',)
        chain = arm.chain_of_frame(arm.robot.tool_frame)
        if any(values.tool_box) and chain is not None:
            surface.add_box(chain, arm.robot.tool_frame, values.tool_box)
        return surface

    # ------------------------------------------------------------------------ input

    def add_joint_state(
        self, stamp: float, q: Array, v: Array | None, effort: Array | None
    ) -> None:
        """Take a joint state.

        Args:
            stamp: Its stamp, newer than the newest [s].
            q: Joint angles, shape (n,) [rad].
            v: Joint velocities, NaN for joints whose velocity is not known and None where none
                is, shape (n,) [rad/s].
            effort: Drive torques, shape (n,) [N·m]; None where there are none, and of no use if
                one is NaN.

        """
        self._joint_chains.add(stamp, q, v, effort)

    def refuse_joint_state(self, problem: str) -> None:
        """Note a joint state that is not usable, and why."""
        self._joint_chains.problem = problem

    @property
    def joint_problem(self) -> str:
        """What is wrong with the newest joint state, empty if nothing is."""
        return self._joint_chains.problem

    def add_reading(self, index: int, stamp: float, values: tuple[float, ...]) -> None:
        """Take a reading of an F/T sensor.

        Args:
            index: Which sensor.
            stamp: Its stamp, newer than the newest [s].
            values: Force [N], then moment [N·m].

        """
        feed = self.feeds[index]
        feed.add(stamp, values)
        chain = self._imu_chains.get(index)
        if chain is not None and feed.newest == stamp:
            chain.samples.add(stamp, values)

    def clear(self) -> None:
        """Forget all samples, as after a jump of the clock; biases stay."""
        for feed in (*self.feeds, *self.imu_feeds.values()):
            feed.clear()
        self._joint_chains.clear()
        for chain in self._imu_chains.values():
            chain.samples.clear()
        self.contacts.clear()

    # -------------------------------------------------- what was identified before

    def use_bias(self, bias: Array) -> None:
        """Compensate sensor biases from now on; contacts begin anew.

        Args:
            bias: Of each sensor, in its measurement frame, shape (k, 6) [N, N·m].

        """
        self.bias = bias
        self.use_link_biases(dict.fromkeys(self._imu_chains))

    def use_link_biases(self, biases: Mapping[int, Array | None]) -> None:
        """Compensate what whole links with IMUs read at rest; contacts begin anew.

        Args:
            biases: By sub-chain, shape (6,) each [N, N·m]; None for none.

        """
        for index, bias in biases.items():
            self._imu_chains[index].bias = bias
        self.contacts.clear()
        self.tared = True

    def use_payload(self, result: CalibrationResult) -> str:
        """Count an identified payload from now on; returns a sentence.

        Raises:
            DataError: If the result is not one of a payload.

        """
        load = carried_load(result)
        self.carry(load, result.frame)
        return f'The identified payload of {load.mass:.3f} kg is counted.'

    def carry(self, payload: RigidBodyInertia | None, frame: str = '') -> None:
        """Count what the arm carries from now on; arguments as of ``SensedArm.carry``."""
        self.arm.carry(payload, frame)
        self.contacts.use(self.arm.chains)
        for index, chain in self._imu_chains.items():
            chain.link.use(self.arm.chains[index])
        if self.momentum is not None:
            robot = self.arm.robot
            self.momentum.use(robot if payload is None else robot.with_payload(
                payload, frame or None))

    def use_friction(self, laws: Mapping[str, SteadyFriction]) -> None:
        """Compensate friction in the joint torques, if they are followed.

        Args:
            laws: Identified friction by joint name.

        """
        if self.momentum is not None:
            self.momentum.use(friction=JointFriction(
                laws, self.arm.robot.joint_names, self._values))

    # ----------------------------------------------------------------------- output

    def take(self) -> Observation | None:
        """Return the next observation, None when more samples are needed first."""
        observation = self._joint_chains.take(self.bias, self.recorder)
        if observation is not None:
            return observation
        for chain in self._imu_chains.values():
            observation = chain.take(self.bias, self.recorder)
            if observation is not None:
                return observation
        return None


class _JointChains:
    """The sub-chains whose motion comes from joint states, all of them in one pass.

    Attributes:
        problem: What is wrong with the newest joint state, empty if nothing is.

    """

    def __init__(
        self, arm: SensedArm, links: tuple[int, ...], feeds: tuple[Feed, ...],
        values: WrenchParameters, contacts: Contacts, momentum: MomentumObserver | None,
    ) -> None:
        self.problem = ''
        self._arm = arm
        self._links = links
        self._count = len(feeds)
        self._values = values
        self._contacts = contacts
        self._momentum = momentum
        self._n = arm.robot.n
        # Position, velocity, torque; then the sensors.
        self._samples = AlignedWindow(feeds, 3 * self._n, values)
        self._without_effort = float('-inf')
        # Joints whose velocity the newest joint state does not tell.
        self._unknown = _NONE
        # Means of a window, and its wrenches without leaps: computed once for all sub-chains.
        self._settled: tuple[Array, Array | None] | None = None

    def clear(self) -> None:
        self._samples.clear()
        self._without_effort = float('-inf')
        if self._momentum is not None:
            self._momentum.clear()

    def add(self, stamp: float, q: Array, v: Array | None, effort: Array | None) -> None:
        """Take a joint state; arguments as of ``WrenchObserver.add_joint_state``."""
        n = self._n
        row = np.empty(3 * n)
        row[:n] = q
        row[n:2 * n] = np.nan if v is None or not self._values.use_velocity else v
        if effort is None or not _finite(effort):
            row[2 * n:] = 0.0
            self._without_effort = stamp
        else:
            row[2 * n:] = effort
        self.problem = ''
        self._samples.add(stamp, row)

    def take(self, bias: Array, recorder: TareRecord | None) -> Observation | None:
        """Return the next observation, None when more samples are needed first.

        Args:
            bias: Bias of each sensor, shape (k, 6) [N, N·m].
            recorder: Takes what a tare needs.

        """
        stamp = self._samples.take()
        if stamp is None:
            return None
        n, count, arm, window = self._n, self._count, self._arm, self._samples.window
        rows = window.rows
        self._differentiate(rows)
        observation = Observation(
            stamp, 0.5 * window.length, self._links, np.empty((count, 6)), [''] * count)
        weights = window.weights()
        if weights is None:
            observation.reasons = [self._why_not_full()] * count
            self._contacts.clear(self._links)
            return observation
        mean, slope, observation.delay = weights
        means = mean @ rows
        q, v = means[:n], means[n:2 * n]
        held = arm.held(q, v, slope @ rows[:, n:2 * n])
        observation.posture = q
        readings = arm.in_links(means[3 * n:].reshape(count, 6) - bias)
        observation.wrench = arm.between(readings + held)
        oldest = window.time[0]
        missing = self._samples.missing(oldest)
        if missing is not None:
            for index in self._links:
                observation.reasons[index] = missing[index] or next(
                    (missing[d] for d in arm.chains[index].distal if missing[d]), '')
        instant = stamp - observation.delay
        observation.contacts = self._contacts.update(
            instant, self._links, observation.wrench, observation.reasons,
            partial(self._scatter, mean, rows, means, readings))
        if self._momentum is not None and self._without_effort < oldest:
            observation.external = self._momentum.update(instant, q, v, means[2 * n:3 * n])
            observation.colliding = self._momentum.colliding
        if recorder is not None:
            recorder.add(stamp, rows[-1, :n], rows[-1, 3 * n:].reshape(count, 6), held,
                         [not why for why in missing or observation.reasons])
        return observation

    def _differentiate(self, rows: Array) -> None:
        """Fill in unknown velocities from positions: central once the next one is there."""
        n = self._n
        if _finite(rows[-1, n:2 * n]):
            self._unknown = _NONE
            return
        time = self._samples.window.time
        unknown = np.flatnonzero(np.isnan(rows[-1, n:2 * n]))
        before, self._unknown = self._unknown, unknown
        if len(rows) < 2:
            rows[-1, n + unknown] = 0.0
            return
        rows[-1, n + unknown] = (rows[-1, unknown] - rows[-2, unknown]) / (time[-1] - time[-2])
        if len(rows) > 2:
            q = np.intersect1d(unknown, before)
            rows[-2, n + q] = (rows[-1, q] - rows[-3, q]) / (time[-1] - time[-3])

    def _why_not_full(self) -> str:
        if self.problem:
            return self.problem
        window = self._samples.window
        time, length, step = window.time, window.length, window.step
        span = time[-1] - time[0]
        rate = (len(time) - 1) / span if span > 0.0 else 0.0
        if length / (FEWEST - 1) < step < np.inf:
            return (f'Joint states came {1e3 * step:.0f} ms apart ({1.0 / step:.0f} Hz); a window '
                    f'of {length:g} s needs {(FEWEST - 1) / length:.0f} Hz for accelerations. '
                    'Raise their rate, or lengthen window.')
        return f'{FILLING} of {length:g} s ({rate:.0f} Hz).'

    def _scatter(
        self, mean: Array, rows: Array, means: Array, readings: Array, index: int
    ) -> float:
        """Return what speaks against a contact that seems to begin; called only if one does.

        Args:
            mean: Weights of the mean.
            rows: The window's rows.
            means: Their mean.
            readings: Mean readings without bias, in the links' frames, shape (k, 6).
            index: The sub-chain.

        Returns:
            How much its force varied within the window, infinite if nothing is left of it
            without leaps of single velocities [N].

        """
        if self._settled is None or self._settled[0] is not means:
            self._settled = means, self._without_leaps(rows, means, readings)
        without = self._settled[1]
        if without is not None and np.linalg.norm(
                without[index, :3]) < _WITHOUT_LEAPS * self._values.force_threshold:
            return float('inf')
        series = rows[:, 3 * self._n:].reshape(len(rows), self._count, 6)
        return _spread(mean, self._arm.force_series(index, series))

    def _without_leaps(self, rows: Array, means: Array, readings: Array) -> Array | None:
        """Return the wrenches without leaps of single velocities, (k, 6); None without leaps."""
        if not self._values.use_velocity:
            return None
        n, time = self._n, self._samples.window.time
        velocity = rows[:, n:2 * n]
        leaping = leaps(time, rows[:, :n], velocity)
        if not leaping.any():
            return None
        return self._arm.between(readings + self._arm.held(
            means[:n], means[n:2 * n], slopes_without(time, velocity, leaping)))


class _ImuChain:
    """One rigid link whose motion its IMU measures, at the instants of its proximal sensor.

    Attributes:
        link: The link.
        imu: Readings of its IMU.
        samples: Readings of its proximal sensor, then of IMU and distal sensor.
        bias: What it reads at rest, where it was tared as a whole; None otherwise, shape (6,).

    """

    def __init__(
        self, arm: SensedArm, index: int, frame: str, feeds: tuple[Feed, ...],
        values: WrenchParameters, contacts: Contacts,
    ) -> None:
        chain = arm.chains[index]
        self.link = ImuLink(arm, chain, frame)
        self.imu = Feed(frame, values)
        self.samples = AlignedWindow(
            [self.imu, *(feeds[d] for d in chain.distal)], COLUMNS, values)
        self.bias: Array | None = None
        self._arm = arm
        self._contacts = contacts
        self._count = len(feeds)
        self._index = index
        self._sensors = [index, *chain.distal]

    def take(self, bias: Array, recorder: TareRecord | None) -> Observation | None:
        """Return the next observation; arguments as of ``_JointChains.take``."""
        stamp = self.samples.take()
        if stamp is None:
            return None
        window, index = self.samples.window, self._index
        observation = Observation(
            stamp, 0.5 * window.length, (index,), np.empty((self._count, 6)), [''] * self._count)
        weights = window.weights()
        missing = None if weights is None else self.samples.missing(window.time[0])
        if weights is None or missing is not None:
            observation.reasons[index] = f'{FILLING} of {window.length:g} s.' \
                if missing is None else next(why for why in missing if why)
            self._contacts.clear((index,))
            return observation
        mean, slope, observation.delay = weights
        rows = window.rows
        means = mean @ rows
        acceleration, rate = means[6:9], means[9:12]
        readings = self._arm.in_links(self._all_sensors(means[None])[0] - bias)
        net = self.link.net(
            self.link.inertial(acceleration, rate, slope @ rows[:, 9:12]),
            *(readings[i] for i in self._sensors))
        if recorder is not None:
            recorder.add_link(index, stamp, net, rate)
        observation.wrench[index] = net if self.bias is None else net - self.bias
        observation.contacts = self._contacts.update(
            stamp - observation.delay, (index,), observation.wrench, observation.reasons,
            partial(self._scatter, mean, rows))
        return observation

    def _all_sensors(self, rows: Array) -> Array:
        """Return the readings in rows as readings of all sensors, others zero, (m, k, 6)."""
        readings = np.zeros((len(rows), self._count, 6))
        for place, index in enumerate(self._sensors):
            column = 12 * place
            readings[:, index] = rows[:, column:column + 6]
        return readings

    def _scatter(self, mean: Array, rows: Array, index: int) -> float:
        return _spread(mean, self._arm.force_series(index, self._all_sensors(rows)))


def _finite(values: Array) -> bool:
    """Return whether all of a few values are finite; faster for these than NumPy's own test."""
    square = float(values @ values)
    return square - square == 0.0


def _spread(mean: Array, series: Array) -> float:
    """Return the standard deviation of a vector about its weighted mean."""
    deviation = series - mean @ series
    return float(np.sqrt((mean @ (deviation * deviation)).sum()))
