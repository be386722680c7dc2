# SPDX-License-Identifier: Apache-2.0
"""External force on the tool: the product, iDynTree, a momentum observer, weight alone.

The momentum observer (De Luca, Mattone, Sensorless Robot Collision Detection and Hybrid
Force/Motion Control, ICRA 2005, 999, doi 10.1109/ROBOT.2005.1570247) reads joint torques and needs
no F/T sensor; the others read the wrist sensor, in motion, while the tool is pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pinocchio as pin

from benchmarks import seven_joints
from benchmarks.benchmark import Benchmark, Outcome, Request
from benchmarks.peers.comparison import COLUMNS, NO_VERDICT, Row, limits, tables
from benchmarks.peers.process import Run, run
from benchmarks.wrench_peers import with_payload
from benchmarks.wrench_samples import EPOCH, Impact, SampledArm, Settings, Stream
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.estimation import low_passed
from robocal_ros.results import rms
from robocal_ros.robot import RigidBodyInertia, Robot
from robocal_ros.wrench import OfflineObserver, WrenchObserver, WrenchParameters

OURS, IDYNTREE, MOMENTUM, WEIGHT = 'robocal', 'iDynTree', 'momentum observer', 'weight alone'
REASON = ('The others read positions and readings that were low-passed over the whole record '
          'without delay, the product those of a short window.')

_DURATION, _PUSHES, _LASTING = 10.0, 5, 0.5
_LOAD = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), 2e-3 * np.eye(3))
_TOOL = 3
_GAIN = 30.0
_CUTOFF = 20.0
_SKIPPED = 20
_DELAYS = (1e-3, 1e-3, 1e-3, 2e-3)


def product(
    *, joints: Stream, sensors: Sequence[Stream], load: RigidBodyInertia
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the product's observation of the tool's force."""
    observer = WrenchObserver(Robot(seven_joints.urdf()), WrenchParameters(
        sensor_frames=list(seven_joints.SENSORS), require_tare=False,
        sensor_delays=list(_DELAYS)))
    observer.carry(load, 'tool0')

    def solve() -> Callable[[], dict[str, Any]]:
        whole = OfflineObserver(observer)
        whole.add_joint_states(joints.stamps, joints.values)
        for index, stream in enumerate(sensors):
            whole.add_readings(index, stream.stamps, stream.values, {})
        block = whole.take(final=True)

        def answer() -> dict[str, Any]:
            if block is None:
                raise RobocalError('No sample was complete.')
            used = block.valid[:, _TOOL]
            return {'time': (block.stamps[used] - EPOCH) / 1e9,
                    'force': block.wrench[used, _TOOL, :3]}

        return answer

    return solve


def _smoothed(joints: Stream, sensor: Stream) -> tuple[Array, Array, Array, Array, Array]:
    """Return time, positions, velocities, accelerations and readings at an even rate."""
    time = (joints.stamps - EPOCH) / 1e9
    period = float(np.median(np.diff(time)))
    even = time[0] + period * np.arange(int(np.ptp(time) / period))
    n = joints.values.shape[1] // 3
    rows = np.column_stack([np.interp(even, time, column) for column in joints.values.T[:n]])
    q = low_passed(rows, period, _CUTOFF)
    v = np.gradient(q, period, axis=0)
    readings = np.column_stack([
        np.interp(even, (sensor.stamps - EPOCH) / 1e9 - _DELAYS[_TOOL], column)
        for column in sensor.values.T])
    return even, q, v, np.gradient(v, period, axis=0), low_passed(readings, period, _CUTOFF)


def _idyntree(joints: Stream, sensors: Sequence[Stream], load: RigidBodyInertia) -> Run:
    """Run iDynTree on every twentieth of the smoothed samples."""
    parts = [_smoothed(joints, sensor) for sensor in sensors]
    time, q, v, a, _ = (part[::_SKIPPED] for part in parts[_TOOL])
    done = run('benchmarks.peers.idyntree_wrench:observe', peer=True, q=q, v=v, a=a,
               urdf=with_payload(seven_joints.urdf(), 'tool0', load),
               joints=seven_joints.JOINTS, sensors=seven_joints.SENSORS,
               readings=np.stack([part[4][::_SKIPPED] for part in parts], axis=1))
    if done.answer is None:
        return done
    return replace(done, answer={'time': time, 'force': done.answer})


def momentum(
    *, joints: Stream, sensors: Sequence[Stream], load: RigidBodyInertia
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the force of the momentum observer on joint torques."""
    robot = Robot(seven_joints.urdf()).with_payload(load, 'tool0')
    n, frame = robot.n, robot.frame_id(seven_joints.SENSORS[_TOOL])

    def solve() -> Callable[[], dict[str, Any]]:
        model, data = robot.model, robot.data
        time = (joints.stamps - EPOCH) / 1e9
        q, v, torque = (joints.values[:, i * n:(i + 1) * n] for i in range(3))
        force = np.empty((len(time), 3))
        external, total, first = np.zeros(n), np.zeros(n), None
        for row in range(len(time)):
            step = time[row] - time[row - 1] if row else 0.0
            mass = pin.crba(model, data, q[row])
            mass = np.triu(mass) + np.triu(mass, 1).T
            coriolis = pin.computeCoriolisMatrix(model, data, q[row], v[row])
            gravity = pin.computeGeneralizedGravity(model, data, q[row])
            impulse = mass @ v[row]
            first = impulse if first is None else first
            total = total + step * (torque[row] + coriolis.T @ v[row] - gravity + external)
            external = _GAIN * (impulse - first - total)
            jacobian = pin.computeFrameJacobian(
                model, data, q[row], frame, pin.ReferenceFrame.LOCAL)
            # The force alone: the observer is told where the arm is pushed.
            force[row] = np.linalg.lstsq(jacobian[:3].T, external, rcond=1e-2)[0]

        def answer() -> dict[str, Any]:
            return {'time': time, 'force': force}

        return answer

    return solve


def weight(
    *, joints: Stream, sensors: Sequence[Stream], load: RigidBodyInertia
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the wrist's reading plus the weight of all that it carries."""
    robot = Robot(seven_joints.urdf())
    frame = seven_joints.SENSORS[_TOOL]
    mass = load.mass + robot.distal_inertia(frame).mass

    def solve() -> Callable[[], dict[str, Any]]:
        time, q, _, _, readings = _smoothed(joints, sensors[_TOOL])
        rows = slice(None, None, _SKIPPED)
        down = np.array([robot.transform_frame_to_root(posture, frame).rotation.T @ robot.gravity
                         for posture in q[rows]])

        def answer() -> dict[str, Any]:
            return {'time': time[rows], 'force': readings[rows, :3] - mass * down}

        return answer

    return solve


def run_case(seed: int, error: float) -> list[Row]:
    """Return the rows of all methods on one arm.

    Args:
        seed: Seed of all that is drawn.
        error: Standard deviation of the links' inertias from the URDF's, relative.

    """
    draw = np.random.default_rng([seed, 3])
    arm = SampledArm(seven_joints.urdf(), seven_joints.SENSORS, Settings(
        sensor_rates=(1000.0, 1000.0, 1000.0, 500.0), inertia_error=error), seed=seed, load=_LOAD)
    load = RigidBodyInertia(
        _LOAD.mass * (1.0 + 0.005 * draw.normal()), _LOAD.com + 1e-3 * draw.normal(size=3),
        _LOAD.inertia)
    begins = 1.0 + (_DURATION - 2.0) / _PUSHES * np.arange(_PUSHES)
    pushes = [Impact(_TOOL, 30.0 * (direction := draw.normal(size=3)) / np.linalg.norm(direction),
                     np.zeros(3), float(begin), _LASTING) for begin in begins]
    joints, sensors = arm.samples(_DURATION, pushes)
    case = f'push of 30 N, links off by {100.0 * error:.0f} %'
    found = []
    for method, function in ((OURS, 'product'), (IDYNTREE, ''), (MOMENTUM, 'momentum'),
                             (WEIGHT, 'weight')):
        done = run(f'benchmarks.peers.wrench:{function}', joints=joints, sensors=sensors,
                   load=load) if function else _idyntree(joints, sensors, load)
        found.append(_row(case, method, seed, pushes, done))
    return found


def _row(case: str, method: str, seed: int, pushes: Sequence[Impact], done: Run) -> Row:
    if done.answer is None:
        return Row(case, method, seed, reason=done.reason)
    time, force = done.answer['time'], done.answer['force']
    truth, pushed, near = np.zeros_like(force), *np.zeros((2, len(time)), dtype=bool)
    for item in pushes:
        rows = (time >= item.begin) & (time < item.begin + item.duration)
        truth[rows] = item.force
        pushed |= (time >= item.begin + 0.1) & (time < item.begin + item.duration - 0.05)
        near |= (time >= item.begin - 0.1) & (time < item.begin + item.duration + 0.2)
    inner = (time > 0.5) & (time < _DURATION - 0.5)
    error = force - truth
    return Row(case, method, seed, {
        'force in free motion, RMS per axis [N]': rms(error[inner & ~near]),
        'force while pushed, RMS per axis [N]': rms(error[inner & pushed])},
        verdict=NO_VERDICT, seconds=done.seconds, memory=done.memory)


class WrenchPeersBenchmark(Benchmark):
    """Random arms with seven joints and four sensors, pushed at the tool while they move."""

    title = 'External force, by several methods'
    about = (
        'A fictitious arm with seven joints and four F/T sensors moves for 10 s and is pushed '
        'five times for 0.5 s at its tool; the payload is known to 0.5 % and 1 mm. iDynTree and '
        'weight compensation read positions and readings low-passed at 20 Hz, every twentieth '
        'sample; the product every sample at 1 kHz; the momentum observer joint torques with '
        f'0.2 N·m of noise, no F/T sensor, and the place of the push. In the tables, {COLUMNS}')
    seeds = 3

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        rows = [row for error in ((0.0,) if request.quick else (0.0, 0.02))
                for seed in request.seeds for row in run_case(seed, error)]
        return Outcome(list(limits(rows, {OURS: (IDYNTREE, MOMENTUM, WEIGHT)}, REASON)), rows,
                       tables=list(tables(rows)))


BENCHMARK = WrenchPeersBenchmark()
