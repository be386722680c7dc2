# SPDX-License-Identifier: Apache-2.0
"""Benchmark of leveling: plans from random tilted postures, and the true tilt of a sagging arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter

import numpy as np
import pinocchio as pin

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.second_cell import OWN, product
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.leveling import LevelingParameters, LevelingPlanner, Tool, tilt
from robocal_ros.leveling.plan import LevelingRefusal
from robocal_ros.robot import MotionLimits, RigidBodyInertia, SagCorrection, Trajectory
from robocal_sim.drive import DEADBAND
from robocal_sim.model import read_description
from robocal_sim.physics import ArmPhysics

TILT_BAR, DRIFT_BAR, TIME_BAR = 0.05, 0.5, 50.0
"""Limits of tilt [°], drift [mm] and planning time [ms]."""

ARMS = (OWN, 'UR10', 'Panda', 'xArm 7')
_SETTINGS = LevelingParameters()
_UP = np.array([0.0, 0.0, 1.0])
_LEAST_TILT = np.radians(1.0)
_COMPLIANCE_ERROR, _MASS_ERROR = 0.05, 0.01


@dataclass(frozen=True)
class Attempt:
    """Outcome of planning from one posture of one arm.

    Attributes:
        arm: Name of the arm.
        planning: Planning time [ms].
        tilt: Tilt at the end of the motion [°]; NaN without a motion.
        drift: Largest drift of the tool point, also between trajectory points, both on the
            controller's splines and on straight lines in joint space [mm].
        true_tilt: Tilt of the flange of the default arm with its tool, whose joints sag [°].
        obstacle: Obstacle of a refused attempt; else empty.

    """

    arm: str
    planning: float
    tilt: float = np.nan
    drift: float = np.nan
    true_tilt: float = np.nan
    obstacle: str = ''


@cache
def planner_of(name: str) -> LevelingPlanner:
    """Return the planner of an arm; each process makes it once."""
    robot, checker = product(name)
    limits = MotionLimits(robot.joint_names, robot.lower, robot.upper, np.minimum(
        robot.velocity_limit, 1.0), np.full(robot.n, 2.0))
    return LevelingPlanner(Tool(robot), _UP, limits, _SETTINGS, checker)


def tilted_posture(name: str, seed: int) -> Array:
    """Draw a posture with a tilted tool, free of collision and singularity, shape (n,) [rad]."""
    (robot, checker), planner = product(name), planner_of(name)
    generator = np.random.default_rng([seed, robot.n])
    while True:
        q = generator.uniform(*robot.sampling_limits())
        rotation, _, jacobian = planner.tool.robot.pose_and_jacobian(
            q, planner.tool.robot.tool_frame, planner.tool.point)
        if (tilt(rotation, _UP, 'nearest') > _LEAST_TILT and checker.is_free(q)
                and planner.tool.least_singular_value(jacobian) > _SETTINGS.singularity_margin):
            return np.asarray(q)


def attempt(name: str, seed: int) -> Attempt:
    """Plan from one random posture, and judge the motion by Pinocchio's kinematics."""
    planner, start = planner_of(name), tilted_posture(name, seed)
    began = perf_counter()
    try:
        plan = planner.plan(start)
    except LevelingRefusal as refusal:
        return Attempt(name, 1e3 * (perf_counter() - began), obstacle=refusal.obstacle.value)
    taken = 1e3 * (perf_counter() - began)
    if plan.trajectory is None:
        raise RobocalError(f'Defect: the planner considers a tilted {name} level.')
    knots = plan.trajectory.position
    way = np.concatenate((plan.trajectory.sample(plan.trajectory.dense())[0], *(
        knots[:-1] + part * np.diff(knots, axis=0) for part in (0.25, 0.5, 0.75))))
    robot = product(name)[0]
    model = pin.buildModelFromXML(robot.urdf)
    data, held = model.createData(), np.zeros(model.nq)
    frame = model.getFrameId(robot.tool_frame)
    columns = [model.idx_qs[model.getJointId(joint)] for joint in robot.joint_names]

    def pose(q: Array) -> pin.SE3:
        held[columns] = q
        pin.framesForwardKinematics(model, data, held)
        return data.oMf[frame].copy()

    begin = pose(plan.trajectory.start).translation
    drift = max(float(np.linalg.norm(pose(q).translation - begin)) for q in way)
    return Attempt(name, taken, np.degrees(tilt(
        pose(plan.trajectory.goal).rotation, _UP, 'nearest')), 1e3 * drift,
        np.degrees(_true_tilt(plan.trajectory, seed)) if name == OWN else np.nan)


def _true_tilt(trajectory: Trajectory, seed: int) -> float:
    """Return the tilt of the flange at the end of a motion of the links that sag is corrected in.

    Compliances are known to 5 % and the mass to 1 % (standard deviations).
    """
    truth, generator, robot = default_cell.hidden_truth(), np.random.default_rng(seed), product(
        OWN)[0]
    if truth.tool is None:
        raise RobocalError('Defect: the default cell has no tool.')
    body = default_cell.rigid_body(truth.tool)
    mass = body.mass * (1.0 + _MASS_ERROR * generator.standard_normal())
    sag = SagCorrection(robot, robot.with_payload(
        RigidBodyInertia(mass, body.com, body.inertia), truth.tool.parent or robot.tool_frame),
        {name: item.compliance * (1.0 + _COMPLIANCE_ERROR * generator.standard_normal())
         for name, item in truth.joints.items()})
    arm = ArmPhysics(read_description(default_cell.urdf()), truth)
    # Drives do not correct errors within their deadband.
    arm.rest_in(sag.corrected(trajectory).goal + generator.uniform(-DEADBAND, DEADBAND, robot.n))
    return float(tilt(arm.link_pose('flange')[0], _UP, 'nearest'))


def run_case(seed: int) -> list[Attempt]:
    """Plan from one random posture of every arm."""
    return [attempt(name, seed) for name in ARMS]


def figures(attempts: Sequence[Attempt]) -> Iterator[Figure]:
    """Yield the figures with their limits."""
    for name in dict.fromkeys(item.arm for item in attempts):
        own = [item for item in attempts if item.arm == name]
        solved = [item for item in own if not item.obstacle]
        for what, unit, values, bar in (
            ('residual tilt', '°', [item.tilt for item in solved], TILT_BAR),
            ('drift, all along the way', 'mm', [item.drift for item in solved], DRIFT_BAR),
            ('true tilt of a loaded arm that sags', '°',
             [item.true_tilt for item in solved if np.isfinite(item.true_tilt)], TILT_BAR),
            ('planning', 'ms', [item.planning for item in own], None),
        ):
            if values:
                yield Figure.over(name, what, unit, values, bar)
        yield Figure.single(name, 'planning, median', 'ms', float(np.median(
            [item.planning for item in own])), TIME_BAR)
        yield Figure.share(name, 'solved', len(solved), len(own))


def _run(request: Request) -> Outcome:
    attempts = [item for own in in_parallel(run_case, request.seeds, request.jobs, 'leveling')
                for item in own]
    remarks = []
    for name in ARMS:
        causes = [item.obstacle for item in attempts if item.arm == name and item.obstacle]
        remarks.append(f'{name}: refused ' + (', '.join(
            f'{causes.count(cause)} for {cause}' for cause in dict.fromkeys(causes)) or 'none'))
    return Outcome(list(figures(attempts)), attempts, remarks)


BENCHMARK = Benchmark('Leveling', (
    'Plans from random tilted postures of each arm, judged by separate kinematics; the default '
    'arm with its tool and the sag of its joints, whose compliance and load are known to 5 and '
    '1 %, in the encoder angles that it is sent to.'), _run, seeds=250)
