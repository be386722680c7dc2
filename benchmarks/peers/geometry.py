# SPDX-License-Identifier: Apache-2.0
"""Compliance, registration of the tracker, and leveling: the product against simple methods.

Compliance: one joint at a time from the displacements of the postures in which it dominates.
Registration: three points instead of all. Leveling: the straight line in joint space to an inverse
kinematics solution, and interpolation of roll, pitch and yaw one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import process_time

import numpy as np
import pinocchio as pin

from benchmarks import foreign_arms
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.compliance_arm import ArmAtRest, Known, both_sets, drawn_truth, tracker_of
from benchmarks.leveling import planner_of, tilted_posture
from benchmarks.leveling_search import Chain
from benchmarks.peers.comparison import COLUMNS, NO_VERDICT, Row, judged, limits, tables
from benchmarks.peers.process import Run
from demo import default_cell
from demo.compliance import compliance_truth
from robocal_ros.arrays import Array
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.compliance.measurement import EndPosition, displacements
from robocal_ros.compliance.model import Target, target_motion
from robocal_ros.compliance.plan import information_block
from robocal_ros.compliance.registration import (
    Registration,
    least_squares_transform,
    three_point,
)
from robocal_ros.leveling import tilt
from robocal_ros.leveling.model import level_targets
from robocal_ros.leveling.plan import LevelingRefusal
from robocal_ros.results import State
from robocal_ros.robot import Robot
from robocal_sim.sensors import rotation_from_rpy
from robocal_sim.truth import HiddenTruth

OURS, ONE_BY_ONE = 'robocal', 'one joint at a time'
ALL_POINTS, THREE_POINTS = 'robocal, least squares of 8 points', 'three points'
PLANNED, LINE, ANGLES = 'robocal, planned', 'joint-space line to an IK solution', (
    'roll, pitch and yaw one by one')
COMPLIANCE, REGISTRATION, LEVELING = ('compliance, 10 kg', 'registration of the tracker',
                                      'leveling of a UR5')
DRIFT = 0.5e-3
"""Drift of the tool point that matters [m]."""

REASON = ('The planner sets as few points as the limit of the drift, 0.5 mm, allows; the '
          'interpolation has twenty, and ignores limits and collisions.')

_UP = np.array([0.0, 0.0, 1.0])
_POINTS, _NOISE, _REACH = 8, 5e-5, 0.4
_WAYPOINTS, _BETWEEN = 20, 10
_SMALL = 0.1
_TILT = 1e-3


def compliance(seed: int) -> list[Row]:
    """Return the rows of both estimates of one drawn arm's compliances."""
    truth = drawn_truth(seed, joints=True)
    known = Known.of(truth)
    arm = ArmAtRest(known, truth, default_cell.reference_cell(), seed)
    unloaded, loaded_set = both_sets(arm, known.postures(seed), known.values)
    began = process_time()
    result = estimate_sets(known.robot, unloaded, loaded_set, known.load, known.values)
    ours = process_time() - began
    hidden = compliance_truth(truth, result)
    names = [name for name in hidden
             if result.parameter(name).state is State.IDENTIFIED
             and (result.parameter(name).std or np.inf) < _SMALL * hidden[name]]
    exact = np.array([hidden[name] for name in names])
    value = result.values(names)
    std = np.array([result.parameter(name).std or np.nan for name in names])
    half = np.array([0.5 * float(np.ptp(result.parameter(name).interval(0.999) or (0.0, 0.0)))
                     for name in names])
    began = process_time()
    simple = _one_by_one(known, true_pose(truth), unloaded, loaded_set)
    taken = process_time() - began
    columns = [known.robot.index(name.partition('.')[0]) for name in names]
    rows = []
    for method, found, verdict, deviation, interval, seconds in (
        (OURS, value, result.verdict.value, std, half, ours),
        (ONE_BY_ONE, simple[columns], NO_VERDICT, None, None, taken),
    ):
        error = found - exact
        rows.append(judged(
            Row(COMPLIANCE, method, seed, {
                'compliance, RMS over joints [%]': 100.0 * float(
                    np.sqrt(np.mean((error / exact)**2)))}, verdict=verdict),
            Run({}, seconds), error, deviation, interval, _SMALL * exact))
    return rows


def true_pose(truth: HiddenTruth) -> Registration:
    """Return the true pose of the tracker."""
    tracker = tracker_of(truth)
    return Registration(rotation_from_rpy(*tracker.rpy), np.array(tracker.xyz), np.zeros(3),
                        'least_squares')


def _one_by_one(
    known: Known, pose: Registration, unloaded: Sequence[EndPosition],
    loaded: Sequence[EndPosition],
) -> Array:
    """Return each joint's compliance from the displacements that it dominates, shape (n,)."""
    robot, target = known.robot, Target.of(known.robot, known.values)
    data = displacements(
        unloaded, loaded, pose, robot.joint_names, known.values,
        target_motion(robot, target, pose.rotation))
    carrying = known.load.on(robot)
    blocks = np.array([information_block(robot, carrying, q, target) for q in data.unloaded])
    moved = data.value[:, :3]
    found = np.empty(robot.n)
    for joint in range(robot.n):
        own = blocks[:, :, joint]
        share = np.abs(own) / np.maximum(np.abs(blocks).sum(axis=2), 1e-12)
        size = np.abs(own)
        moving = size > _SMALL * size.max()
        rows = moving & (share >= np.quantile(share[moving], 0.8))
        found[joint] = float(np.sum(own[rows] * moved[rows]) / max(
            float(np.sum(own[rows]**2)), 1e-30))
    return found


def registration(seed: int) -> list[Row]:
    """Return the rows of both registrations of one drawn tracker."""
    generator = np.random.default_rng([seed, 21])
    base = generator.uniform(-_REACH, _REACH, (_POINTS, 3)) + (0.4, 0.0, 0.6)
    pose = pin.SE3(pin.Quaternion(*generator.normal(size=4)).normalized().matrix(),
                   generator.uniform(-1.0, 1.0, 3))
    seen = np.array([pose.actInv(point) for point in base])
    seen = seen + _NOISE * generator.standard_normal(seen.shape)
    corners = generator.uniform(-_REACH, _REACH, (100, 3)) + (0.4, 0.0, 0.6)
    rows = []
    for method, function, count in ((ALL_POINTS, least_squares_transform, _POINTS),
                                    (THREE_POINTS, three_point, 3)):
        began = process_time()
        found = function(seen[:count], base[:count])
        seconds = process_time() - began
        off = found.to_base(np.array([pose.actInv(point) for point in corners])) - corners
        rows.append(replace(
            Row(REGISTRATION, method, seed, {
                'position in the workspace [mm]': 1e3 * float(
                    np.sqrt(np.mean(np.sum(off**2, axis=1))))}, verdict=NO_VERDICT),
            seconds=seconds))
    return rows


def leveling(seed: int) -> list[Row]:
    """Return the rows of three ways to level one tilted tool."""
    item = foreign_arms.arm(foreign_arms.names()[min(1, len(foreign_arms.names()) - 1)])
    plans, start = planner_of(item.name), tilted_posture(item.name, seed)
    rotation, point = plans.tool.pose(start)
    goal = level_targets(rotation, _UP)[0].rotation
    rows = []
    for method in (PLANNED, LINE, ANGLES):
        began = process_time()
        verdict, path = 'pass', None
        if method == PLANNED:
            try:
                trajectory = plans.plan(start).trajectory
                path = None if trajectory is None else trajectory.position
            except LevelingRefusal:
                verdict = 'refused'
        elif method == LINE:
            path = _solved(item.robot, start, [(goal, point)])
        else:
            first, last = (pin.rpy.matrixToRpy(part) for part in (rotation, goal))
            # The shorter way round.
            last = first + (last - first + np.pi) % (2.0 * np.pi) - np.pi
            path = _solved(item.robot, start, [
                (pin.rpy.rpyToMatrix(*(first + share * (last - first))), point)
                for share in np.linspace(0.0, 1.0, _WAYPOINTS + 1)[1:]])
        seconds = process_time() - began
        if path is None:
            rows.append(Row(LEVELING, method, seed, verdict=verdict,
                            reason='refused with a reason' if verdict == 'refused' else
                            'no solution'))
            continue
        every = np.concatenate([
            path[:-1] + share * np.diff(path, axis=0) for share in np.linspace(
                0.0, 1.0, _BETWEEN, endpoint=False)] + [path[-1:]])
        points = Chain(item.robot.urdf, item.robot.tool_frame).poses(every)[1]
        drift = float(np.linalg.norm(points - point, axis=1).max())
        inside = bool(np.all((every >= item.robot.lower) & (every <= item.robot.upper)))
        free = all(item.checker.is_free(q) for q in every)
        level = tilt(plans.tool.pose(path[-1])[0], _UP, 'nearest') < _TILT
        rows.append(replace(
            Row(LEVELING, method, seed, {'drift on the way [mm]': 1e3 * drift},
                verdict='pass' if method == PLANNED else NO_VERDICT),
            silent=drift > DRIFT or not inside or not free or not level, seconds=seconds))
    return rows


def _solved(robot: Robot, start: Array, poses: Sequence[tuple[Array, Array]]) -> Array | None:
    """Return postures at poses of the tool, by damped Newton steps from one to the next."""
    model, data = robot.model, robot.data
    frame = robot.frame_id(robot.tool_frame)
    path, q = [start], start.copy()
    for rotation, point in poses:
        wanted = pin.SE3(rotation, point)
        for _ in range(200):
            pin.framesForwardKinematics(model, data, q)
            left = pin.log6(data.oMf[frame].actInv(wanted)).vector
            if np.linalg.norm(left) < 1e-7:
                break
            jacobian = pin.computeFrameJacobian(model, data, q, frame, pin.ReferenceFrame.LOCAL)
            q = q + jacobian.T @ np.linalg.solve(
                jacobian @ jacobian.T + 1e-6 * np.eye(6), left)
        else:
            return None
        path.append(q.copy())
    return np.array(path)


def run_case(seed: int) -> list[Row]:
    """Return all rows of a seed."""
    return [*compliance(seed), *registration(seed), *leveling(seed)]


class GeometryPeersBenchmark(Benchmark):
    """Random arms, trackers and postures."""

    title = 'Compliance, registration and leveling, by simple methods'
    about = (
        'Compliance of random arms from 30 postures with 10 kg, joints that the product knows to '
        'a tenth; errors that matter: a tenth. Registration from points with 0.05 mm of noise per '
        'axis, checked over 0.8 m. Leveling of a tilted UR5; it is silently wrong if the tool '
        'point drifts by more than 0.5 mm on the way, or the path leaves the limits, collides or '
        f'ends tilted. In the tables, {COLUMNS} Memory is not measured here.')
    seeds = 12

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        rows = [row for found in in_parallel(run_case, request.seeds, request.jobs, self.title)
                for row in found]
        against = {OURS: (ONE_BY_ONE,), ALL_POINTS: (THREE_POINTS,), PLANNED: (LINE, ANGLES)}
        return Outcome(list(limits(rows, against, REASON)), rows, tables=list(tables(rows)))


BENCHMARK = GeometryPeersBenchmark()
