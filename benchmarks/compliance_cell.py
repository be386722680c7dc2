# SPDX-License-Identifier: Apache-2.0
"""Arms at rest whose joints and bearings bend, seen by a tracker with correlated noise.

Statics are those of `second_world`, which shares nothing with the product: bearings bend about all
three axes, encoders hide part of the motors' motion, the tracker's noise is partly correlated, its
frame drifts, and the load weighs other than stated. `python -m benchmarks.compliance_cell` counts
how often the product's intervals contain the truth.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from benchmarks.benchmark import in_parallel
from benchmarks.second_world import (
    ARMS,
    GRAVITY,
    Array,
    body,
    cross_matrix,
    moments,
    placed,
    read_arm,
    rotation,
    urdf_of,
)
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.compliance.measurement import EndPosition, average
from robocal_ros.compliance.model import given_load
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import RobocalError
from robocal_ros.messages import TrackerSamples
from robocal_ros.robot import Robot

LEVELS = (0.95, 0.999)
_RATE, _DWELL, _VISIT, _PAUSE = 20.0, 2.0, 8.0, 300.0


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
        sag=between(4e-4, 2e-3))


class Cell:
    """An arm, its hidden compliance, its load and its tracker."""

    def __init__(self, seed: int, effects: Effects) -> None:
        """Draw what is hidden; ``seed`` chooses the arm, too."""
        self.effects, g = effects, np.random.default_rng([seed, 2])
        self.name = list(ARMS)[seed % len(ARMS)]
        self.arm, self.data = read_arm(self.name), ARMS[self.name]
        n = len(self.arm.joints)
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
        self.compliance = np.geomspace(1.0, 20.0, n) * np.exp(0.4 * g.normal(size=n)) * 1e-6
        alike = np.exp(np.log(self.compliance).mean())
        scale = self.compliance if effects.scale == 'joint' else np.full(n, alike)
        shares = g.uniform(0.3, 1.7, n)[:, None] * np.exp(0.3 * g.normal(size=(n, 2)))
        self.bending = effects.bending * scale[:, None] * shares
        self.on_housing = g.uniform(size=n) < 0.5
        moved = self._points(self.postures, loaded=True) - self._points(self.postures)
        factor = effects.sag / np.sqrt(np.mean(np.sum(moved**2, axis=1)))
        self.compliance, self.bending = factor * self.compliance, factor * self.bending
        self.noise = np.random.default_rng([seed, 3])
        self.stated = (
            self.load[0] * (1.0 + effects.mass_std * self.noise.normal()),
            self.load[1] + effects.com_std * self.noise.normal(size=3))

    def _turn(self, joint: int, angle: Array) -> Array:
        matrix = cross_matrix(self.arm.axis[joint])
        s, c = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
        return np.eye(3) + s * matrix + (1.0 - c) * (matrix @ matrix)

    def _points(self, q: Array, *, loaded: bool = False) -> Array:
        """Return the target with the motors at ``q``, shape (k, 3) [m]."""
        n, still = q.shape[1], np.zeros_like(q)
        links = np.zeros((n, 4, 4))
        for at, one, _ in self.arm.bodies:
            links[at] += one
        if loaded:
            tool = self.arm.tool
            links[-1] += tool @ body(*self.load, np.zeros((3, 3))) @ tool.T
        stiff = np.concatenate((self.compliance[:, None], self.bending), axis=1)
        tensor = np.tile(np.einsum('nij,nj,nkj->nik', self.basis, stiff, self.basis),
                         (len(q), 1, 1, 1))
        for joint in np.flatnonzero(self.on_housing).tolist():
            turn = self._turn(joint, q[:, joint])
            tensor[:, joint] = turn.transpose(0, 2, 1) @ tensor[:, joint] @ turn
        bend = np.zeros((*q.shape, 3))
        for _ in range(5):
            held, _ = moments(self.arm, links, q, still, still, np.array([0.0, 0.0, -GRAVITY]),
                              (bend, 0.0 * bend, 0.0 * bend))
            bend = -np.einsum('knij,knj->kni', tensor, held)
        place = np.tile(np.eye(4), (len(q), 1, 1))
        for joint in range(n):
            step = np.tile(np.eye(4), (len(q), 1, 1))
            small = scipy.spatial.transform.Rotation.from_rotvec(bend[:, joint]).as_matrix()
            step[:, :3, :3] = self._turn(joint, q[:, joint]) @ small
            place = place @ self.arm.before[joint] @ step
        return np.asarray((place @ self.arm.tool @ placed(np.eye(3), self.target))[:, :3, 3])

    def _torque_sign(self, q: Array) -> Array:
        step = 1e-4 * np.eye(q.shape[1])
        up, down = (np.stack([self._height(q + sign * row) for row in step], axis=1)
                    for sign in (1.0, -1.0))
        return -np.sign(up - down)

    def _height(self, q: Array) -> Array:
        place = np.tile(np.eye(4), (len(q), 1, 1))
        for joint in range(q.shape[1]):
            step = np.tile(np.eye(4), (len(q), 1, 1))
            step[:, :3, :3] = self._turn(joint, q[:, joint])
            place = place @ self.arm.before[joint] @ step
        return np.asarray((place @ self.arm.tool @ placed(np.eye(3), self.load[1]))[:, 2, 3])

    def measure(self, *, loaded: bool) -> list[EndPosition]:
        """Return the end positions of a set, its first posture again after every tenth."""
        effects, g = self.effects, self.noise
        order = [i for row in range(0, 30, 10) for i in (0, *range(row, row + 10))][1:] + [0]
        q = self.postures[order]
        scatter = effects.step * (1.0 - effects.give) * g.uniform(-0.5, 0.5, q.shape)
        give = 0.5 * effects.step * effects.give * self._torque_sign(q) * g.uniform(size=q.shape)
        points = self._points(q + scatter + (give if loaded else 0.0), loaded=loaded)
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


def run_cell(seed: int, effects: Effects | None = None) -> dict[str, Any]:
    """Return what the product says of one cell."""
    cell = Cell(seed, effects or drawn_effects(seed))
    robot = Robot(urdf_of(cell.name), tool_frame=cell.data.tool)
    mass, com = cell.stated
    load = given_load(mass, com.tolist(), cell.data.tool, com_std=cell.effects.com_std,
                      mass_std=cell.effects.mass_std * mass)
    values = ComplianceParameters(
        target_frame=cell.data.tool, target_xyz=cell.target.tolist(),
        max_registration_residual=0.05,
        max_drift=max(5e-5, 2.0 * cell.effects.step))
    found: dict[str, Any] = {'seed': seed, 'arm': cell.name, 'effects': cell.effects}
    try:
        result = estimate_sets(robot, cell.measure(loaded=False), cell.measure(loaded=True), load,
                               values)
    except RobocalError as error:
        return {**found, 'verdict': 'refused', 'reasons': [str(error)], 'joints': []}
    joints = [(p.name, truth, p.value, p.std, [low <= truth <= high for low, high in (
        p.interval(level) or (0.0, 0.0) for level in LEVELS)])
        for p, truth in zip(result.parameters, cell.compliance, strict=True)
        if p.value is not None]
    return {**found, 'verdict': result.verdict.value, 'reasons': list(result.reasons),
            'joints': joints, 'settings': result.settings}


def table(cases: list[dict[str, Any]]) -> str:
    """Return the shares of intervals that contain the truth, and the wrong passes."""
    lines = []
    for name, chosen in (
            ('all', cases), ('pass', [c for c in cases if c['verdict'] == 'pass']),
            ('without bending', [c for c in cases if not c['effects'].bending]),
            ('with bending', [c for c in cases if c['effects'].bending])):
        rows = [inside for c in chosen for *_, inside in c['joints']]
        widths = [std / truth for c in chosen for _, truth, _, std, _ in c['joints']]
        wrong = sum(c['verdict'] == 'pass' and not all(i[1] for *_, i in c['joints'])
                    for c in chosen)
        verdicts = {v: sum(c['verdict'] == v for c in chosen)
                    for v in dict.fromkeys(c['verdict'] for c in chosen)}
        shares = 100.0 * np.mean(rows, axis=0) if rows else [np.nan, np.nan]
        lines.append(
            f'{name}: {len(chosen)} cells, {verdicts}, wrong passes {wrong}; {len(rows)} joints, '
            f'inside 95 %: {shares[0]:.1f} %, inside 99.9 %: {shares[1]:.2f} %, median relative '
            f'std {np.median(widths) if widths else np.nan:.3f}')
    return '\n'.join(lines)


def main() -> None:
    """Run cells and print the table."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.compliance_cell')
    parser.add_argument('--cells', type=int, default=100)
    parser.add_argument('--seed', type=int, default=0, help='seed of the first cell')
    parser.add_argument('--jobs', type=int, default=2)
    options = parser.parse_args()
    cases = in_parallel(run_cell, range(options.seed, options.seed + options.cells),
                        options.jobs, 'cells')
    for case in cases:
        worst = max((abs(v - t) / s if s else np.inf for _, t, v, s, _ in case['joints']),
                    default=np.nan)
        sys.stdout.write(f'{case["seed"]} {case["arm"]} {case["verdict"]} worst {worst:.1f} σ '
                         f'{case["effects"]} {case["reasons"][:1]}\n')
    sys.stdout.write(table(cases) + '\n')


if __name__ == '__main__':
    main()
