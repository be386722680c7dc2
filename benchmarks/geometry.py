# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the geometry of the whole arm: hidden errors of all frames, and sag.

The forward model is that of `second_world`, which shares nothing with the product. All frames are
displaced, the joints are compliant under the weight of the links, and the target is not where it
is said to be. It is seen by a tracker of unknown pose, or is a ball in pairs of sockets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import process_time

import numpy as np

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.second_campaign import Z95, Case, value_of
from benchmarks.second_world import (
    ARMS,
    GRAVITY,
    Array,
    placed,
    reached,
    read_arm,
    rotation,
    torques,
    urdf_of,
)
from robocal_ros.compliance import ComplianceParameters
from robocal_ros.compliance.geometry import Observations, ObservedSet
from robocal_ros.compliance.geometry_estimator import estimate_geometry
from robocal_ros.errors import RobocalError
from robocal_ros.results import Inputs, Parameter, State
from robocal_ros.robot import FRAME_AXES, Robot

SHIFT, TURN, TRACKER, BALL, APART = 1e-3, 2e-3, 5e-5, 1e-4, 0.05
"""Standard deviations of frames [m, rad], of a tracker's reading and of a ball in its socket per
axis [m], and the distance between the sockets of a placement [m]."""

SERIES = ('tracker', 'sockets')
HELD_OUT_BAR = 1.2
FRAMES, HELD, DISTANCES, STIFF = (
    'observable frames and target inside 95 %', 'frames held by their priors inside 95 %',
    'socket distances inside 95 %', 'observable compliances within 2 σ')
LIMITS = {FRAMES: (Z95, 93.0), HELD: (Z95, 93.0), DISTANCES: (Z95, 93.0), STIFF: (2.0, 95.0)}
"""Largest deviates, and least percent within them."""

_POSTURES, _PLACEMENTS, _ROWS = 80, 5, 30


class Cell:
    """An arm with hidden errors."""

    def __init__(self, seed: int) -> None:
        """Draw what is hidden; ``seed`` chooses the arm, too."""
        self.noise = g = np.random.default_rng([seed, 4])
        self.name = list(ARMS)[seed % len(ARMS)]
        self.nominal = read_arm(self.name)
        n = len(self.nominal.joints)
        self.moved = np.hstack((SHIFT * g.normal(size=(n, 3)), TURN * g.normal(size=(n, 3))))
        self.arm = replace(self.nominal, before=np.array([
            before @ placed(rotation(part[3:]), part[:3])
            for before, part in zip(self.nominal.before, self.moved, strict=True)]))
        self.links = self.arm.links
        self.target = g.uniform((-0.08, -0.08, 0.0), (0.08, 0.08, 0.1))
        self.stated = self.target + 2e-3 * g.normal(size=3)
        self.compliance = np.geomspace(1.0, 20.0, n) * np.exp(0.4 * g.normal(size=n)) * 1e-6
        centre = np.array(ARMS[self.name].home)
        self.low = np.maximum(self.arm.lower, centre - 1.6)
        self.high = np.minimum(self.arm.upper, centre + 1.6)
        q = g.uniform(self.low, self.high, (50, n))
        moved = self._tip(self.motors(q)) - self._tip(q)
        sag = float(np.sqrt(np.mean(np.sum(moved**2, axis=1))))
        self.compliance *= np.exp(g.uniform(np.log(5e-4), np.log(2e-3))) / sag

    def _tip(self, q: Array) -> Array:
        return reached(self.arm, q, self.target)

    def motors(self, q: Array) -> Array:
        """Return the angles of the motors with the links at ``q``, shape (k, n) [rad]."""
        still = np.zeros_like(q)
        return q + self.compliance * torques(
            self.arm, self.links, q, still, still, np.array([0.0, 0.0, -GRAVITY]))

    def tracker(self) -> Observations:
        """Return random postures, seen by a tracker."""
        g, n = self.noise, len(self.arm.joints)
        q = g.uniform(self.low, self.high, (_POSTURES, n))
        turn, origin = rotation(g.normal(size=3)), g.uniform(-2.0, 2.0, 3)
        seen = (self._tip(q) - origin) @ turn + TRACKER * g.normal(size=(_POSTURES, 3))
        return Observations((ObservedSet(
            'tracker', 'point', 'all', 'tracker', 'target', False, self.motors(q), seen,
            tuple(range(1, _POSTURES + 1))),))

    def sockets(self) -> Observations:
        """Return postures with the ball in pairs of sockets."""
        g, n = self.noise, len(self.arm.joints)
        middle = g.uniform(self.low, self.high, (_PLACEMENTS, n)).repeat(2 * _ROWS, axis=0)
        axis = g.normal(size=(_PLACEMENTS, 3)).repeat(2 * _ROWS, axis=0)
        number = np.arange(len(middle)) // _ROWS
        aim = (self._tip(middle) + BALL * g.normal(size=(len(middle), 3))
               + (APART * (number % 2) / np.linalg.norm(axis, axis=1))[:, None] * axis)
        q = np.clip(middle + g.uniform(-1.2, 1.2, middle.shape), self.low, self.high)
        for _ in range(40):
            q = self._nearer(q, aim)
        reached = np.linalg.norm(self._tip(q) - aim, axis=1) < 1e-9
        sets = []
        for socket in range(2 * _PLACEMENTS):
            posture = self.motors(q[reached & (number == socket)])
            name = f'{socket // 2}/{socket % 2}'
            sets.append(ObservedSet(
                name, 'socket', str(socket // 2), name, 'ball', False, posture,
                np.zeros((len(posture), 0)), tuple(range(1, len(posture) + 1))))
        return Observations(tuple(item for item in sets if len(item) >= _ROWS // 2))

    def _nearer(self, q: Array, aim: Array) -> Array:
        """Return postures whose targets are nearer to an aim, by a damped Newton step."""
        n, point = q.shape[1], self._tip(q)
        slope = np.stack([(self._tip(q + step) - point) / 1e-6
                          for step in 1e-6 * np.eye(n)], axis=2)
        square = slope @ slope.transpose(0, 2, 1) + 1e-6 * np.eye(3)
        step = slope.transpose(0, 2, 1) @ np.linalg.solve(square, (aim - point)[:, :, None])
        return np.asarray(q + np.clip(step[:, :, 0], -0.2, 0.2))


def run_cell(seed: int, series: str) -> Case:
    """Return what the product says of one cell."""
    cell = Cell(seed)
    data = cell.tracker() if series == 'tracker' else cell.sockets()
    robot = Robot(urdf_of(cell.name), tool_frame=ARMS[cell.name].tool)
    values = ComplianceParameters(target_xyz=cell.stated.tolist())
    began = process_time()
    try:
        result = estimate_geometry(robot, data, values, Inputs())
    except RobocalError as error:
        return Case(seed, series, cell.name, {}, 'refused', str(error))
    seconds = process_time() - began
    truth = {f'{joint}.{axis}': value for joint, moved in zip(
        cell.arm.joints, cell.moved.tolist(), strict=True)
        for axis, value in zip(FRAME_AXES, moved, strict=True)}
    truth |= {f'{name}.{axis}': value for name in ('ball', 'target')
              for axis, value in zip('xyz', cell.target.tolist(), strict=True)}
    truth |= {f'{joint}.compliance': value for joint, value in zip(
        cell.arm.joints, cell.compliance.tolist(), strict=True)}
    truth |= {item.name: APART for item in result.parameters if item.name.endswith('.distance')}
    found = tuple(
        value_of(kind, truth[item.name], item.value, item.std,
                 freedom=None if kind == STIFF else item.freedom) for item in result.parameters
        if item.name in truth and item.value is not None and (kind := _kind(item)))
    (distance,) = result.validation
    noise = np.sqrt(3.0) * (TRACKER if series == 'tracker' else BALL)
    return Case(seed, series, cell.name, {}, result.verdict.value, ' '.join(result.reasons), found,
                {'held out': distance.after / noise}, seconds)


def _kind(item: Parameter) -> str:
    """Return the figure that a parameter belongs to; empty for none."""
    what = item.name.rpartition('.')[2]
    if what not in ('distance', 'compliance'):
        return FRAMES if item.state is State.IDENTIFIED else HELD
    return '' if item.state is not State.IDENTIFIED else DISTANCES if what == 'distance' else STIFF


def run_case(seed: int) -> list[Case]:
    """Return the cases of all series."""
    return [run_cell(seed, series) for series in SERIES]


def figures(series: str, cases: Sequence[Case]) -> Iterator[Figure]:
    """Yield the figures of the cases of one series."""
    yield Figure.share(series, 'verdict pass', sum(case.passed for case in cases), len(cases))
    for what, (deviate, bar) in LIMITS.items():
        values = [item for case in cases for item in case.values if item.name == what]
        if values:
            yield Figure.share(series, what, sum(abs(item.z) <= deviate for item in values),
                               len(values), bar)
    held_out = [case.notes['held out'] for case in cases if case.notes]
    yield Figure.single(series, 'held-out distance ÷ noise, median of all cells', '1',
                        float(np.median(held_out)), HELD_OUT_BAR)
    yield Figure.over(series, 'processor time', 's',
                      [case.seconds for case in cases if np.isfinite(case.seconds)])


def _run(request: Request) -> Outcome:
    every = in_parallel(run_case, request.seeds, request.jobs, 'geometry')
    rows = [figure for number, name in enumerate(SERIES)
            for figure in figures(name, [own[number] for own in every])]
    return Outcome(rows, [case for own in every for case in own])


BENCHMARK = Benchmark('Geometry of the whole arm', (
    'Five arms whose frames are displaced by 1 mm and 2 mrad (standard deviations per axis) and '
    'whose joints sag by 0.5 to 2 mm under the weight of the links, by a simulation that shares '
    'nothing with the estimator: 80 postures seen by a tracker of unknown pose (0.05 mm per '
    'axis), or 30 postures in each of ten sockets in five placements (0.1 mm per axis) without '
    'any known length.'), _run, seeds=500)
