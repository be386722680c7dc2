# SPDX-License-Identifier: Apache-2.0
"""One arm with its controller and sensors in simulated time, without ROS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from robocal_ros.errors import ConfigurationError
from robocal_sim.controller import (
    ACTION_PERIOD,
    INVALID_GOAL,
    ControllerSettings,
    TrajectoryController,
)
from robocal_sim.faults import (
    CLOCK_JUMP,
    SENSOR_DELAY,
    SENSOR_DRIFT,
    SENSOR_RANGE,
    SLOW_PERIOD,
    SWAP,
    Faults,
)
from robocal_sim.model import Description, JointLimits
from robocal_sim.physics import CONTROL_STEP, ArmPhysics
from robocal_sim.sensors import (
    CameraSensor,
    Delay,
    ForceTorqueSensor,
    ImuSensor,
    JointSensor,
    LowPass,
    Stream,
    TrackerSensor,
)
from robocal_sim.streamed import StreamedCommands
from robocal_sim.truth import Cell, ForceTorqueNoise, ForceTorqueTruth, HiddenTruth, JointTruth

# Postures from which a hand starts, steps of Newton's method from each, and what is there [m].
_TRIES, _STEPS, _REACHED = 100, 30, 1e-8

FloatArray = npt.NDArray[np.float64]

CLOCK_START = 100.0
"""Simulated time at the start [s]; in ROS, a stamp of zero means "none"."""


WALL_TIME = 1.7e9
"""Offset of stamps in wall time [s]."""

OUTLIER = 253.0
"""Position in a corrupt joint state [rad]."""


@dataclass(frozen=True)
class JointReading:
    """Joint state: stamp [s]; position [rad], velocity [rad/s] and effort [N·m], (n,) each."""

    time: float
    position: FloatArray
    velocity: FloatArray
    effort: FloatArray


@dataclass(frozen=True)
class SensorReading:
    """Reading of one sensor: index in the truth's list, stamp [s] and values."""

    index: int
    time: float
    values: FloatArray


@dataclass
class Readings:
    """Readings that reach the topics in one control step."""

    joints: list[JointReading] = field(default_factory=list)
    wrenches: list[SensorReading] = field(default_factory=list)
    imus: list[SensorReading] = field(default_factory=list)
    tracker: list[SensorReading] = field(default_factory=list)
    gripper: list[float] = field(default_factory=list)


class _WrenchChannel:
    """One force/torque sensor with its filter, delay, rate and stream.

    Attributes:
        frame: Frame of the sensor.
        sensor: The sensor.
        stream: Its stream.

    """

    def __init__(
        self, truth: ForceTorqueTruth, noise: ForceTorqueNoise, every: int,
        generators: Iterator[np.random.Generator],
    ) -> None:
        self.frame = truth.frame
        self.sensor = ForceTorqueSensor(noise, truth, next(generators))
        self.stream: Stream[SensorReading] = Stream(noise, next(generators))
        self._low_pass = LowPass(truth.filter_frequency, round(truth.filter_order), CONTROL_STEP)
        self._delay = Delay(truth.delay, CONTROL_STEP)
        self._every = _whole_steps(truth.rate, f'rate of {truth.frame}') if truth.rate else every
        self._phase = round(truth.phase / CONTROL_STEP)
        self.delayed = bool(truth.filter_frequency or truth.delay)
        self.input: FloatArray = np.zeros(6)

    def update(self, wrench: FloatArray) -> None:
        """Pass a true wrench, in every control step if `delayed`, through filter and delay."""
        self.input = self._delay.step(self._low_pass.step(wrench)) if self.delayed else wrench

    def due(self, count: int) -> bool:
        """Return whether a reading is due in a control step."""
        return count >= self._phase and (count - self._phase) % self._every == 0


class ArmSimulator:
    """Arm, trajectory controller and sensors, advanced by one control step at a time.

    Attributes:
        description: The robot.
        truth: The hidden truth.
        physics: The arm.
        controller: The trajectory controller.
        streamed: Commands that are followed instead of the controller's; None without.
        action_tick: Whether the last step ended on a tick of the action's 20 Hz timer.

    """

    def __init__(
        self,
        description: Description,
        truth: HiddenTruth,
        cell: Cell | None = None,
        settings: ControllerSettings | None = None,
        *,
        seed: int = 0,
        rate: float = 500.0,
        start: FloatArray | None = None,
        command_rate: float = 0.0,
    ) -> None:
        cell = cell or Cell()
        if start is None:
            start = rest_posture(description.limits)
        _check_start(start, description)
        self.description = description
        self.truth = truth
        self.physics = ArmPhysics(description, truth, start)
        self.controller = TrajectoryController(
            description.joints, description.limits,
            replace(settings or ControllerSettings(), cubic_segments=truth.cubic_segments), start,
        )
        self._command_every = _whole_steps(command_rate, 'command_rate') if command_rate else 0
        self.streamed = None if not command_rate else StreamedCommands(
            description.joints, self._command_every * CONTROL_STEP, start)
        self.action_tick = False
        self._every = _whole_steps(rate, 'joint_states_rate')
        self._tracker_every = _whole_steps(cell.tracker.rate, 'rate of the tracker')
        self._action_every = round(ACTION_PERIOD / CONTROL_STEP)
        self._count = 0
        self._published = 0
        self._offset = CLOCK_START
        self._faults = Faults()
        self._since = CLOCK_START
        self._joint_states_due = 0.0
        self._last_wrenches: dict[int, FloatArray] = {}
        self._last_effort: FloatArray | None = None
        self._effort_delay = Delay(truth.effort_delay, CONTROL_STEP)
        self._noise = cell.joint_states
        self._gripper_every = (
            _whole_steps(truth.gripper.rate, 'rate of the gripper') if truth.gripper else 0)
        self._last_stamp = CLOCK_START
        self._hand = np.random.default_rng([seed, 1])
        self._guided: ArmPhysics | None = None
        self._build_sensors(cell, seed)

    @property
    def now(self) -> float:
        """Simulated clock [s]."""
        return self.physics.time + self._offset

    @property
    def faults(self) -> Faults:
        """Active faults."""
        return self._faults

    def set_faults(self, faults: Faults) -> None:
        """Replace the active faults; the clock jumps once, when that fault is activated."""
        for name, jump in (('clock_jump_back', -CLOCK_JUMP), ('clock_jump_forward', CLOCK_JUMP)):
            if name in faults and name not in self._faults:
                self._offset += jump
        for stream in self._streams():
            stream.extra_latency = faults.latency
        for index in faults.of('ft_late'):
            self._wrench_channels[index].stream.extra_latency = faults.latency + SENSOR_DELAY
        self._faults = faults
        self._since = self.now

    def step(self) -> Readings:
        """Advance by one control step and return the readings that reach the topics."""
        physics, controller = self.physics, self.controller
        if 'controller_abort' in self._faults and controller.goal is not None:
            controller.abort(INVALID_GOAL, 'Aborted by the controller (fault on request).')
        if self.streamed is None:
            command = controller.update(physics.encoder, physics.encoder_velocity, CONTROL_STEP)
            effort = controller.effort
        else:
            if self._count % self._command_every == 0:
                self.streamed.begin_cycle()
            command, effort = self.streamed.step(CONTROL_STEP)
        time = self.now
        physics.step(command, effort)
        readings = Readings()
        self._reported = self._effort_delay.step(physics.reported)
        if self._count % self._every == 0:
            self._measure(time, readings)
        self._measure_wrenches(time, readings)
        if self._gripper_every and self._count % self._gripper_every == 0:
            readings.gripper.append(time)
        if self._tracker is not None and self._count % self._tracker_every == 0:
            self._track(time, readings)
        self._count += 1
        self.action_tick = self._count % self._action_every == 0
        return readings

    def guide(self, name: str) -> FloatArray:
        """Guide the arm by hand to a posture in which the ball rests in a socket.

        Args:
            name: The socket.

        Returns:
            The joint angles there as the encoders measure them, shape (n,) [rad].

        Raises:
            ConfigurationError: There is no such socket, the arm moves, or it does not reach it.

        """
        sockets, limits, draw = self.truth.sockets, self.description.limits, self._hand
        if sockets is None or name not in sockets.places:
            raise ConfigurationError(
                f"There is no socket '{name}'; the hidden truth has "
                f'{", ".join(sockets.places) if sockets else "none"}. Set the parameter socket, '
                'or add sockets to the truth file.')
        if self.streamed is not None:
            raise ConfigurationError('The arm follows another controller (command_rate), which '
                                     'would move it back; guide it with its own one.')
        if self.controller.moving:
            raise ConfigurationError('The arm carries out a trajectory; guide it afterwards.')
        if self._guided is None:
            self._guided = ArmPhysics(self.description, self.truth)
        if self.physics.loaded:
            self._guided.attach_load()
        else:
            self._guided.detach_load()
        link = sockets.parent or self.description.tip
        aim = np.array(sockets.places[name]) + sockets.play * draw.standard_normal(3)
        low, high = (np.clip(end, -np.pi, np.pi) for end in (limits.lower, limits.upper))
        for _ in range(_TRIES):
            encoders = draw.uniform(low, high)
            for _ in range(_STEPS):
                self._guided.rest_in(encoders)
                point, jacobian = self._guided.point(link, sockets.ball)
                if np.linalg.norm(aim - point) < _REACHED:
                    break
                encoders = encoders + np.linalg.lstsq(jacobian, aim - point, rcond=1e-3)[0]
            else:
                continue
            if ((encoders > low) & (encoders < high)).all():
                self.physics.place(encoders)
                self.controller.hold()
                return self._joint_sensor.read_positions(encoders)
        raise ConfigurationError(
            f"The socket '{name}' at {list(sockets.places[name])} m is out of reach of the ball; "
            'place it elsewhere in the truth file.')

    def photograph(self) -> FloatArray:
        """Take a photograph of the board.

        Returns:
            A row for each visible corner: joint angles as the encoders measure them [rad], x, y, z
            on the board [m], and u, v [px], shape (k, n + 5).

        Raises:
            ConfigurationError: There is no camera.
            DataError: No corner is visible.

        """
        if self._camera is None:
            raise ConfigurationError(
                'The hidden truth has no camera; add one (camera) to the truth file.')
        camera, physics = self._camera.truth, self.physics
        corners = self._camera.measure(*(
            physics.link_pose(link or self.description.root)
            for link in (camera.link, camera.board.link)))
        angles = self._joint_sensor.read_positions(physics.encoder)
        return np.hstack((np.tile(angles, (len(corners), 1)), corners))

    @property
    def cycle(self) -> int:
        """Control steps of a cycle of the streamed commands; 0 without."""
        return self._command_every

    def _build_sensors(self, cell: Cell, seed: int) -> None:
        truth, joints = self.truth, self.description.joints
        # One random generator per sensor and one per stream.
        count = 2 * (2 + len(truth.force_torque_sensors) + len(truth.imus)) + 2
        generators = (np.random.default_rng(child)
                      for child in np.random.SeedSequence(seed).spawn(count))
        self._joint_sensor = JointSensor(
            cell.joint_states,
            [truth.joints.get(name, JointTruth()) for name in joints],
            next(generators),
        )
        self._joint_stream: Stream[JointReading] = Stream(cell.joint_states, next(generators))
        self._tracker = (
            TrackerSensor(cell.tracker, truth.tracker, next(generators))
            if truth.tracker else None
        )
        self._tracker_stream: Stream[SensorReading] = Stream(cell.tracker, next(generators))
        self._wrench_channels = [
            _WrenchChannel(sensor, cell.force_torque, self._every, generators)
            for sensor in truth.force_torque_sensors
        ]
        self._imu_sensors = [
            (sensor.frame, ImuSensor(cell.imu, next(generators)),
             Stream[SensorReading](cell.imu, next(generators)))
            for sensor in truth.imus
        ]
        self._corruption = next(generators)
        self._camera = CameraSensor(truth.camera, next(generators)) if truth.camera else None

    def _streams(self) -> Iterator[Stream[JointReading] | Stream[SensorReading]]:
        yield self._joint_stream
        yield self._tracker_stream
        for channel in self._wrench_channels:
            yield channel.stream
        for _, _, stream in self._imu_sensors:
            yield stream

    def _measure(self, time: float, readings: Readings) -> None:
        faults = self._faults
        if 'joint_states_silent' not in faults and not self._too_early(time):
            readings.joints = _pass(self._joint_stream, time, self._joint_reading(time))
        if 'imu_silent' not in faults:
            for index, (frame, imu, stream) in enumerate(self._imu_sensors):
                values = imu.measure(self.physics.inertial(frame))
                readings.imus += _pass(stream, time, SensorReading(index, time, values))

    def _measure_wrenches(self, time: float, readings: Readings) -> None:
        due = []
        for index, channel in enumerate(self._wrench_channels):
            if channel.due(self._count):
                due.append(index)
            if channel.delayed:
                channel.update(self.physics.wrench(channel.frame))
        if not due:
            return
        silent = self._faults.of('ft_silent')
        found = self._wrench_readings(time)
        for index in due:
            if index not in silent:
                readings.wrenches += _pass(self._wrench_channels[index].stream, time,
                                           SensorReading(index, time, found[index]))

    def _too_early(self, time: float) -> bool:
        """Return whether the fault joint_states_slow suppresses this joint state."""
        if 'joint_states_slow' not in self._faults:
            return False
        # The lower bound: after a clock jump back, joint states are due at once.
        if self._joint_states_due - SLOW_PERIOD <= time < self._joint_states_due - 1.0e-9:
            return True
        self._joint_states_due = time + SLOW_PERIOD
        return False

    def _wrench_readings(self, time: float) -> list[FloatArray]:
        """Return the readings of the force/torque sensors, with their faults."""
        readings = []
        angle = float(self.physics.position[-1])
        for channel in self._wrench_channels:
            if not channel.delayed:
                channel.update(self.physics.wrench(channel.frame))
            readings.append(channel.sensor.measure(channel.input, time - CLOCK_START, angle))
        if self._faults.sensors:
            self._corrupt_wrenches(time, readings)
        self._last_wrenches = dict(enumerate(readings))
        return readings

    def _corrupt_wrenches(self, time: float, readings: list[FloatArray]) -> None:
        """Apply the faults of force/torque sensors in place."""
        faults = self._faults
        swapped = faults.of(SWAP)
        for one, other in zip(swapped[::2], swapped[1::2], strict=True):
            readings[one], readings[other] = readings[other], readings[one]
        for index in faults.of('ft_flipped'):
            readings[index] = -readings[index]
        for index in faults.of('ft_drift'):
            readings[index][0] += SENSOR_DRIFT * (time - self._since)
        for index in faults.of('ft_saturated'):
            worst = int(np.argmax(np.abs(readings[index][:3])))
            readings[index][worst] = np.copysign(SENSOR_RANGE, readings[index][worst])
        for index in faults.of('ft_stuck'):
            readings[index] = self._last_wrenches.get(index, readings[index])
        for index in faults.of('ft_nan'):
            readings[index] = np.full(6, np.nan)

    def _joint_reading(self, time: float) -> JointReading:
        physics = self.physics
        position, velocity, effort = self._joint_sensor.measure(
            physics.encoder, physics.encoder_velocity, self._reported
        )
        if self._faults.joints:
            self._corrupt(effort)
        else:
            self._last_effort = effort
        self._published += 1
        if 'stamps_disordered' in self._faults and self._published % 5 == 0:
            # Every fifth message is stamped earlier than its predecessor.
            time -= 2.5 * self._every * CONTROL_STEP
        reading = JointReading(time, position, velocity, effort)
        return self._corrupted(reading) if self._corrupts else reading

    @property
    def _corrupts(self) -> bool:
        noise = self._noise
        return bool(noise.zero_stamps or noise.repeated_stamps or noise.wall_stamps
                    or noise.outliers or noise.zero_rows)

    def _corrupted(self, reading: JointReading) -> JointReading:
        """Return a joint state with the drawn corruption of stamps and values."""
        noise, chance = self._noise, self._corruption.random(5)
        time, position = reading.time, reading.position
        if chance[0] < noise.repeated_stamps:
            time = self._last_stamp
        self._last_stamp = time
        if chance[1] < noise.wall_stamps:
            time += WALL_TIME
        if chance[2] < noise.zero_stamps:
            time = 0.0
        if chance[3] < noise.outliers:
            position = np.full_like(position, OUTLIER)
        if chance[4] < noise.zero_rows:
            zero = np.zeros_like(position)
            return JointReading(time, zero, zero, zero)
        return JointReading(time, position, reading.velocity, reading.effort)

    def _corrupt(self, effort: FloatArray) -> None:
        """Apply the effort faults in place."""
        stuck = list(self._faults.of('effort_stuck'))
        if stuck and self._last_effort is not None:
            effort[stuck] = self._last_effort[stuck]
        effort[list(self._faults.of('effort_zero'))] = 0.0
        effort[list(self._faults.of('effort_nan'))] = np.nan

    def _track(self, time: float, readings: Readings) -> None:
        if self._tracker is None or self.truth.tracker is None:
            return
        link = self.truth.tracker.target_link or self.description.tip
        point = self._tracker.measure(*self.physics.link_pose(link), self.physics.time)
        if point is not None and 'tracker_silent' not in self._faults:
            readings.tracker = _pass(self._tracker_stream, time, SensorReading(0, time, point))


def _pass(stream: Stream, time: float, sample: object) -> list:  # type: ignore[type-arg]
    """Push a sample into its stream and return the samples that arrive now."""
    if stream.immediate:
        return [sample]
    stream.push(time, sample)
    return stream.take(time)


def rest_posture(limits: JointLimits) -> FloatArray:
    """Return the default start posture: zero, or mid-range where zero violates the limits."""
    bounded = np.isfinite(limits.lower) & np.isfinite(limits.upper)
    lower = np.where(bounded, limits.lower, -1.0)
    upper = np.where(bounded, limits.upper, 1.0)
    margin = 0.02 * (upper - lower)
    inside = (lower + margin <= 0.0) & (upper - margin >= 0.0)
    return np.where(inside, 0.0, 0.5 * (lower + upper))


def _check_start(start: FloatArray, description: Description) -> None:
    limits = description.limits
    if start.shape != limits.lower.shape or not np.isfinite(start).all():
        raise ConfigurationError(
            f'The parameter initial_positions is {start.tolist()}; expected '
            f'{len(description.joints)} finite angles for {", ".join(description.joints)}.'
        )
    if (start < limits.lower).any() or (start > limits.upper).any():
        raise ConfigurationError(
            f'The parameter initial_positions is {start.tolist()}; expected angles between '
            f'{limits.lower.tolist()} and {limits.upper.tolist()}, the joint limits.'
        )


def _whole_steps(rate: float, name: str) -> int:
    if not 0.0 < rate <= 1.0 / CONTROL_STEP:
        raise ConfigurationError(
            f'The {name} is {rate} Hz; expected more than 0 and at most '
            f'{1.0 / CONTROL_STEP:.0f} Hz.'
        )
    steps = round(1.0 / (rate * CONTROL_STEP))
    if abs(steps * rate * CONTROL_STEP - 1.0) > 1.0e-6:
        raise ConfigurationError(
            f'The {name} is {rate} Hz; expected {1.0 / CONTROL_STEP:.0f} Hz divided by a whole '
            'number, such as 500, 250 or 100.'
        )
    return steps
