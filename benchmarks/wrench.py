# SPDX-License-Identifier: Apache-2.0
"""Benchmark of external-wrench observation: accuracy, location, detection, speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import seven_joints, wrench_coverage
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.figures import Figure
from benchmarks.random_cell import random_tool
from benchmarks.wrench_arm import ObservedArm, PushTruth, of_chain
from benchmarks.wrench_peers import IdynTree, with_payload
from benchmarks.wrench_samples import (
    EPOCH,
    FORCE_NOISE,
    Impact,
    SampledArm,
    Settings,
    Stream,
    follow,
)
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.robot import RigidBodyInertia
from robocal_ros.wrench import Observation, OfflineObserver, WrenchObserver, WrenchParameters

TUBES = {'ft_link_2_proximal': (0.055, (0.04, 0.28), (0, 1, 2)),
         'ft_link_3_proximal': (0.046, (0.03, 0.13), (2, 0, 1))}
"""By link: radius of its tube [m], range along its axis [m], order of cross and axial axes."""

IMUS = {'ft_link_2_proximal': 'imu_link_2', 'ft_link_3_proximal': 'imu_link_3',
        'ft_wrist': 'imu_flange'}

_FORCE_BAR = 1.5
_POSITION_BAR = 5.0
_LATENCY_BAR = 20.0
_FREE_MOTION = 600.0
_PUSHES = 100
_WEAK_PUSHES = 100
_LIVE = 60.0
# Length of the bag that is estimated [s].
_BAG = 300.0
# Free motion in which false contacts are counted [s], and number of impacts.
_ALARM_MOTION, _IMPACTS = 3600.0, 1000
# Motion over which forces are compared, samples at a time [s], and samples per iDynTree call.
_COMPARED, _AT_A_TIME, _SKIPPED = 20.0, 20.0, 20
# Draws for the coverage of covariances, and random layouts of each kind on each arm and seed.
_DRAWS, _LAYOUTS = 3000, 5
# Share of motions and pushes of a quick run.
_QUICK = 0.01
# Evaluated part of a push: after it has filled the window, and before it ends [s].
_SETTLED, _LASTING = 0.05, 0.3
_TILT = 0.5


@dataclass(frozen=True)
class Case:
    """Outcome of one random arm.

    Attributes:
        seed: Seed of tool, biases, noise, motions and pushes.
        ratio: Force RMS error over sensor noise in free motion, by link and condition.
        moving: Duration of free motion [s].
        false_alarms: Number of contacts reported in it.
        jolted_alarms: Number of contacts reported in motions that begin with a jolt.
        jolted_ratio: ``ratio`` of the worst link in these motions.
        position: Errors of the contact point, one per push of 20 N and more [m].
        worst_position: Largest error of any sample of such a push [m].
        force: Errors of the mean force of such pushes [N].
        unplaced: Number of pushes without a contact point.
        elsewhere: Number of pushes during which a contact of another link was reported.
        delays: Delay from begin to detection of pushes of 10 N for 0.2 s [s]; None if missed.

    """

    seed: int
    ratio: dict[str, float]
    moving: float
    false_alarms: int
    jolted_alarms: int
    jolted_ratio: float
    position: tuple[float, ...]
    worst_position: float
    force: tuple[float, ...]
    unplaced: int
    elsewhere: int
    delays: tuple[float | None, ...]


class _Experiment:
    """One random arm."""

    def __init__(self, seed: int, *, tool: bool, imu: bool) -> None:
        self.generator = np.random.default_rng([seed, 7])
        hidden = default_cell.hidden_truth()
        truth = replace(hidden, tracker=None, load=None,
                        tool=random_tool(self.generator) if tool else None,
                        imus=hidden.imus if imu else ())
        self.noise = default_cell.reference_cell().force_torque.force_sigma
        self.made = ObservedArm(seed, truth=truth, imus=IMUS if imu else None)
        self.made.carry_tool()
        self.made.run(0.2)
        self.made.tare()

    def free_motion(
        self, duration: float, *, jolts: bool = False
    ) -> tuple[dict[str, float], float, int]:
        """Return RMS over noise by link, duration of motion [s], and number of contacts.

        Args:
            duration: Minimum duration [s].
            jolts: True to begin motions with a step, like a controller that starts from
                measured positions.

        """
        squares = dict.fromkeys(self.made.frames, 0.0)
        counts = dict.fromkeys(self.made.frames, 0)
        alarms, done = 0, 0.0
        before = [False] * len(squares)
        while done < duration:
            path = self.made.random_path(self.generator, 4, measured=jolts)
            length = self.made.begin_motion(path) + 0.1
            done += length
            told = self.made.run(length)
            for index, frame in enumerate(self.made.frames):
                forces = np.array([item.wrench[index, :3] for item in of_chain(told, index)])
                squares[frame] += float((forces**2).sum())
                counts[frame] += forces.size
            for item in told:
                for index in item.links:
                    alarms += index in item.contacts and not before[index]
                    before[index] = index in item.contacts
        return {frame: float(np.sqrt(squares[frame] / counts[frame])) / self.noise
                for frame in squares}, done, alarms

    def push(self, frame: str, force: float, duration: float) -> PushTruth:
        """Push a tube at a random point, inwards and up to 0.5 rad off its normal."""
        radius, along, axes = TUBES[frame]
        draw = self.generator
        angle, turn = draw.uniform(0.0, 2.0 * np.pi, 2)
        slant = draw.uniform(0.0, _TILT)
        outwards = np.array([np.cos(angle), np.sin(angle), 0.0])
        side = np.array([-np.sin(angle), np.cos(angle), 0.0])
        axis = np.array([0.0, 0.0, 1.0])
        direction = (-np.cos(slant) * outwards
                     + np.sin(slant) * (np.cos(turn) * side + np.sin(turn) * axis))
        point = radius * outwards + draw.uniform(*along) * axis
        order = list(axes)
        index = self.made.frames.index(frame)
        return self.made.push(index, point[order], force * direction[order], duration)

    def keep_moving(self) -> None:
        """Start a motion unless one is running."""
        if self.made.simulator.controller.goal is None:
            self.made.begin_motion(self.made.random_path(self.generator, 6))


def _followed(told: Sequence[Observation], push: PushTruth) -> tuple[Array, Array, bool]:
    """Return errors of point and force during a push, and whether other links had contacts."""
    points, forces, elsewhere = [], [], False
    for item in told:
        when = item.stamp - push.begin
        elsewhere |= any(i != push.chain for i in item.contacts)
        if push.chain not in item.links or item.reasons[push.chain] \
                or not _SETTLED < when < _LASTING:
            continue
        forces.append(item.wrench[push.chain, :3])
        contact = item.contacts.get(push.chain)
        if contact is not None and contact.point is not None:
            points.append(np.linalg.norm(contact.point - push.point))
    error = np.linalg.norm(np.mean(forces, axis=0) - push.force)
    return np.array(points), np.array(error), elsewhere


def run_case(seed: int, *, motion: float, pushes: int, weak: int) -> Case:
    """Run the experiments on one random arm.

    Args:
        seed: Seed of tool, biases, noise, motions and pushes.
        motion: Duration of free motion with tool [s].
        pushes: Number of pushes of 20 to 60 N, every second one while the arm moves.
        weak: Number of pushes of 10 N for 0.2 s while the arm moves.

    Raises:
        RobocalError: The arm cannot be tared or moved.

    """
    ratio: dict[str, float] = {}
    bare = _Experiment(seed, tool=False, imu=False)
    found, _, alarms = bare.free_motion(0.1 * motion)
    ratio.update({f'{frame}, no tool': value for frame, value in found.items()})
    measured = _Experiment(seed, tool=True, imu=True)
    found, _, more = measured.free_motion(0.1 * motion)
    ratio.update({f'{frame}, tool, IMU': found[frame] for frame in IMUS})
    arm = _Experiment(seed, tool=True, imu=False)
    found, moved, most = arm.free_motion(motion)
    ratio.update({f'{frame}, tool': value for frame, value in found.items()})
    found, _, jolted = arm.free_motion(0.2 * motion, jolts=True)
    errors, forces, worst, unplaced, elsewhere = [], [], 0.0, 0, 0
    names = tuple(TUBES)
    for number in range(pushes):
        if number % 2:
            arm.keep_moving()
        push = arm.push(names[number // 2 % 2], arm.generator.uniform(20.0, 60.0), _LASTING)
        points, force, others = _followed(arm.made.run(_LASTING + 0.2), push)
        forces.append(float(force))
        elsewhere += others
        if len(points):
            errors.append(float(points.mean()))
            worst = max(worst, float(points.max()))
        else:
            unplaced += 1
    return Case(seed, ratio, moved, alarms + more + most, jolted, max(found.values()),
                tuple(errors), worst, tuple(forces),
                unplaced, elsewhere, tuple(_detections(arm, weak)))


def _detections(arm: _Experiment, count: int) -> list[float | None]:
    """Push with 10 N for 0.2 s; return the detection delays [s], None for missed pushes."""
    delays: list[float | None] = []
    names = tuple(TUBES)
    for number in range(count):
        arm.keep_moving()
        arm.made.run(float(arm.generator.uniform(0.1, 0.3)))
        push = arm.push(names[number % 2], 10.0, 0.2)
        told = arm.made.run(0.35)
        seen = [item.stamp - push.begin for item in told
                if push.chain in item.contacts]
        delays.append(seen[0] if seen else None)
    return delays


def accuracy_figures(cases: Sequence[Case]) -> list[Figure]:
    """Return figures of accuracy, location and detection over all cases."""
    rows = []
    for name in cases[0].ratio:
        ratios = [case.ratio[name] for case in cases]
        rows.append(Figure('free motion up to 1 rad/s', f'force RMS ÷ noise, {name}', '1',
                           float(np.median(ratios)), max(ratios), _FORCE_BAR))
    alarms = [case.false_alarms for case in cases]
    minutes = sum(case.moving for case in cases) / 60.0
    rows.append(Figure('free motion up to 1 rad/s', f'false alarms in {minutes:.0f} min', '1',
                       float(np.median(alarms)), float(sum(alarms)), 0.0))
    jolted = [case.jolted_ratio for case in cases]
    rows += [
        Figure('motions that begin with a jolt', 'force RMS ÷ noise, worst link', '1',
               float(np.median(jolted)), max(jolted)),
        Figure('motions that begin with a jolt', 'false alarms', '1',
               float(np.median([case.jolted_alarms for case in cases])),
               float(sum(case.jolted_alarms for case in cases))),
    ]
    position = 1e3 * np.concatenate([case.position for case in cases])
    series = f'{sum(len(case.force) for case in cases)} pushes of 20–60 N on two links'
    rows += [
        Figure(series, 'contact position, mean over a push', 'mm', float(np.median(position)),
               float(position.max()), _POSITION_BAR),
        Figure(series, 'contact position, worst sample', 'mm',
               1e3 * float(np.median([case.worst_position for case in cases])),
               1e3 * max(case.worst_position for case in cases), _POSITION_BAR),
        Figure(series, 'force, mean over a push', 'N',
               float(np.median(np.concatenate([case.force for case in cases]))),
               max(max(case.force) for case in cases)),
        Figure(series, 'pushes without contact point', '1',
               float(np.median([case.unplaced for case in cases])),
               float(sum(case.unplaced for case in cases)), 0.0),
        Figure(series, 'pushes with contacts on other links', '1',
               float(np.median([case.elsewhere for case in cases])),
               float(sum(case.elsewhere for case in cases))),
    ]
    delays = [delay for case in cases for delay in case.delays]
    found = [1e3 * delay for delay in delays if delay is not None]
    in_time = 100.0 * sum(delay <= _LATENCY_BAR for delay in found) / len(delays)
    series = f'{len(delays)} pushes of 10 N for 0.2 s, moving'
    rows += [
        Figure(series, 'found within 20 ms', '%', in_time, in_time, 99.0, at_least=True),
        Figure(series, 'delay', 'ms', float(np.median(found)), max(found)),
    ]
    return rows


def _speed_figures(duration: float) -> tuple[list[Figure], list[str]]:
    from benchmarks.wrench_timing import measure

    timing = measure(duration)
    free, touched, rnea = (1e6 * float(np.median(times))
                           for times in (timing.free, timing.contact, timing.rnea))
    series = 'computation per sample, 7 joints, 4 asynchronous sensors, wall-clock stamps'
    peers = []
    remarks = []
    if len(timing.peer):
        peer = 1e6 * float(np.median(timing.peer))
        peers = [
            Figure(series, 'iDynTree, one call on the smoothed values', 'µs', peer, peer),
            Figure(series, 'median ÷ one iDynTree call', '1', free / peer, free / peer, 1.0)]
        remarks = [f"iDynTree's wrenches differ from the observer's by {timing.difference:.1e} N "
                   'or N·m at most, on the same smoothed values.']
    else:
        remarks = ['iDynTree is not installed (PyPI idyntree), so it was not compared.']
    rows = [
        Figure(series, 'median, free', 'µs', free, free, 60.0),
        Figure(series, 'median, in contact', 'µs', touched, touched, 60.0),
        Figure(series, 'median ÷ one RNEA call', '1', free / rnea, free / rnea, 40.0),
        *peers,
        Figure(series, 'whole arrays, times real time at 1 kHz', '1', 1e-3 / timing.blocks,
               1e-3 / timing.blocks, 100.0, at_least=True),
    ]
    shares = '; '.join(f'{name} {100.0 * share:.0f} %' for name, share in timing.shares.items())
    return rows, [*remarks, f'One RNEA call: {rnea:.2f} µs. Shares of the computation: {shares}.']


def _offline_figures(duration: float, output: Path) -> list[Figure]:
    from benchmarks.wrench_offline import measure

    case = measure(duration, output)
    speed = case.duration / case.taken
    series = f'robocal estimate wrench, bag of {duration:.0f} s at 1 kHz, 4 sensors'
    return [Figure(series, 'speed with the default output, × real time', '1', speed, speed, 100.0,
                   at_least=True, reason='It varies with the machine: other runs on it gave 52 '
                   'to 98.'),
            Figure(series, 'peak memory', 'MiB', case.memory, case.memory)]


@dataclass(frozen=True)
class StreamCase:
    """Results of one drawn arm whose model and load are not quite those that it believes.

    Attributes:
        ratio: Largest force RMS of a link in motion over the sensors' noise.
        weight_only: The same of the wrist sensor with its weight alone compensated.
        peer: ``ratio`` of iDynTree on the same smoothed values; NaN if it is not installed.
        false_alarms: Contacts without an impact.
        moving: Time of free motion [s].
        missed: Impacts without a contact on the link that they hit.
        impacts: Number of impacts.

    """

    ratio: float
    weight_only: float
    peer: float
    false_alarms: int
    moving: float
    missed: int
    impacts: int


def stream_case(seed: int, *, error: float, motion: float, impacts: int) -> StreamCase:
    """Observe one arm through asynchronous, filtered, jittering streams.

    The payload is the true one up to 0.5 % of its mass and 1 mm of its centre, as identified.

    Args:
        seed: Seed of all that is drawn.
        error: Standard deviation of the links' inertias from the URDF's, relative.
        motion: Time of free motion [s].
        impacts: Impacts of 5 to 20 ms on the wrist, every second one saturates the sensor.

    """
    load = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), 2e-3 * np.eye(3))
    draw = np.random.default_rng([seed, 3])
    arm = SampledArm(
        seven_joints.urdf(), seven_joints.SENSORS,
        Settings(sensor_rates=(1000.0, 1000.0, 1000.0, 500.0), inertia_error=error, range=200.0),
        seed=seed, load=load)
    observer = WrenchObserver(arm.robot, WrenchParameters(
        sensor_frames=list(seven_joints.SENSORS), sensor_force_ranges=[200.0],
        require_tare=False, sensor_delays=[1e-3, 1e-3, 1e-3, 2e-3]))
    identified = RigidBodyInertia(
        load.mass * (1.0 + 0.005 * draw.normal()), load.com + 1e-3 * draw.normal(size=3),
        load.inertia)
    observer.carry(identified, 'tool0')
    joints, sensors = arm.samples(min(motion, _COMPARED))
    rms, peer = _force_rms(observer, joints, sensors, with_payload(
        seven_joints.urdf(), 'tool0', identified))
    q = arm.motion((sensors[3].stamps - EPOCH) / 1e9)[0]
    held = observer.arm.held_many(q, 0.0 * q, 0.0 * q)[0][:, 3]
    weight_only = float(np.sqrt(np.mean((sensors[3].values + held)[:, :3]**2)))
    alarms = _count_contacts(observer, arm, motion)
    begins = arm.now + 0.1 + 0.2 * np.arange(impacts)
    given = []
    for number, begin in enumerate(begins.tolist()):
        direction = draw.normal(size=3)
        size = 900.0 if number % 2 else draw.uniform(40.0, 120.0)
        given.append(Impact((0, 3)[number // 2 % 2], size * direction / np.linalg.norm(direction),
                            np.array([0.03, 0.0, 0.02]), begin, draw.uniform(0.005, 0.02)))
    whole = OfflineObserver(observer)
    _add(whole, *arm.samples(0.2 * impacts + 0.2, given))
    pushed = whole.take(final=True)
    found = {index: np.array([] if pushed is None else [
        (pushed.stamps[row] - EPOCH) / 1e9 for row, links in pushed.contacts.items()
        if index in links]) for index in (0, 3)}
    missed = sum(not ((found[item.chain] > item.begin)
                      & (found[item.chain] < item.begin + 0.1)).any() for item in given)
    return StreamCase(rms, weight_only / FORCE_NOISE, peer, alarms, motion, missed, impacts)


def _force_rms(
    observer: WrenchObserver, joints: Stream, sensors: Sequence[Stream], urdf: str
) -> tuple[float, float]:
    """Return the largest force RMS of a link over noise: the observer's, and iDynTree's."""
    whole = OfflineObserver(observer)
    _add(whole, joints, sensors)
    block = whole.take(final=True)
    if block is None:
        raise RobocalError('No sample was complete.')
    rms = max(float(np.sqrt(np.mean(block.wrench[block.valid[:, i], i, :3]**2)))
              for i in range(len(sensors)))
    try:
        peer = IdynTree(urdf, seven_joints.JOINTS, seven_joints.SENSORS)
    except ImportError:
        return rms / FORCE_NOISE, np.nan
    forces = []
    for seen in follow(observer, joints, sensors)[::_SKIPPED]:
        if seen.posture is None or seen.velocity is None or seen.acceleration is None \
                or seen.distal is None or seen.held is None or any(seen.reasons):
            continue
        forces.append(peer.wrenches(
            seen.posture, seen.velocity, seen.acceleration, seen.distal - seen.held)[:, :3])
    observer.clear()
    return rms / FORCE_NOISE, float(np.sqrt(np.mean(
        np.square(forces), axis=(0, 2))).max()) / FORCE_NOISE


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


def _stream_figures(seeds: Sequence[int], jobs: int, share: float) -> list[Figure]:
    rows = []
    for error, bar in ((0.0, 1.5), (0.02, 2.5)):
        case = partial(stream_case, error=error,
                       motion=share * _ALARM_MOTION / (2 * len(seeds)),
                       impacts=math.ceil(share * _IMPACTS / (2 * len(seeds))))
        cases = in_parallel(case, seeds, jobs, 'wrench, streams')
        series = f'asynchronous filtered sensors, identified payload, inertias off {error:.0%}'
        moving, given = (sum(getattr(case, name) for case in cases)
                         for name in ('moving', 'impacts'))
        for name, words, limit in (
                ('ratio', 'force RMS ÷ noise, worst link', bar),
                ('peer', 'force RMS ÷ noise, worst link, iDynTree', None),
                ('weight_only', 'force RMS ÷ noise, wrist, weight alone compensated', None)):
            values = [getattr(case, name) for case in cases]
            if np.isfinite(values).all():
                rows.append(Figure(series, words, '1', float(np.median(values)), max(values),
                                   limit))
        for name, words in (('false_alarms', f'false contacts in {moving / 60.0:.0f} min'),
                            ('missed', f'missed of {given} impacts of 5 to 20 ms')):
            values = [getattr(case, name) for case in cases]
            rows.append(Figure(series, words, '1', float(np.median(values)), float(sum(values)),
                               0.0))
    return rows


class WrenchBenchmark(Benchmark):
    """Random tools, biases, motions and pushes on the reference cell."""

    title = 'External wrench'
    about = (
        'Random tools, biases, motions and pushes of the default arm with its F/T sensors, and '
        'asynchronous, filtered, jittering streams of an arm with seven joints and four sensors.')
    seeds = 4
    live_seeds = 1

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        if request.live:
            return _live(request)
        count = len(request.seeds)
        share = _QUICK if request.quick else 1.0
        case = partial(run_case, motion=share * _FREE_MOTION / count,
                       pushes=math.ceil(share * _PUSHES / count),
                       weak=math.ceil(share * _WEAK_PUSHES / count))
        cases = in_parallel(case, request.seeds, request.jobs, 'wrench')
        streams = _stream_figures(request.seeds, request.jobs, share)
        streams += wrench_coverage.figures(in_parallel(
            partial(wrench_coverage.case, layouts=_LAYOUTS, count=math.ceil(share * _DRAWS / (
                count * _LAYOUTS * len(wrench_coverage.ARMS)))),
            request.seeds, request.jobs, 'wrench, coverage'))
        # Measured alone, after the parallel processes have ended.
        speed, remarks = _speed_figures(1.0 if request.quick else 5.0)
        if not request.quick:
            speed += _offline_figures(_BAG, request.output)
        return Outcome([*accuracy_figures(cases), *streams, *speed], cases,
                       remarks)


def _live(request: Request) -> Outcome:
    from benchmarks.wrench_live import run_live

    found = run_live(_LIVE, request.output)
    if not found.sent:
        raise RobocalError('The node published no sample in the live run; see the logs.')
    late = 1e3 * found.latency
    share = 100.0 * found.processor
    series = f'node at 1 kHz for {_LIVE:.0f} s, 7 joints, 4 sensors, all links subscribed'
    return Outcome([
        Figure(series, f'lost of {found.sent} samples', '1', found.lost, found.lost, 0.0),
        Figure(series, 'stamp to receipt by another process, p99', 'ms',
               float(np.median(late)), float(np.percentile(late, 99.0)), 2.0),
        Figure(series, 'share of a core', '%', share, share, 50.0),
    ], remarks=[f'{found.paused} samples are not counted, because the source itself had paused.'])


BENCHMARK = WrenchBenchmark()
