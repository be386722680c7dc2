# SPDX-License-Identifier: Apache-2.0
"""Benchmark of external-wrench observation: accuracy, location, detection, speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
import pinocchio as pin

from benchmarks import seven_joints
from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.peers.process import Run, run
from benchmarks.wrench_samples import (
    EPOCH,
    FORCE_NOISE,
    Impact,
    SampledArm,
    Settings,
    Stream,
    follow,
    in_order,
)
from robocal_ros.arrays import frozen
from robocal_ros.errors import RobocalError
from robocal_ros.robot import RigidBodyInertia, SteadyFriction, with_payload
from robocal_ros.wrench import Observation, OfflineObserver, WrenchObserver, WrenchParameters

# Free motion in which false contacts are counted [s], impacts, pushes, weak pushes; share of them
# in a quick run.
_MOTION, _IMPACTS, _PUSHES, _WEAK, _QUICK = 3600.0, 1000, 100, 100, 0.01
# Motion over which forces are compared, samples at a time [s], and samples per iDynTree call.
_COMPARED, _AT_A_TIME, _SKIPPED = 20.0, 20.0, 20
# Evaluated part of a push: after it has filled the window, and before it ends [s].
_SETTLED, _LASTING = 0.05, 0.3
_RANGE = 200.0
# Tubes that are pushed: sub-chain, radius and range along the axis [m].
_TUBES = ((0, 0.05, (0.02, 0.10)), (2, 0.05, (0.02, 0.08)))
_WARM_UP, _EVERY, _BLOCK = 500, 250, 4096
_LAW = SteadyFriction(frozen((4.0, 4.5)), frozen((7.0, 7.5)), frozen((0.05, 0.05)),
                      frozen((5.0, 5.0)))


@dataclass(frozen=True)
class Case:
    """Results of one drawn arm whose model and load are not quite those that it believes.

    Attributes:
        ratio: Largest force RMS of a link in motion over the sensors' noise.
        weight_only: The same of the wrist sensor with its weight alone compensated.
        peer: ``ratio`` of iDynTree on the same smoothed values; NaN if it is not installed.
        false_alarms: Contacts without an impact.
        moving: Time of free motion [s].
        missed: Impacts without a contact on the link that they hit.
        impacts: Number of impacts.
        position: Errors of the contact point, mean over each push of 20 N and more with one [mm].
        force: Errors of the mean force of these pushes [N].
        delays: Delays to the detection of pushes of 10 N for 0.2 s [ms]; infinite if missed.

    """

    ratio: float
    weight_only: float
    peer: float
    false_alarms: int
    moving: float
    missed: int
    impacts: int
    position: tuple[float, ...]
    force: tuple[float, ...]
    delays: tuple[float, ...]


def by_idyntree(urdf: str, seen: Sequence[Observation]) -> tuple[Run, list[Observation]]:
    """Return iDynTree's wrenches from smoothed values, and the observations that hold these."""
    used = [item for item in seen if item.motion is not None and not any(item.reasons)]
    parts = [np.array(part) for part in zip(*(
        item.motion for item in used if item.motion is not None), strict=True)]
    distal, held = (np.array([getattr(item, name) for item in used])
                    for name in ('distal', 'held'))
    return run('benchmarks.peers.tools:idyntree', peer=True, repeats=1, urdf=urdf,
               joints=seven_joints.JOINTS, sensors=seven_joints.SENSORS, q=parts[0], v=parts[1],
               a=parts[2], readings=distal - held), used


def run_case(
    seed: int, *, error: float, motion: float, impacts: int, pushes: int, weak: int
) -> Case:
    """Observe one arm through asynchronous, filtered, jittering streams.

    The payload is the true one up to 0.5 % of its mass and 1 mm of its centre, as identified.

    Args:
        seed: Seed of all that is drawn.
        error: Standard deviation of the links' inertias from the URDF's, relative.
        motion: Time of free motion [s].
        impacts: Impacts of 5 to 20 ms, every second one saturates the sensor.
        pushes: Pushes of 20 to 60 N on two tubes, inwards and up to 0.5 rad off the normal.
        weak: Pushes of 10 N for 0.2 s.

    """
    load = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), 2e-3 * np.eye(3))
    draw = np.random.default_rng([seed, 3])
    arm = SampledArm(
        seven_joints.urdf(), seven_joints.SENSORS,
        Settings(sensor_rates=(1000.0, 1000.0, 1000.0, 500.0), inertia_error=error, range=_RANGE),
        seed=seed, load=load)
    observer = WrenchObserver(arm.robot, WrenchParameters(
        sensor_frames=list(seven_joints.SENSORS), sensor_force_ranges=[_RANGE],
        require_tare=False, sensor_delays=[1e-3, 1e-3, 1e-3, 2e-3]))
    identified = RigidBodyInertia(
        load.mass * (1.0 + 0.005 * draw.normal()), load.com + 1e-3 * draw.normal(size=3),
        load.inertia)
    observer.carry(identified, 'tool0')
    joints, sensors = arm.samples(min(motion, _COMPARED))
    whole = OfflineObserver(observer)
    _add(whole, joints, sensors)
    block = whole.take(final=True)
    if block is None:
        raise RobocalError('No sample was complete.')
    ratio = max(float(np.sqrt(np.mean(block.wrench[block.valid[:, i], i, :3]**2)))
                for i in range(len(sensors)))
    done, _ = by_idyntree(with_payload(seven_joints.urdf(), identified, 'tool0'),
                          follow(observer, joints, sensors)[::_SKIPPED])
    observer.clear()
    peer = np.nan if done.answer is None else float(np.sqrt(np.mean(
        np.square(done.answer[:, :, :3]), axis=(0, 2))).max())
    q = arm.motion((sensors[3].stamps - EPOCH) / 1e9)[0]
    held = observer.arm.held_many(q, 0.0 * q, 0.0 * q)[0][:, 3]
    weight_only = float(np.sqrt(np.mean((sensors[3].values + held)[:, :3]**2)))
    alarms = _count_contacts(observer, arm, motion)
    missed = _missed(observer, arm, draw, impacts)
    position, force = _located(observer, arm, draw, pushes)
    delays = []
    for number in range(weak):
        push = _push(draw, arm.now + 0.1, _TUBES[number % 2], 10.0, 0.2)
        seen = [_time(item) - push.begin for item in follow(observer, *arm.samples(0.4, [push]))
                if push.chain in item.contacts]
        delays.append(1e3 * seen[0] if seen else np.inf)
    return Case(ratio / FORCE_NOISE, weight_only / FORCE_NOISE, peer / FORCE_NOISE, alarms,
                motion, missed, impacts, position, force, tuple(delays))


def _time(item: Observation) -> float:
    return (item.nanoseconds - EPOCH) / 1e9


def _push(draw: np.random.Generator, begin: float, tube: tuple[int, float, tuple[float, float]],
          force: float, duration: float) -> Impact:
    """Push a tube at a random point of its surface, inwards."""
    chain, radius, along = tube
    angle, turn = draw.uniform(0.0, 2.0 * np.pi, 2)
    slant = draw.uniform(0.0, 0.5)
    outwards, side, axis = (np.array(one) for one in (
        (np.cos(angle), np.sin(angle), 0.0), (-np.sin(angle), np.cos(angle), 0.0),
        (0.0, 0.0, 1.0)))
    direction = -np.cos(slant) * outwards + np.sin(slant) * (
        np.cos(turn) * side + np.sin(turn) * axis)
    return Impact(chain, force * direction, radius * outwards + draw.uniform(*along) * axis, begin,
                  duration)


def _located(
    observer: WrenchObserver, arm: SampledArm, draw: np.random.Generator, count: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Push while the arm moves; return errors of points [mm] and of forces [N]."""
    position, force = [], []
    for number in range(count):
        push = _push(draw, arm.now + 0.1, _TUBES[number % 2], draw.uniform(20.0, 60.0), _LASTING)
        told = [item for item in follow(observer, *arm.samples(0.6, [push]))
                if _SETTLED < _time(item) - push.begin < _LASTING
                and not item.reasons[push.chain]]
        force.append(float(np.linalg.norm(np.mean(
            [item.wrench[push.chain, :3] for item in told], axis=0) - push.force)))
        points = [contact.point for item in told
                  if (contact := item.contacts.get(push.chain)) and contact.point is not None]
        if points:
            position.append(1e3 * float(np.mean(np.linalg.norm(points - push.point, axis=1))))
    return tuple(position), tuple(force)


def _missed(
    observer: WrenchObserver, arm: SampledArm, draw: np.random.Generator, count: int
) -> int:
    """Hit the arm; return the number of impacts without a contact on the link."""
    given = []
    for number, begin in enumerate((arm.now + 0.1 + 0.2 * np.arange(count)).tolist()):
        direction = draw.normal(size=3)
        size = 900.0 if number % 2 else draw.uniform(40.0, 120.0)
        given.append(Impact((0, 3)[number // 2 % 2], size * direction / np.linalg.norm(direction),
                            np.array([0.03, 0.0, 0.02]), begin, draw.uniform(0.005, 0.02)))
    whole = OfflineObserver(observer)
    _add(whole, *arm.samples(0.2 * count + 0.2, given))
    block = whole.take(final=True)
    found = {index: np.array([] if block is None else [
        (block.stamps[row] - EPOCH) / 1e9 for row, links in block.contacts.items()
        if index in links]) for index in (0, 3)}
    return sum(not ((found[item.chain] > item.begin)
                    & (found[item.chain] < item.begin + 0.1)).any() for item in given)


def _count_contacts(observer: WrenchObserver, arm: SampledArm, motion: float) -> int:
    """Return the number of contacts that begin in free motion of some time [s]."""
    whole, done, count, last = OfflineObserver(observer), 0.0, 0, -1
    offset = 0
    while done < motion:
        _add(whole, *arm.samples(min(_AT_A_TIME, motion - done)))
        done += _AT_A_TIME
        block = whole.take(final=done >= motion)
        if block is None:
            continue
        for row in sorted(block.contacts):
            count += offset + row != last + 1
            last = offset + row
        offset += len(block)
    return count


def _add(whole: OfflineObserver, joints: Stream, sensors: Sequence[Stream]) -> None:
    whole.add_joint_states(joints.stamps, joints.values)
    for index, stream in enumerate(sensors):
        whole.add_readings(index, stream.stamps, stream.values, {})


def figures(error: float, cases: Sequence[Case]) -> list[Figure]:
    """Return accuracy, location and detection of arms with an error of the links' inertias."""
    series = f'asynchronous filtered sensors, identified payload, inertias off {error:.0%}'

    def every(name: str) -> list[float]:
        return [value for case in cases for value in getattr(case, name)]

    def total(name: str) -> float:
        return float(sum(getattr(case, name) for case in cases))

    rows = [Figure.over(series, words, '1', values, limit) for name, words, limit in (
        ('ratio', 'force RMS ÷ noise, worst link', 1.5 if error == 0.0 else 2.5),
        ('peer', 'force RMS ÷ noise, worst link, iDynTree', None),
        ('weight_only', 'force RMS ÷ noise, wrist, weight alone compensated', None))
        if np.isfinite(values := [getattr(case, name) for case in cases]).all()]
    delays = every('delays')
    return [
        *rows,
        Figure.single(series, f'false contacts in {total("moving") / 60.0:.0f} min', '1',
                      total('false_alarms'), 0.0),
        Figure.single(series, f'missed of {total("impacts"):.0f} impacts of 5 to 20 ms', '1',
                      total('missed'), 0.0),
        Figure.over(series, 'contact position, push of 20–60 N', 'mm', every('position'), 5.0),
        Figure.over(series, 'force, push of 20–60 N', 'N', every('force')),
        Figure.single(series, f'pushes without contact point, of {len(every("force"))}', '1',
                      len(every('force')) - len(every('position')), 0.0),
        Figure.share(series, 'pushes of 10 N for 0.2 s found within 20 ms',
                     sum(delay <= 20.0 for delay in delays), len(delays), 99.0)]


def speed(duration: float) -> list[Figure]:
    """Return computation per sample beside one call of RNEA, timed in turn, and of iDynTree.

    Args:
        duration: Duration of the samples [s].

    """
    laws = dict.fromkeys(seven_joints.JOINTS, _LAW)
    arm = SampledArm(seven_joints.urdf(), seven_joints.SENSORS, seed=1, laws=laws)
    observer = WrenchObserver(arm.robot, WrenchParameters(
        sensor_frames=list(seven_joints.SENSORS), sensor_force_ranges=[1e4],
        sensor_torque_ranges=[1e4], require_tare=False))
    observer.use_friction(laws)
    model, data, still = arm.robot.model, arm.robot.data, np.zeros(arm.robot.n)
    rnea: list[float] = []
    kept: list[Observation] = []

    def feed(joints: Stream, sensors: Sequence[Stream]) -> float:
        """Return the median time per joint state, readings included [µs]."""
        taken, spent = [], 0.0
        for stamp, index, row in list(in_order(joints, sensors)):
            began = perf_counter()
            if index < 0:
                observer.joint_chains.add(stamp, row)
            else:
                observer.feeds[index].add(stamp, row)
            while (observation := observer.take()) is not None:
                kept.append(observation)
            spent += perf_counter() - began
            if index >= 0:
                continue
            taken.append(spent)
            spent = 0.0
            for _ in range(_EVERY * (len(taken) % _EVERY == 0)):
                began = perf_counter()
                pin.rnea(model, data, still, still, still)
                rnea.append(perf_counter() - began)
        return 1e6 * float(np.median(taken[_WARM_UP:]))

    samples = arm.samples(duration)
    free = feed(*samples)
    done, used = by_idyntree(arm.urdf, kept[::5])
    push = Impact(0, np.array([-30.0, 6.0, 0.0]), np.array([0.05, 0.0, 0.06]), arm.now, duration)
    touched = feed(*arm.samples(duration, [push]))
    whole, (joints, sensors) = OfflineObserver(observer), samples
    began = perf_counter()
    for begin in range(0, len(joints.stamps), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        _add(whole, *((Stream(joints.stamps[part], joints.values[part])), [
            Stream(stream.stamps[part], stream.values[part]) for stream in sensors]))
        whole.take()
    whole.take(final=True)
    blocks = 1e-3 * len(joints.stamps) / (perf_counter() - began)
    series = 'computation per sample, 7 joints, 4 asynchronous sensors, wall-clock stamps'
    one = 1e6 * float(np.median(rnea))
    machine = f'one RNEA call takes {one:.2f} µs here'
    rows = [Figure.single(series, 'median, free', 'µs', free, 60.0, reason=machine),
            Figure.single(series, 'median, in contact', 'µs', touched, 60.0, reason=machine),
            Figure.single(series, 'median ÷ one RNEA call', '1', free / one, 40.0),
            Figure.single(series, 'whole arrays, times real time at 1 kHz', '1', blocks, 100.0,
                          at_least=True)]
    if done.answer is not None:
        peer = 1e6 * done.seconds / len(used)
        apart = max(float(np.abs(item.wrench - other).max())
                    for item, other in zip(used, done.answer, strict=True))
        rows += [Figure.single(series, 'median ÷ one iDynTree call on the smoothed values', '1',
                               free / peer, 1.0),
                 Figure.single(series, "largest difference of iDynTree's wrenches", 'N, N·m',
                               apart)]
    return rows


def _run(request: Request) -> Outcome:
    share, count = (_QUICK if request.quick else 1.0), len(request.seeds)
    rows, found = [], []
    for error in (0.0, 0.02):
        case = partial(run_case, error=error, motion=share * _MOTION / (2 * count), **{
            name: math.ceil(share * size / (2 * count)) for name, size in (
                ('impacts', _IMPACTS), ('pushes', _PUSHES), ('weak', _WEAK))})
        cases = in_parallel(case, request.seeds, request.jobs, 'wrench')
        rows += figures(error, cases)
        found += cases
    # Measured alone, after the parallel processes have ended.
    return Outcome([*rows, *speed(1.0 if request.quick else 5.0)], found)


BENCHMARK = Benchmark('External wrench', (
    'Asynchronous, filtered, jittering streams of an arm with seven joints and four sensors that '
    'moves, is pushed and hit.'), _run, seeds=4)
