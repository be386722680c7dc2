# SPDX-License-Identifier: Apache-2.0
"""Benchmark of compliance: arms at rest whose joints and bearings bend, seen by a tracker.

Statics are those of `second_world`, which shares nothing with the product: bearings bend about all
three axes, encoders hide part of the motors' motion, the tracker's noise is partly correlated, its
frame drifts, and the load weighs other than stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, bootstrap, in_parallel
from benchmarks.second_campaign import Z95, Z999, Case, value_of
from benchmarks.second_world import (
    ARMS,
    GRAVITY,
    Arm,
    Array,
    body,
    moments,
    placed,
    reached,
    read_arm,
    rotation,
    torques,
    turned,
    urdf_of,
)
from robocal_ros.compliance import ComplianceParameters
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.compliance.measurement import HELD_OUT_EVERY, EndPosition, average
from robocal_ros.compliance.model import Mounted, given_load
from robocal_ros.errors import RobocalError
from robocal_ros.messages import TrackerSamples
from robocal_ros.robot import Robot

WITHIN_BAR, SAG_BAR, BOUND_BAR = 95.0, 95.0, 1.1
"""Limits: percent of joints and of the sag; RMS errors over the bound."""

_SMALL = 0.05
# Torque below which a gear with backlash is not pressed against a flank [N·m].
_PLAYING = 0.05
_RATE, _DWELL, _VISIT, _PAUSE = 20.0, 2.0, 8.0, 300.0
# Numbers of the postures; the first one comes again after every tenth.
_ORDER = [i for row in range(0, 30, 10) for i in (0, *range(row, row + 10))][1:] + [0]


@dataclass(frozen=True)
class Effects:
    """What a cell is like.

    Attributes:
        bending: Compliance across a joint over that about its axis, mean of the joints.
        scale: Whether bearings bend in proportion to their ``joint``, or alike on the ``arm``.
        step: Step of the encoders [rad].
        give: Share of half a step by which motors yield to the torque, 0 … 1.
        white: Standard deviation of a reading by white noise [m].
        correlated: The same by correlated noise [m].
        memory: Its correlation time [s].
        drift: Speed of the tracker's frame [m/s].
        mass_std: Relative standard deviation of the load's mass.
        com_std: Standard deviation of its centre [m].
        sag: Typical displacement by the load [m].
        mount: Tilt of the base about y, which is known [rad].
        links: Share of the sag by which beams between the joints, and behind the last, bend.
        sideways: The same of bearings that give way in the direction of the force.
        target: Distance of the target from where it is stated to be [m].
        backlash: Play of the gears, on the flank on which the torque presses [rad].

    """

    bending: float = 0.0
    scale: str = 'joint'
    step: float = 0.0
    give: float = 0.0
    white: float = 2e-5
    correlated: float = 0.0
    memory: float = 0.5
    drift: float = 0.0
    mass_std: float = 0.0
    com_std: float = 0.0
    sag: float = 8e-4
    mount: float = 0.0
    links: float = 0.0
    sideways: float = 0.0
    target: float = 0.0
    backlash: float = 0.0


def drawn_effects(seed: int) -> Effects:
    """Draw a cell; each effect is missing from some."""
    g = np.random.default_rng([seed, 1])

    def sometimes(share: float, value: float) -> float:
        return value if g.uniform() < share else 0.0

    def between(low: float, high: float) -> float:
        return float(np.exp(g.uniform(np.log(low), np.log(high))))

    return Effects(
        bending=sometimes(0.7, g.uniform(0.0, 0.3)), scale=str(g.choice(['joint', 'arm'])),
        step=sometimes(0.7, between(1e-5, 1.5e-3)), give=sometimes(0.5, g.uniform()),
        white=between(1e-5, 1e-4), correlated=sometimes(0.6, between(2e-5, 1e-4)),
        memory=between(0.1, 3.0), drift=sometimes(0.4, between(1e-8, 3e-7)),
        mass_std=sometimes(0.5, between(1e-3, 1e-2)), com_std=sometimes(0.5, between(2e-4, 3e-3)),
        sag=between(4e-4, 2e-3), links=sometimes(0.5, g.uniform(0.0, 0.3)),
        sideways=sometimes(0.3, g.uniform(0.0, 0.1)))


SERIES: dict[str, Effects | None] = {
    'noise of the tracker alone': Effects(),
    'noise of the tracker alone, on a 30° wall': Effects(mount=np.pi / 6.0),
    'drawn effects': None}
"""Effects by series; None to draw them."""


def _bendable(arm: Arm) -> Arm:
    """Return the arm with two joints more in each link, at the points of Gauss of a beam."""
    before, ends = [arm.before[0]], [*arm.before[1:], arm.tool]
    for end in ends:
        begin = end[:3, 3] * (0.5 - 0.5 / np.sqrt(3.0))
        middle = end[:3, 3] / np.sqrt(3.0)
        before += [placed(np.eye(3), begin), placed(np.eye(3), middle),
                   placed(np.eye(3), -begin - middle) @ end]
    return replace(
        arm, joints=tuple(np.repeat(arm.joints, 3).tolist()), before=np.array(before[:-1]),
        axis=np.repeat(arm.axis, 3, axis=0), tool=before[-1],
        bodies=tuple((3 * at, one, distal) for at, one, distal in arm.bodies))


class Cell:
    """An arm, its load and its tracker.

    Attributes:
        soft: Hidden compliance of each joint about its axis and across it, of beams behind it, and
            of its bearing to forces, shape (n, 1 + 2 + 3 + 3) [rad/(N·m), m/N].

    """

    def __init__(self, seed: int, effects: Effects) -> None:
        """Draw what is hidden; ``seed`` chooses the arm, too."""
        self.effects, self.seed, g = effects, seed, np.random.default_rng([seed, 2])
        self.name = list(ARMS)[seed % len(ARMS)]
        self.arm, self.data = read_arm(self.name), ARMS[self.name]
        self.chain = _bendable(self.arm)
        n = len(self.arm.joints)
        self.gravity = rotation(np.array([0.0, -effects.mount, 0.0])) @ [0.0, 0.0, -GRAVITY]
        self.load = float(self.data.payload), g.uniform((-0.08, -0.08, 0.05), (0.08, 0.08, 0.15))
        self.target = g.uniform((-0.08, -0.08, 0.0), (0.08, 0.08, 0.1))
        self.tracker = rotation(g.normal(size=3)), g.uniform(-2.0, 2.0, 3)
        centre = np.array(self.data.home)
        low, high = np.maximum(self.arm.lower, centre - 1.6), np.minimum(
            self.arm.upper, centre + 1.6)
        self.postures = g.uniform(low, high, (30, n))
        # Basis of each joint's frame: its axis, then two directions across it.
        across = np.array([scipy.linalg.null_space(axis[None]) for axis in self.arm.axis])
        self.basis = np.concatenate((self.arm.axis[:, :, None], across), axis=2)
        compliance = np.geomspace(1.0, 20.0, n) * np.exp(0.4 * g.normal(size=n)) * 1e-6
        alike = np.exp(np.log(compliance).mean())
        scale = compliance if effects.scale == 'joint' else np.full(n, alike)
        shares = g.uniform(0.3, 1.7, n)[:, None] * np.exp(0.3 * g.normal(size=(n, 2)))
        bending = effects.bending * scale[:, None] * shares
        self.on_housing = g.uniform(size=n) < 0.5
        beams, slack = (1e-6 * np.exp(0.5 * g.normal(size=(n, 3))) for _ in range(2))
        every = np.column_stack((compliance, bending, beams, slack))
        found = np.zeros_like(every)
        for kind, share in enumerate((1.0, effects.links, effects.sideways)):
            # Each kind is scaled by the sag that it causes alone.
            self.soft = every * (np.arange(9) // 3 == kind)
            found += self.soft * share * effects.sag / self._sag()
        self.soft = found
        self.noise = np.random.default_rng([seed, 3])
        self.stated = (
            self.load[0] * (1.0 + effects.mass_std * self.noise.normal()),
            self.load[1] + effects.com_std * self.noise.normal(size=3))
        aside = np.random.default_rng([seed, 77]).normal(size=3)
        self.stated_target = self.target + effects.target * aside / np.linalg.norm(aside)

    def _sag(self) -> float:
        """Return the typical displacement by the load [m]."""
        return float(np.sqrt(np.mean(np.sum(self._moved()**2, axis=1))))

    def _moved(self) -> Array:
        """Return the displacements by the load in the postures, shape (30, 3) [m]."""
        return self._points(self.postures, loaded=True) - self._points(self.postures)

    def _points(self, q: Array, *, loaded: bool = False) -> Array:
        """Return the target with the motors at ``q``, shape (k, 3) [m]."""
        chain, n = self.chain, q.shape[1]
        links = chain.links
        if loaded:
            links[-1] += chain.tool @ body(*self.load, np.zeros((3, 3))) @ chain.tool.T
        springs = np.zeros((len(q), n, 3, 3, 3))
        springs[:, :, 0] = np.einsum('nij,nj,nkj->nik', self.basis, self.soft[:, :3], self.basis)
        for joint in np.flatnonzero(self.on_housing).tolist():
            turn = turned(self.arm, joint, q[:, joint])
            springs[:, joint, 0] = turn.transpose(0, 2, 1) @ springs[:, joint, 0] @ turn
        # Two points of Gauss stand for a beam exactly, with half of it each.
        springs[:, :, 1:] = 0.5 * (np.eye(3) * self.soft[:, 3:6, None])[:, None]
        tensor = springs.reshape(len(q), 3 * n, 3, 3)
        full = np.repeat(q, 3, axis=1) * (np.arange(3 * n) % 3 == 0)
        still, bend = np.zeros_like(full), np.zeros((*full.shape, 3))
        for _ in range(5):
            held, _ = moments(chain, links, full, still, still, self.gravity,
                              (bend, 0.0 * bend, 0.0 * bend))
            bend = -np.einsum('knij,knj->kni', tensor, held)
        return reached(chain, full, self.target, bend) + self._slack(q, links)

    def _slack(self, q: Array, links: Array) -> Array:
        """Return what the bearings yield to the weight that they carry, shape (k, 3) [m]."""
        carried = np.cumsum(links[::-1, 3, 3])[::-1][::3]
        turn, moved = np.eye(3), np.zeros((len(q), 3))
        for joint, mass in enumerate(carried):
            turn = turn @ self.arm.before[joint, :3, :3] @ turned(self.arm, joint, q[:, joint])
            moved += mass * np.einsum(
                'kij,j,klj,l->ki', turn, self.soft[joint, 6:], turn, self.gravity)
        return moved

    def _torque_sign(self, q: Array) -> Array:
        up, down = (np.stack([reached(self.arm, q + sign * row, self.load[1]) @ self.gravity
                              for row in 1e-4 * np.eye(q.shape[1])], axis=1)
                    for sign in (1.0, -1.0))
        return np.sign(up - down)

    def _play(self, q: Array, *, loaded: bool) -> Array:
        """Return what gears with backlash yield, shape (k, n) [rad]."""
        links, still = self.arm.links.copy(), np.zeros_like(q)
        if loaded:
            links[-1] += self.arm.tool @ body(*self.load, np.zeros((3, 3))) @ self.arm.tool.T
        held = torques(self.arm, links, q, still, still, self.gravity)
        shares = np.random.default_rng([self.seed, 8]).uniform(0.5, 1.5, q.shape[1])
        return -0.5 * self.effects.backlash * shares * np.tanh(held / _PLAYING)

    def measure(self, *, loaded: bool) -> list[EndPosition]:
        """Return the end positions of a set, its first posture again after every tenth."""
        effects, g, order = self.effects, self.noise, _ORDER
        q = self.postures[order]
        scatter = effects.step * (1.0 - effects.give) * g.uniform(-0.5, 0.5, q.shape)
        give = 0.5 * effects.step * effects.give * self._torque_sign(q) * g.uniform(size=q.shape)
        points = self._points(q + scatter + (give if loaded else 0.0) + self._play(
            q, loaded=loaded), loaded=loaded)
        turn, origin = self.tracker
        start = (len(order) * _VISIT + _PAUSE) * loaded
        count = round(_RATE * _DWELL)
        time = start + _VISIT * np.arange(len(order))[:, None] + np.arange(count) / _RATE
        innovations = g.normal(size=(time.size, 3))
        keep = np.exp(-np.diff(time.ravel(), prepend=-1e9) / effects.memory)[:, None]
        slow = np.zeros((time.size, 3))
        for row in range(1, time.size):
            slow[row] = keep[row] * slow[row - 1] + np.sqrt(1 - keep[row]**2) * innovations[row]
        drift = effects.drift * time[..., None] * np.array([0.6, 0.48, 0.64])
        read = ((points - origin) @ turn)[:, None] + drift \
            + effects.correlated * slow.reshape(*time.shape, 3) \
            + effects.white * g.normal(size=(*time.shape, 3))
        return [average(posture, TrackerSamples('tracker', t, point))
                for posture, t, point in zip(q, time, read, strict=True)]

    def bound(self) -> dict[str, float]:
        """Return the Cramér-Rao bounds with white noise alone, by joint, of those in sight.

        The pose of the tracker counts as known.
        """
        fitted = np.arange(1, 31) % HELD_OUT_EVERY != 0
        true, columns = self.soft, []
        for joint, step in enumerate(0.01 * true[:, 0]):
            moved = list[Array]()
            for self.soft in (true.copy(), true.copy()):
                self.soft[joint, 0] += step if not moved else -step
                moved.append(self._moved())
            columns.append((moved[0] - moved[1])[fitted].ravel() / (2.0 * step))
        self.soft = true
        visits = np.bincount(_ORDER)[fitted] * _RATE * _DWELL / 2.0
        rows = np.sqrt(np.repeat(visits, 3))[:, None] * np.column_stack(columns)
        size = np.linalg.norm(rows, axis=0)
        seen = size > 1e-6 * size.max()
        std = self.effects.white * np.sqrt(np.diag(np.linalg.inv(rows[:, seen].T @ rows[:, seen])))
        return dict(zip(np.array(self.arm.joints)[seen].tolist(), std.tolist(), strict=True))


def run_cell(seed: int, effects: Effects | None = None) -> Case:
    """Return the compliances of one cell [rad/(N·m)], with drawn effects if none are given.

    Bounds are those with white noise alone. Notes are the share of the sag that is removed on
    held-out postures [%], and what compliances leave.
    """
    cell = Cell(seed, drawn_effects(seed) if effects is None else effects)
    x, y, z = cell.gravity.tolist()
    robot = Robot(urdf_of(cell.name), tool_frame=cell.data.tool, gravity=(x, y, z))
    mass, com = cell.stated
    load = given_load(mass, com.tolist(), cell.data.tool, com_std=cell.effects.com_std,
                      mass_std=cell.effects.mass_std * mass)
    values = ComplianceParameters(
        target_frame=cell.data.tool, target_xyz=cell.stated_target.tolist(),
        max_registration_residual=0.05,
        max_drift=max(5e-5, 2.0 * cell.effects.step))
    bound = {} if effects is None else cell.bound()
    try:
        result = estimate_sets(robot, cell.measure(loaded=False), cell.measure(loaded=True),
                               Mounted(load), values)
    except RobocalError as error:
        return Case(seed, 'compliance', cell.name, vars(cell.effects), 'refused', str(error))
    joints = tuple(
        replace(value_of(name, truth, p.value, p.std, freedom=p.freedom),
                bound=bound.get(name, 0.0)) for name, p, truth in zip(
            cell.arm.joints, result.parameters, cell.soft[:, 0].tolist(), strict=True)
        if p.value is not None)
    (sag,) = result.validation
    return Case(seed, 'compliance', cell.name, vars(cell.effects), result.verdict.value,
                ' '.join(result.reasons), joints, {
                    'sag removed': 100.0 * (1.0 - sag.after / sag.before),
                    'reduced chi-square': result.settings['reduced_chi_square']})


def run_case(seed: int) -> list[Case]:
    """Return the cases of all series."""
    return [run_cell(seed, effects) for effects in SERIES.values()]


def figures(series: str, cases: Sequence[Case]) -> Iterator[Figure]:
    """Yield the figures of the cases of one series."""
    joints = [joint for case in cases for joint in case.values]
    sharp = [abs(joint.error) <= 2.0 * joint.std for joint in joints
             if joint.std < _SMALL * joint.truth]
    yield Figure.share(series, 'joints with std below 5 %: within 2 σ', sum(sharp), len(sharp),
                       WITHIN_BAR)
    passed = [case for case in cases if case.passed]
    if not joints[0].bound:
        yield Figure.share(series, 'verdict pass', len(passed), len(cases))
        yield Figure.single(series, 'wrong passes', '1', sum(case.wrong for case in cases), 0.0)
        for level, deviate, bar in ((95, Z95, 93.0), (99.9, Z999, 99.8)):
            inside = [abs(joint.z) <= deviate for case in passed for joint in case.values]
            yield Figure.share(series, f'values of passes inside {level:g} %', sum(inside),
                               len(inside), bar)
        return
    yield Figure.over(series, 'sag removed on held-out postures', '%',
                      [case.notes.get('sag removed', np.nan) for case in cases], SAG_BAR,
                      at_least=True)

    def ratio(numbers: Sequence[int]) -> float:
        return float(np.sqrt(np.mean([(joint.error / joint.bound)**2 for number in numbers
                                      for joint in cases[number].values])))

    yield Figure.single(series, 'RMSE ÷ Cramér-Rao bound', '1', ratio(range(len(cases))),
                        BOUND_BAR, band=bootstrap(ratio, len(cases)))


def _run(request: Request) -> Outcome:
    every = in_parallel(run_case, request.seeds, request.jobs, 'compliance')
    rows = [figure for number, name in enumerate(SERIES)
            for figure in figures(name, [own[number] for own in every])]
    return Outcome(rows, [case for own in every for case in own])


BENCHMARK = Benchmark('Compliance', (
    'Statics of five arms with their payload and a tracker in 30 postures, by a simulation that '
    'shares nothing with the estimator: with the noise of the tracker alone, and with drawn '
    'effects: bearings that bend, encoder steps, correlated noise, drift, a load off by its '
    'stated deviations.'), _run, seeds=200)
