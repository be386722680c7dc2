# SPDX-License-Identifier: Apache-2.0
"""Benchmark of identified friction in the two-plane method: sweeps in both or one direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.arm import InProcessArm
from benchmarks.figures import Figure
from benchmarks.random_cell import random_tool, random_truth
from demo import default_cell
from robocal_ros.estimation import steady_sweeps
from robocal_ros.friction import FrictionParameters, estimate as estimate_friction
from robocal_ros.friction.plan import plan_runs
from robocal_ros.messages import JointSamples, Recording
from robocal_ros.payload import PayloadParameters, plan, two_plane
from robocal_ros.payload.result import COM
from robocal_ros.robot import (
    CollisionChecker,
    Lspb,
    Robot,
    SteadyFriction,
    connect,
    friction_by_joint,
    quintic_path,
)
from robocal_ros.robot.trajectories import quintic_move

SERIES = 'two planes, 2 kg, identified friction'
BAR, ONE_WAY_BAR = 1.0, 2.0
"""Limits of the error of each axis [mm]."""

_SPEEDS = (0.01, 0.02, 0.035, 0.06, 0.12, 0.25, 0.45)
_SWEEP_SPEED, _VELOCITY, _ACCELERATION, _REST = 0.25, 1.0, 2.0, 0.3
_MASS = 2.0


@dataclass(frozen=True)
class Handover:
    """Largest error of the centre of mass over its axes, by knowledge of friction [m].

    Attributes:
        without: Sweeps in both directions, friction unknown.
        both_ways: Sweeps in both directions, friction identified.
        one_way: Sweeps in one direction, friction identified.
        one_way_inside: Number of intervals of ``one_way``, out of three, that contain the truth.

    """

    without: float
    both_ways: float
    one_way: float
    one_way_inside: int


class _Cell:
    """One random cell in this process."""

    def __init__(self, seed: int) -> None:
        truth = random_truth(
            default_cell.hidden_truth(), seed, sensor=default_cell.WRIST_SENSOR)
        self.tool = random_tool(np.random.default_rng([seed, 3]), _MASS)
        self.robot = Robot(default_cell.urdf())
        self._checker = CollisionChecker(self.robot.copy())
        self._arm = InProcessArm(
            default_cell.urdf(), replace(truth, tool=self.tool), default_cell.reference_cell(),
            seed)
        self._velocity = np.minimum(self.robot.velocity_limit, _VELOCITY)
        self._limit = np.full(self.robot.n, _ACCELERATION)

    def friction(self, joints: Sequence[int]) -> Mapping[str, SteadyFriction]:
        """Identify the friction of some joints with a known tool."""
        arm, home = self._arm, self._arm.posture
        robot = self.robot.with_payload(
            default_cell.rigid_body(self.tool), self.tool.parent or None)
        values = FrictionParameters(
            measure_joints=[self.robot.joint_names[joint] for joint in joints])
        for joint in joints:
            for run in plan_runs(robot, self._checker, home, joint, values, _SPEEDS):
                arm.move(quintic_move(arm.posture, run.start_posture(), self._velocity,
                                      self._limit))
                arm.dwell(_REST)
                arm.move(run.trajectory())
                arm.dwell(_REST)
            arm.move(quintic_move(arm.posture, home, self._velocity, self._limit))
        recording = Recording(arm.take_samples()[0])
        return friction_by_joint(estimate_friction(robot, recording, values))

    def sweeps(self, plan: plan.TwoPlanePlan) -> JointSamples:
        """Run the sweeps of the two-plane method."""
        arm = self._arm
        arm.move(quintic_path(plan.approach, self._velocity, self._limit))
        for sweep in plan.sweeps:
            start = sweep.end(high=False)
            if np.abs(start - arm.posture).max() > 1e-3:
                way = connect(self.robot, self._checker, arm.posture, start)
                arm.move(quintic_path(way, self._velocity, self._limit))
            for begin, goal in ((sweep.low, sweep.high), (sweep.high, sweep.low)):
                segment = Lspb.with_acceleration(begin, goal, _SWEEP_SPEED, _ACCELERATION)
                arm.move(segment.trajectory(sweep.posture, sweep.joint))
        return arm.take_samples()[0]

    def plan(self) -> plan.TwoPlanePlan:
        """Plan the sweeps."""
        return plan.plan_two_plane(
            self.robot, self._checker, self._arm.posture, mass=_MASS)


def one_way(samples: JointSamples) -> JointSamples:
    """Return the samples without the sweeps in the negative direction."""
    keep = np.ones(len(samples), dtype=bool)
    for sweep in steady_sweeps(samples, min_span=0.17):
        if sweep.direction < 0:
            keep[sweep.start - 1:sweep.stop + 1] = False
    return JointSamples(samples.joint_names, samples.time[keep], samples.position[keep],
                        samples.velocity[keep], samples.effort[keep], samples.counts,
                        samples.source)


def run_case(seed: int) -> Handover:
    """Identify the friction of the swept joints, then the centre of mass in three ways.

    Args:
        seed: Seed of tool, joints and noise.

    Raises:
        RobocalError: A procedure fails.

    """
    cell = _Cell(seed)
    plan = cell.plan()
    laws = cell.friction(sorted({sweep.joint for sweep in plan.sweeps}))
    samples = cell.sweeps(plan)
    expected = default_cell.payload_truth(cell.tool, cell.robot, cell.robot.tool_frame)
    truth = np.array([expected[name] for name in COM])
    # Efforts of the cell are exact, and its friction is as identified.
    values = PayloadParameters(known_mass=_MASS, friction_change_std=0.0)

    def worst(record: JointSamples, friction: Mapping[str, SteadyFriction] | None
              ) -> tuple[float, int]:
        result = two_plane.estimate(cell.robot, record, values, friction)
        error = np.abs(result.values(COM) - truth)
        inside = error <= 1.96 * np.sqrt(np.diag(result.covariance))
        return float(error.max()), int(inside.sum())

    return Handover(worst(samples, None)[0], worst(samples, laws)[0],
                    *worst(one_way(samples), laws))


def figures(cases: Sequence[Handover]) -> list[Figure]:
    """Return the errors of the centre of mass over all cases."""
    rows = []
    for what, name, bar in (
        ('both directions, friction unknown', 'without', BAR),
        ('both directions, friction identified', 'both_ways', BAR),
        ('one direction, friction identified', 'one_way', ONE_WAY_BAR),
    ):
        errors = [1e3 * getattr(case, name) for case in cases]
        rows.append(Figure(SERIES, f'worst axis of the centre, {what}', 'mm',
                           float(np.median(errors)), max(errors), bar))
    return rows
