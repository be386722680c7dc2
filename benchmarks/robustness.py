# SPDX-License-Identifier: Apache-2.0
"""Error and verdict of payload methods and friction as one assumption is violated more and more.

A verdict other than `pass` must come before the truth leaves the stated interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks.adversarial_cell import AdversarialCell, draw
from benchmarks.benchmark import Benchmark, Outcome, Request, Table, in_parallel
from benchmarks.campaign import METHODS, Z999, Case, carried_out
from benchmarks.figures import Figure
from benchmarks.foreign_arms import OWN
from benchmarks.plot import Line, Plot
from robocal_ros.payload.result import COM
from robocal_sim.truth import LinkTruth

SILENT_BAR = 0.0
"""Percent of cells that pass with a parameter outside its 99.9 % interval."""

_RATE = 250.0
_FRICTION = 'friction'
_WRIST = ('static_poses', 'excitation by wrist')
_TORQUE = ('two_plane', 'excitation by torque')


# --------------------------------------------------------------------------- variables


def _noise(cell: AdversarialCell, factor: float) -> AdversarialCell:
    joints, wrench = cell.noise.joint_states, cell.noise.force_torque
    return replace(cell, noise=replace(
        cell.noise,
        joint_states=replace(joints, velocity_sigma=factor * joints.velocity_sigma,
                             effort_sigma=factor * joints.effort_sigma),
        force_torque=replace(wrench, force_sigma=factor * wrench.force_sigma,
                             torque_sigma=factor * wrench.torque_sigma)))


def _links(cell: AdversarialCell, percent: float) -> AdversarialCell:
    sigma = percent / 100.0
    return replace(cell, truth=replace(
        cell.truth, links=LinkTruth(sigma, 0.1 * sigma, 2.0 * sigma, cell.seed)))


def _load_friction(cell: AdversarialCell, percent: float) -> AdversarialCell:
    return replace(cell, truth=replace(cell.truth, joints={
        name: replace(joint, friction=replace(joint.friction, load_dependence=percent / 100.0))
        for name, joint in cell.truth.joints.items()}))


def _delay(cell: AdversarialCell, milliseconds: float) -> AdversarialCell:
    delay = 1e-3 * milliseconds
    return replace(cell, truth=replace(
        cell.truth, effort_delay=delay, force_torque_sensors=tuple(
            replace(sensor, delay=delay) for sensor in cell.truth.force_torque_sensors)))


def _encoders(cell: AdversarialCell, milliradians: float) -> AdversarialCell:
    return replace(cell, noise=replace(cell.noise, joint_states=replace(
        cell.noise.joint_states, position_quantisation=1e-3 * milliradians)))


def _tilt(cell: AdversarialCell, degrees: float) -> AdversarialCell:
    direction = np.random.default_rng([cell.seed, 9]).uniform(0.0, 2.0 * np.pi)
    return replace(cell, truth=replace(cell.truth, base_tilt=(
        float(np.radians(degrees) * np.cos(direction)),
        float(np.radians(degrees) * np.sin(direction)))))


def _poses(cell: AdversarialCell, count: float) -> AdversarialCell:
    return replace(cell, poses=round(count))


def _sweeps(cell: AdversarialCell, percent: float) -> AdversarialCell:
    return replace(cell, sweep_share=percent / 100.0)


@dataclass(frozen=True)
class Variable:
    """What is varied.

    Attributes:
        name: Name of its files.
        label: Label with unit.
        change: Sets it in a cell.
        values: Its values, from harmless to harmful.
        methods: Methods that it concerns.
        nominal: Its value in cells in which something else is varied.
        log: Whether its axis is logarithmic.

    """

    name: str
    label: str
    change: Callable[[AdversarialCell, float], AdversarialCell]
    values: tuple[float, ...]
    methods: tuple[str, ...]
    nominal: float = 0.0
    log: bool = False


VARIABLES = (
    Variable('noise', 'noise of efforts, velocities and wrenches [× reference]', _noise,
             (0.3, 1.0, 2.0, 5.0, 10.0), (*_WRIST, *_TORQUE, _FRICTION), 1.0, log=True),
    Variable('urdf', 'masses off the URDF, standard deviation [%]', _links,
             (0.0, 2.0, 4.0, 7.0, 10.0), (*_WRIST, *_TORQUE, _FRICTION)),
    Variable('friction', 'friction per transmitted torque [%]', _load_friction,
             (0.0, 1.0, 2.0, 5.0, 10.0), (*_TORQUE, _FRICTION)),
    Variable('delay', 'delay of efforts and wrenches [ms]', _delay,
             (0.0, 5.0, 10.0, 20.0, 50.0), (*_WRIST, *_TORQUE, _FRICTION)),
    Variable('encoders', 'step of the encoders [mrad]', _encoders,
             (0.02, 0.1, 0.3, 0.7, 1.5), (*_WRIST, *_TORQUE, _FRICTION), 0.02),
    Variable('tilt', 'tilt of the base [°]', _tilt,
             (0.0, 0.3, 1.0, 3.0, 10.0), (*_WRIST, *_TORQUE, _FRICTION)),
    Variable('poses', 'number of static postures', _poses, (28.0, 14.0, 10.0, 7.0, 5.0, 4.0),
             ('static_poses',), 14.0),
    Variable('sweeps', 'range of the sweeps [% of the planned one]', _sweeps,
             (100.0, 70.0, 50.0, 35.0, 20.0), ('two_plane',),
             100.0),
)


# ------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Point:
    """One cell: a method, the number of a variable, its value, and the seed of everything else.

    Cells with nominal values are the same for all variables, whose number is -1 then.
    """

    variable: int
    method: str
    value: float
    seed: int

    @classmethod
    def of(cls, number: int, method: str, value: float, seed: int) -> Point:
        """Return the point of a variable's value."""
        nominal = value == VARIABLES[number].nominal
        return cls(-1 if nominal else number, method, 0.0 if nominal else value, seed)


def run_point(points: Sequence[Point], number: int) -> Case:
    """Carry out the method of one of the points."""
    point = points[number]
    cell = draw(point.seed, METHODS[point.method][0], effects=[], arm_name=OWN)
    cell = replace(cell, rate=_RATE)
    return carried_out(point.method, cell if point.variable < 0 else
                       VARIABLES[point.variable].change(cell, point.value))


@dataclass(frozen=True)
class Curve:
    """Cases of one method and variable, by value."""

    variable: Variable
    method: str
    values: Sequence[float]
    cases: Sequence[Sequence[Case]]

    @property
    def all_cases(self) -> list[Case]:
        """All of them."""
        return [case for cases in self.cases for case in cases]

    def verdicts(self) -> list[str]:
        """Return for each value `pass` if more than half of the cells pass, else what they get."""
        found = []
        for cases in self.cases:
            others = Counter(case.verdict for case in cases if case.verdict != 'pass')
            found.append('pass' if 2 * others.total() < len(cases)
                         else others.most_common(1)[0][0])
        return found

    def inside(self) -> list[bool]:
        """Return for each value whether no cell has a parameter outside its interval."""
        return [all(item.ratio <= Z999 for case in cases for item in case.errors)
                for cases in self.cases]

    def line(self, measure: Callable[[Case], float | None]) -> Line:
        """Return median and range over the cells."""
        found = [[value for case in cases if (value := measure(case)) is not None]
                 for cases in self.cases]
        middle, low, high = ([float(f(values)) if values else None for values in found]
                             for f in (np.median, np.min, np.max))
        return Line(self.method, self.values, middle, low, high, self.verdicts())


def in_intervals(case: Case) -> float | None:
    """Return the largest error over half the width of its 99.9 % interval; None without errors."""
    ratios = [item.ratio for item in case.errors if np.isfinite(item.ratio)]
    return max(ratios) / Z999 if ratios else None


def centre_error(case: Case) -> float | None:
    """Return the distance of the centre of mass from the true one [mm]; None without it."""
    found = [item.error for item in case.errors if item.parameter in COM]
    return 1e3 * float(np.linalg.norm(found)) if len(found) == len(COM) else None


def friction_error(case: Case) -> float | None:
    """Return the largest error of the friction torque [%]; None if it was not identified."""
    found = [100.0 * abs(item.error / item.truth) for item in case.errors]
    return max(found) if found else None


# ------------------------------------------------------------------------------ report


def _plots(curves: Sequence[Curve]) -> Iterator[Plot]:
    for variable in VARIABLES:
        own = [curve for curve in curves if curve.variable == variable]
        if not own:
            continue
        yield Plot(f'{variable.name}-interval', 'Worst parameter, in the stated interval',
                   variable.label, 'error ÷ half the 99.9 % interval',
                   [curve.line(in_intervals) for curve in own], variable.log, True, 1.0)
        payload = [curve.line(centre_error) for curve in own if curve.method != _FRICTION]
        if payload:
            yield Plot(f'{variable.name}-centre', 'Centre of mass', variable.label,
                       'error [mm]', payload, variable.log, True)
        friction = [curve.line(friction_error) for curve in own if curve.method == _FRICTION]
        if friction:
            yield Plot(f'{variable.name}-friction', 'Friction torque, worst speed',
                       variable.label, 'error [%]', friction, variable.log, True)


def _up_to(good: Sequence[bool], values: Sequence[float]) -> str:
    """Return the last value before the first bad one."""
    count = next((number for number, item in enumerate(good) if not item), len(good))
    return f'{values[count - 1]:g}' if count else 'none'


def _table(curves: Sequence[Curve]) -> Table:
    return Table(
        'Where the verdict turns', ('variable', 'method', 'most cells pass up to',
                                    'truth in every 99.9 % interval up to', 'silently wrong'),
        [(curve.variable.label, curve.method,
          _up_to([verdict == 'pass' for verdict in curve.verdicts()], curve.values),
          _up_to(curve.inside(), curve.values),
          f'{sum(case.wrong_pass for case in curve.all_cases)} of {len(curve.all_cases)}')
         for curve in curves])


def _figures(curves: Sequence[Curve]) -> Iterator[Figure]:
    for curve in curves:
        cases = curve.all_cases
        yield Figure.share(
            curve.variable.label, f'{curve.method}: passes with a parameter outside its 99.9 % '
            'interval', sum(case.wrong_pass for case in cases), len(cases), SILENT_BAR,
            at_least=False, reason=REASONS.get((curve.variable.name, curve.method), ''))


REASONS = {
    ('friction', 'excitation by torque'): 'with friction of 10 % of the torque, where '
    '`load_friction_std` states 5 %, mass and centre of mass are 3.4 to 4.2 standard deviations '
    'off and the verdict is `pass`.',
}
"""Why cells of a variable and method are silently wrong."""


class RobustnessBenchmark(Benchmark):
    """Payload methods and friction against one violated assumption at a time."""

    title = 'Robustness'
    about = (
        'The default arm with nominal errors of its own (friction, flexibility, rotors, noise; '
        'sampled at 250 Hz), and one variable at a time beyond them; the same cells at every '
        'value. Lines are medians, bands the range over the cells. Markers are filled where most '
        'cells pass. Errors in intervals are those of the worst parameter; beyond the dashed '
        'line the truth is outside, so that markers must be hollow there.')
    seeds = 2

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        axes = [(number, method, variable.values[-1:] if request.quick else variable.values)
                for number, variable in enumerate(VARIABLES) for method in variable.methods
                if not request.quick or (variable.name, method) == ('tilt', 'static_poses')]
        points = list(dict.fromkeys(
            Point.of(number, method, value, seed) for number, method, values in axes
            for value in values for seed in request.seeds))
        cases = dict(zip(points, in_parallel(
            partial(run_point, points), range(len(points)), request.jobs, 'robustness'),
            strict=True))
        curves = [Curve(VARIABLES[number], method, values, [
            [cases[Point.of(number, method, value, seed)] for seed in request.seeds]
            for value in values]) for number, method, values in axes]
        return Outcome(list(_figures(curves)), list(cases.values()), (), (_table(curves),),
                       list(_plots(curves)))


BENCHMARK = RobustnessBenchmark()
