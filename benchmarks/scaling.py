# SPDX-License-Identifier: Apache-2.0
"""Growth of time and memory with joints, sensors, samples, rates, postures and bags."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from benchmarks import offline
from benchmarks.adversarial_cell import AdversarialCell, draw
from benchmarks.benchmark import Benchmark, Outcome, Request
from benchmarks.campaign import exciting_motion, place, two_plane_motions
from benchmarks.compliance_arm import ArmAtRest, Known, both_sets, drawn_truth
from benchmarks.figures import Figure
from benchmarks.foreign_arms import OWN
from benchmarks.offline_bag import KNOWN_MASS, Record, later, read_later, write_long
from benchmarks.plot import Line, Plot, exponent
from benchmarks.seven_joints import joint_text, link_text
from benchmarks.wrench_samples import SampledArm, Settings, follow
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.errors import RobocalError
from robocal_ros.leveling import LevelingParameters, LevelingPlanner, Tool
from robocal_ros.messages import JointSamples, WrenchSamples, bounded_buffer
from robocal_ros.payload import PayloadParameters, excitation, plan, static_poses, two_plane
from robocal_ros.payload.model import body_regressor
from robocal_ros.robot import CollisionChecker, MotionLimits, RigidBodyInertia, Robot, Trajectory
from robocal_ros.wrench import WrenchObserver, WrenchParameters

GROWTH_BAR, MEMORY_BAR = 1.3, 1024.0
"""Limits of the exponents of times that should be linear, and of the peak memory [MiB]."""

OBSERVER, ESTIMATE = 'observe a sample', 'estimate 10 000 samples'
BY_WRIST, TWO_PLANES = 'excitation by wrist', 'two planes'
REASONS: dict[str, str] = {}
"""Why a time grows faster than its limit, by line."""

WRIST = 'ft_wrist'
_HEIGHT = 1.2
_MASS = 20.0
_VALUES = PayloadParameters(method='excitation', sensor_frame=WRIST)
_TWO_PLANE = PayloadParameters(known_mass=KNOWN_MASS)
_STREAMED = 2.0
_CHUNK = 20_000


# ------------------------------------------------------------------------------ chains


def chain(joints: int, sensors: int = 1) -> tuple[str, tuple[str, ...]]:
    """Return the URDF of a chain of some height and mass, and the frames of its F/T sensors.

    Axes alternate between upright and horizontal. The sensors carry the links from evenly
    spread joints on; the last one is at the wrist.

    Args:
        joints: Number of joints.
        sensors: Number of sensors, at most as many.

    """
    length, mass = 0.5 * _HEIGHT / joints, 0.5 * _MASS / joints
    tubes = {'length': length, 'mass': mass, 'radius': 0.3 * length}
    carriers = {joints - 1 - k * joints // sensors: f'ft_{sensors - k}' for k in range(sensors)}
    carriers[joints - 1] = WRIST
    parts = ['<robot name="chain"><link name="base"/>']
    carrier, height = 'base', 0.0
    for number in range(joints):
        link = f'link_{number + 1}'
        tube = carriers.get(number, f'tube_{number + 1}')
        parts += [
            joint_text(f'joint_{number + 1}', 'revolute', carrier, link, height,
                       '0 1 0' if number % 2 else '0 0 1'), link_text(link, **tubes),
            joint_text(f'{tube}_mount', 'fixed', link, tube, length, '0 0 1'),
            link_text(tube, **tubes)]
        carrier, height = tube, length
    parts += ['<link name="tool0"/>',
              joint_text('tool0_mount', 'fixed', carrier, 'tool0', height, '0 0 1')]
    return '\n'.join(parts) + '\n</robot>\n', tuple(carriers[k] for k in sorted(carriers))


@dataclass(frozen=True)
class _Chain:
    """A chain and its model."""

    urdf: str
    frames: tuple[str, ...]
    robot: Robot

    @classmethod
    def of(cls, joints: int, sensors: int = 1) -> _Chain:
        urdf, frames = chain(joints, sensors)
        return cls(urdf, frames, Robot(urdf))

    @property
    def home(self) -> Array:
        """A bent posture."""
        return np.where(np.arange(self.robot.n) % 2, 0.5, 0.2)

    def limits(self) -> MotionLimits:
        return MotionLimits(self.robot.joint_names, self.robot.lower, self.robot.upper,
                            self.robot.velocity_limit, np.full(self.robot.n, 6.0))


# ---------------------------------------------------------------------------- measures


def timed(function: Callable[[], object], least: float = 0.2) -> float | None:
    """Return the shortest processor time of some calls [s]; None if they refuse their input."""
    taken: list[float] = []
    while not taken or (sum(taken) < least and len(taken) < 5):
        began = process_time()
        try:
            function()
        except RobocalError:
            return None
        taken.append(process_time() - began)
    return min(taken)


def observed(joints: int, sensors: int, rate: float) -> float:
    """Return the observer's processor time per sample of a chain in free motion [s]."""
    made = _Chain.of(joints, sensors)
    arm = SampledArm(made.urdf, made.frames, Settings(rate=rate, sensor_rates=(rate,)), seed=1)
    observer = WrenchObserver(arm.robot, WrenchParameters(
        sensor_frames=list(made.frames), sensor_force_ranges=[1e4], sensor_torque_ranges=[1e4],
        require_tare=False, observe_torque=False))
    follow(observer, *arm.samples(0.5))
    streams = arm.samples(max(_STREAMED, 400.0 / rate))
    began = process_time()
    follow(observer, *streams)
    return (process_time() - began) / len(streams[0].stamps)


def estimated_chain(joints: int) -> float | None:
    """Return the time to estimate a payload by wrist sensor from 10^4 samples of a chain [s]."""
    made = _Chain.of(joints)
    load = RigidBodyInertia(2.0, np.array([0.01, 0.02, 0.06]), 3e-3 * np.eye(3))
    arm = SampledArm(made.urdf, made.frames, Settings(rate=500.0, sensor_rates=(500.0,),
                                                      frequency=0.4), seed=1, load=load)
    states, readings = arm.samples(20.0)
    n = joints
    samples = JointSamples(made.robot.joint_names, states.stamps / 1e9, states.values[:, :n],
                           states.values[:, n:2 * n], states.values[:, 2 * n:])
    sensor = WrenchSamples(WRIST, readings[0].stamps / 1e9, readings[0].values)
    return timed(lambda: excitation.estimate(made.robot, samples, _VALUES, sensor=sensor))


def planned_poses(joints: int, count: int = 14) -> float | None:
    """Return the time to plan static postures of a chain [s]."""
    made = _Chain.of(joints)
    checker = CollisionChecker(made.robot.copy())
    return timed(lambda: plan.plan_static_poses(
        made.robot, checker, made.home, sensor_frame=WRIST, count=count))


def planned_excitation(joints: int) -> float | None:
    """Return the time to plan an exciting motion of a chain [s]."""
    made = _Chain.of(joints)
    checker = CollisionChecker(made.robot.copy())
    return timed(lambda: plan.plan_excitation(
        made.robot, checker, made.limits(), made.home,
        lambda robot, q, v, a: body_regressor(robot, WRIST, q, v, a), _VALUES))


def planned_leveling(joints: int) -> float | None:
    """Return the median time to plan leveling motions of a chain [s]; None if all are refused."""
    made = _Chain.of(joints)
    planner = LevelingPlanner(Tool(made.robot), np.array([0.0, 0.0, 1.0]), made.limits(),
                              LevelingParameters(), CollisionChecker(made.robot.copy()))
    draw_from = np.random.default_rng(1)
    found = [timed(lambda: planner.plan(made.home + turn), 0.0)  # noqa: B023
             for turn in 0.2 * draw_from.standard_normal((15, joints))]
    known = [time for time in found if time is not None]
    return float(np.median(known)) if known else None


@cache
def _cell() -> AdversarialCell:
    return replace(draw(1, 'wrench', effects=[], arm_name=OWN), rate=1000.0)


@cache
def _excited() -> tuple[JointSamples, WrenchSamples]:
    cell = _cell()
    return cell.record([exciting_motion(*place(cell), True)])


@cache
def _swept() -> tuple[JointSamples, WrenchSamples]:
    cell = replace(_cell(), tool=replace(_cell().tool, mass=KNOWN_MASS))
    return cell.record(two_plane_motions(cell), rest=0.3)


def estimated_samples(
    method: str, joints: JointSamples, sensor: WrenchSamples, count: int
) -> tuple[float | None, float | None]:
    """Record samples of a procedure as nodes do, and estimate.

    Fewer samples than the procedure has at 1 kHz are sampled more slowly, more are repetitions.

    Args:
        method: ``excitation`` by wrist sensor, or ``two_plane``.
        joints: Joint states of the procedure on the default arm.
        sensor: Readings of its wrist sensor.
        count: Number of joint states.

    Returns:
        Time of recording and estimate [s], and peak memory of the process [MiB].

    """
    by_wrench, robot = method == 'excitation', Robot(default_cell.urdf())
    period = max(1e-3, float(np.ptp(joints.time)) / count)
    random = np.random.default_rng(1)
    kept, felt = bounded_buffer.BoundedBuffer(1 + 3 * robot.n), bounded_buffer.BoundedBuffer(7)
    taken = 0.0
    for begin in range(0, count, _CHUNK):
        time: Array = 1.0 + period * np.arange(begin, min(begin + _CHUNK, count), dtype=float)
        part = later(joints, time, random)
        readings = read_later(sensor, time, random)
        rows = np.column_stack((time, part.position, part.velocity, part.effort))
        began = process_time()
        kept.add(rows)
        if by_wrench:
            felt.add(np.column_stack((time, readings.wrench)))
        taken += process_time() - began
    began = process_time()
    rows, n = kept.release(), robot.n
    samples = JointSamples(robot.joint_names, rows[:, 0], rows[:, 1:1 + n],
                           rows[:, 1 + n:1 + 2 * n], rows[:, 1 + 2 * n:])
    try:
        if by_wrench:
            rows = felt.release()
            excitation.estimate(robot, samples, _VALUES,
                                sensor=WrenchSamples(WRIST, rows[:, 0], rows[:, 1:]))
        else:
            two_plane.estimate(robot, samples, _TWO_PLANE)
    except RobocalError:
        return None, None
    taken += process_time() - began
    # Unlike the maximum of getrusage, this one is not inherited from the parent process.
    status = Path('/proc/self/status').read_text(encoding='utf-8')
    peak = next(line for line in status.splitlines() if line.startswith('VmHWM:'))
    return taken, float(peak.split()[1]) / 1024.0


def _in_child(method: str, count: int) -> tuple[float | None, float | None]:
    """Call `estimated_samples` in a process of its own, so that its peak memory is its own."""
    samples = _excited() if method == 'excitation' else _swept()
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        return pool.apply(estimated_samples, (method, *samples, count))


def estimated_rate(rate: float) -> float | None:
    """Return the time to estimate a payload by wrist sensor from one motion at a rate [s]."""
    joints, sensor = _excited()
    time = np.arange(joints.time[0], joints.time[-1], 1.0 / rate)
    random = np.random.default_rng(1)
    at = time - time[0]
    samples, readings = later(joints, at, random), read_later(sensor, at, random)
    return timed(lambda: excitation.estimate(
        _cell().arm.robot, samples, _VALUES, sensor=readings))


def estimated_poses(count: int) -> float | None:
    """Return the time to estimate a payload from static postures of the default arm [s]."""
    arm = _cell().arm
    postures = plan.plan_static_poses(arm.robot, arm.checker, arm.home, sensor_frame=arm.sensor,
                                      count=count)
    joints, sensor = replace(_cell(), rate=250.0).record([
        Trajectory(np.array([0.0, 0.5]), np.stack((q, q)), np.zeros((2, len(q))))
        for q in postures])
    values = PayloadParameters(method='static_poses', sensor_frame=arm.sensor)
    return timed(lambda: static_poses.estimate(arm.robot, joints, sensor, values))


def compliance_times(count: int) -> tuple[float | None, float | None]:
    """Return the times to plan some postures of compliance calibration, and to estimate [s]."""
    truth = drawn_truth(1)
    known = Known.of(truth)
    known = replace(known, values=replace(known.values, posture_count=count))
    began = process_time()
    postures = known.postures(1)
    planning = process_time() - began
    unloaded, loaded = both_sets(
        ArmAtRest(known, truth, default_cell.reference_cell(), 1), postures, known.values)
    return planning, timed(lambda: estimate_sets(
        known.robot, unloaded, loaded, known.load, known.values))


def estimated_bags(durations: Sequence[float], output: Path) -> list[offline.Case]:
    """Estimate from bags of the two-plane method at 1 kHz by the command."""
    task = offline.TASKS[0]
    recorded = Record(default_cell.urdf(), *_swept())
    found = []
    for duration in durations:
        with tempfile.TemporaryDirectory(dir=output) as folder:
            bag = Path(folder) / 'bag'
            write_long(recorded, bag, duration)
            found.append(offline.measured(task, 'mcap', duration, bag))
    return found


# ------------------------------------------------------------------------------ report


def _curves(
    at: Sequence[float], *named: tuple[str, Callable[[float], float | None]]
) -> list[Line]:
    return [Line(words, at, [function(value) for value in at]) for words, function in named]


def fitted(plot: Plot, bars: dict[str, float]) -> tuple[Plot, list[Figure]]:
    """Return a plot with the exponents of its lines in the legend, and their figures.

    Args:
        plot: A plot with logarithmic axes.
        bars: Limits of the exponents by line.

    """
    lines, figures = [], []
    for line in plot.lines:
        known = [(a, b) for a, b in zip(line.x, line.y, strict=True) if b is not None]
        if len(known) > 2:
            power, half = exponent(*zip(*known, strict=True))
            figures.append(Figure(
                plot.title, f'{line.name}: exponent', '1', power, power, bars.get(line.name),
                band=(power - half, power + half), reason=REASONS.get(line.name, '')))
            line = replace(line, name=f'{line.name}: x^{power:.2f}')
        lines.append(line)
    return replace(plot, lines=lines), figures


def _joints(quick: bool) -> Plot:
    at = (4, 6) if quick else (2, 3, 4, 6, 8, 11, 14)
    return Plot('joints', 'Joints of a chain', 'joints', 'time [s]', _curves(
        at, (OBSERVER, lambda n: observed(int(n), 1, 1000.0)),
        (ESTIMATE, lambda n: estimated_chain(int(n))),
        ('plan 14 static postures', lambda n: planned_poses(int(n))),
        ('plan leveling', lambda n: planned_leveling(int(n))),
        *([] if quick else [('plan an excitation', lambda n: planned_excitation(int(n)))])),
        True, True)


def _sensors(quick: bool) -> Plot:
    return Plot('sensors', 'F/T sensors of a chain of 8 joints', 'sensors', 'time [s]', _curves(
        (1, 8) if quick else (1, 2, 3, 4, 6, 8),
        (OBSERVER, lambda count: observed(8, int(count), 1000.0))), True, True)


def _rates(quick: bool) -> Plot:
    at = (100.0, 500.0) if quick else (50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0)
    return Plot('rates', 'Sampling rate', 'rate [Hz]', 'time [s]', _curves(
        at, ('observe one second', lambda rate: rate * observed(7, 4, rate)),
        ('estimate one motion by wrist', estimated_rate)), True, True)


def _postures(quick: bool) -> Plot:
    at = (8, 16) if quick else (8, 15, 30, 60, 120)
    compliance = [compliance_times(count) for count in at]
    return Plot('postures', 'Number of postures', 'postures', 'time [s]', [
        Line('plan compliance', at, [planning for planning, _ in compliance]),
        Line('estimate compliance', at, [taken for _, taken in compliance]),
        *_curves(at, ('plan static poses', lambda count: planned_poses(6, int(count))),
                 ('estimate static poses', lambda count: estimated_poses(int(count))))],
        True, True)


def _samples(quick: bool) -> tuple[Plot, Plot]:
    at = [10.0**power for power in ((3, 4) if quick else (3, 4, 5, 6, 7))]
    found = {words: [_in_child(method, int(count)) for count in at]
             for words, method in ((BY_WRIST, 'excitation'), (TWO_PLANES, 'two_plane'))}
    return (
        Plot('samples', 'Samples, recorded and estimated', 'joint states', 'time [s]',
             [Line(words, at, [taken for taken, _ in pairs]) for words, pairs in found.items()],
             True, True),
        Plot('memory', 'Memory of recording and estimate', 'joint states',
             'peak memory of the process [MiB]',
             [Line(words, at, [memory for _, memory in pairs])
              for words, pairs in found.items()], True))


def _bags(quick: bool, output: Path) -> Plot:
    at = (60.0,) if quick else (60.0, 180.0, 600.0)
    found = estimated_bags(at, output)
    minutes = [duration / 60.0 for duration in at]
    return Plot('bags', 'Bags, robocal estimate payload', 'duration at 1 kHz [min]', 'time [s]',
                [Line(TWO_PLANES, minutes, [case.taken for case in found])], True, True)


class ScalingBenchmark(Benchmark):
    """Time and memory over the sizes of arm, data and task."""

    title = 'Scaling'
    about = (
        'Processor time, the shortest of up to five calls; the observer per sample. '
        'Chains have a constant height and mass and one wrist sensor unless sensors are varied. '
        'Samples pass the record of the nodes, which averages beyond 262 144 rows; imports are '
        'not part of the times, but of the memory. Start and idle load of nodes have a section '
        'of their own.')
    seeds = 1

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        figures: list[Figure] = []
        plots: list[Plot] = []
        remarks = []
        for words, step, bars in (
            ('joints', _joints, dict.fromkeys((OBSERVER, ESTIMATE), GROWTH_BAR)),
            ('sensors', _sensors, {OBSERVER: GROWTH_BAR}),
            ('rates', _rates, {}),
            ('postures', _postures, {}),
            ('samples', _samples, dict.fromkeys((BY_WRIST, TWO_PLANES), GROWTH_BAR)),
            ('bags', partial(_bags, output=request.output), {TWO_PLANES: GROWTH_BAR}),
        ):
            if request.quick and words == 'bags':
                continue
            began = perf_counter()
            found = step(request.quick)
            time_plot, *others = found if isinstance(found, tuple) else (found,)
            plot, rows = fitted(time_plot, bars)
            figures += rows
            plots += [plot, *others]
            remarks.append(f'{words}: {perf_counter() - began:.0f} s')
            OUT.print(f'scaling, {remarks[-1]}', soft_wrap=True)
            for other in others:
                figures += _memory(other)
        return Outcome(figures, (), [f'Taken: {", ".join(remarks)}.'], (), plots)


def _memory(plot: Plot) -> list[Figure]:
    """Return the largest memory of each line."""
    return [Figure(plot.title, f'{line.name}: largest', 'MiB', peak, peak, MEMORY_BAR,
                   reason='Ten million samples, nearly three hours at 1 kHz, are held as arrays, '
                   'and copied while they are aligned and filtered.')
            for line in plot.lines
            if (peak := max((y for y in line.y if y is not None), default=0.0))]


BENCHMARK = ScalingBenchmark()
