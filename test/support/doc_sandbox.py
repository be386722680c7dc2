# SPDX-License-Identifier: Apache-2.0
"""Files and bags under the names that the commands of the documentation use.

The measurements are those of the examples: computed, with noise, in a few seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pinocchio as pin
import yaml

from robocal_ros.messages import Bag, BagWriter, JointSamples, WrenchSamples
from robocal_ros.payload import PayloadParameters, static_poses
from robocal_ros.payload.plan import plan_two_plane
from robocal_ros.results import ResultStore, Verdict, write_result
from robocal_ros.robot import (
    CollisionChecker,
    Lspb,
    RigidBodyInertia,
    Robot,
    Trajectory,
    quintic_path,
)
from support import ROOT, bag_examples
from support.compliance_cell import TARGET, TEN_KILOGRAMS, postures, write_visits
from support.followed_arm import sampled

sys.path.insert(0, str(ROOT / 'examples'))

import simulated

HEAVY = RigidBodyInertia(6.0, np.array([0.03, 0.02, 0.12]), np.diag([0.02, 0.02, 0.01]))
# What an owner of the arm knows.
PARAMETERS = f"""\
/**/payload_identification:
  ros__parameters:
    sensor_frame: ft_wrist
    gain_std: 0.002
    arm_model_std: 0.01
/**/wrench_observer:
  ros__parameters:
    sensor_frames: [ft_wrist]
    observe_torque: false
/**/compliance_calibration:
  ros__parameters:
    target_frame: tool0
    target_xyz: {TARGET.tolist()}
    load_mass: {TEN_KILOGRAMS.mass}
    load_com: {TEN_KILOGRAMS.com.tolist()}
"""

Motion = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def write(folder: Path) -> Path:
    """Write everything to a folder and return it."""
    robot = simulated.robot()
    for name in ('my_arm.urdf', 'my.urdf'):
        (folder / name).write_text(robot.urdf, encoding='utf-8')
    for name in ('my_arm.yaml', 'left.yaml', 'right.yaml'):
        (folder / name).write_text(PARAMETERS, encoding='utf-8')
    exciting, heavy = simulated.exciting_motion(3), simulated.exciting_motion(3, seed=2)
    bags: dict[str, tuple[Motion, RigidBodyInertia | None]] = {
        'poses_bag': (_rests(robot, simulated.postures(14)), simulated.TOOL),
        'sweeps_bag': (_sweeps(robot), simulated.TOOL),
        'friction_bag': (simulated.constant_speed_runs(5), None),
        'bare_bag': (exciting, None),
        'loaded_bag': (heavy, HEAVY),
        'tool_bag': (exciting, simulated.TOOL)}
    for name, (motion, tool) in bags.items():
        carried = tool or RigidBodyInertia(0.0, np.zeros(3), np.zeros((3, 3)))
        simulated.write_bag(
            folder / name, simulated.joint_states(*motion, arm=robot, tool=tool),
            simulated.readings(*motion, tool=carried))
    _write_results(folder, robot)
    _write_push(folder / 'push_bag', robot)
    _write_compliance(folder / 'compliance_bag', robot)
    _write_hall(folder)
    _write_sockets(folder, robot)
    _write_images(folder, robot)
    return folder


def _write_sockets(folder: Path, robot: Robot) -> None:
    """Write postures of an arm with displaced frames, its ball in two sockets of three placements.

    The sockets of one placement are 50 mm apart.
    """
    g, arm, ball = np.random.default_rng(0), robot.copy(), np.array([0.03, -0.02, 0.15])
    for joint in range(1, arm.model.njoints):
        arm.model.jointPlacements[joint] *= pin.SE3(
            pin.exp3(3e-3 * g.normal(size=3)), 1e-3 * g.normal(size=3))
    for placement in ('left', 'right', 'high'):
        middle = np.array([0.0, 0.2, -0.6, 0.0, 0.6, 0.0]) + g.uniform(-0.6, 0.6, 6)
        rotation, place, _ = arm.pose_and_jacobian(middle, arm.tool_frame, ball)
        (folder / 'sockets' / placement).mkdir(parents=True)
        for hole in range(2):
            rows = []
            for q in middle + g.uniform(-0.7, 0.7, (30, 6)):
                aim = place + 0.05 * hole * rotation[:, 0] + 1e-4 * g.normal(size=3)
                for _ in range(30):
                    _, point, jacobian = arm.pose_and_jacobian(q, arm.tool_frame, ball)
                    q = q + np.linalg.lstsq(jacobian[:3], aim - point, rcond=1e-3)[0]
                if (robot.lower < q).all() and (q < robot.upper).all():
                    rows.append(q)
            np.savetxt(folder / 'sockets' / placement / f'hole_{hole}.csv', rows, delimiter=',')


def _write_images(folder: Path, robot: Robot) -> None:
    """Write corners of a board before a camera, and the calibration of its lens."""
    g, board = np.random.default_rng(0), np.zeros((48, 3))
    board[:, :2] = 0.03 * np.indices((6, 8)).reshape(2, -1).T
    matrix = np.array([[900.0, 0.0, 640.0], [0.0, 900.0, 480.0], [0.0, 0.0, 1.0]])
    lens = np.array([-0.1, 0.0, 0.0, 0.0, 0.0])
    rows = []
    for q in g.uniform(-0.6, 0.6, (10, robot.n)):
        pixels, _ = cv2.projectPoints(
            board, 0.4 * g.normal(size=3), np.array([-0.1, -0.1, 0.6]), matrix, lens)
        corners = pixels[:, 0] + 0.1 * g.normal(size=(48, 2))
        rows.append(np.hstack((np.tile(q, (48, 1)), board, corners)))
    np.savetxt(folder / 'images.csv', np.vstack(rows), delimiter=',')
    (folder / 'ost.yaml').write_text(yaml.safe_dump({
        'camera_matrix': {'rows': 3, 'cols': 3, 'data': matrix.ravel().tolist()},
        'distortion_model': 'plumb_bob',
        'distortion_coefficients': {'rows': 1, 'cols': 5, 'data': lens.tolist()}}))


def _write_hall(folder: Path) -> None:
    """Write marked bags of two arms, and their descriptions."""
    (folder / 'urdf').mkdir()
    for arm in ('arm_1', 'arm_2'):
        (folder / 'urdf' / f'{arm}.urdf').symlink_to(folder / 'my_arm.urdf')
        (folder / 'hall' / arm).mkdir(parents=True)
        with (Bag(folder / 'friction_bag') as bag,
              BagWriter(folder / 'hall' / arm / 'monday') as copy):
            for topic, kind in bag.topics.items():
                copy.add(topic, kind)
                for stamp, message in bag.raw(topic):
                    copy.write(topic, stamp, message)
            marks = '/friction_identification/marks'
            copy.add(marks, bag_examples.MARKS)
            for name, stamp in (('begin', '0.0'), ('end', '1e6')):
                copy.write(marks, 0, bag_examples.marks(name, 'run', joint_states=stamp))


def _sampled(parts: Sequence[Trajectory | float], start: np.ndarray) -> Motion:
    """Return motions and rests [s] one after the other."""
    step = 1.0 / simulated.RATE
    motion = sampled(parts, start, step)
    return 1.0 + step * np.arange(len(motion[0])), *motion


def _move(start: np.ndarray, goal: np.ndarray) -> Trajectory:
    speed, acceleration = np.full(len(start), 1.5), np.full(len(start), 4.0)
    return quintic_path(np.stack((start, goal)), speed, acceleration)


def _rests(robot: Robot, where: np.ndarray) -> Motion:
    parts: list[Trajectory | float] = [1.5]
    for start, goal in pairwise(where):
        parts += [_move(start, goal), 1.5]
    return _sampled(parts, where[0])


def _sweeps(robot: Robot) -> Motion:
    home = np.array([0.0, 0.2, -0.6, 0.0, 0.6, 0.0])
    plan = plan_two_plane(robot, CollisionChecker(robot), home, mass=simulated.TOOL.mass)
    parts: list[Trajectory | float] = []
    here = home
    for sweep in plan.sweeps:
        for low, high in ((sweep.low, sweep.high), (sweep.high, sweep.low)):
            segment = Lspb.with_acceleration(low, high, 0.4, 2.0).trajectory(
                sweep.posture, sweep.joint)
            if np.abs(segment.start - here).max() > 1e-6:
                parts.append(_move(here, segment.start))
            parts += [0.3, segment, 0.3]
            here = segment.goal
    return _sampled(parts, home)


def _write_results(folder: Path, robot: Robot) -> None:
    """Write a payload result, and the log that it is estimated from, one line per posture."""
    where = simulated.postures(14)
    time, still = np.arange(len(where), dtype=float), np.zeros_like(where)
    readings = simulated.readings(time, where, still, still)
    header = [f'{name}{end}' for name, ends in (('q', '123456'), ('f', 'xyz'), ('t', 'xyz'))
              for end in ends]
    np.savetxt(folder / 'log.csv', np.hstack((np.degrees(where), readings.wrench)), '%.6f', ',',
               header=','.join(header), comments='')
    result = static_poses.estimate(
        robot, JointSamples(robot.joint_names, time, where, still, still), readings,
        PayloadParameters(method='static_poses', sensor_frame=simulated.SENSOR))
    assert result.verdict is Verdict.PASS, result.reasons
    ResultStore(folder / '.ros' / 'robocal' / 'my_arm', result.robot).save(result)
    write_result(result, folder / 'payload.yaml')


def _write_push(path: Path, robot: Robot) -> None:
    """Write a motion with the tool and a push of 20 N for half a second."""
    motion = simulated.exciting_motion(1)
    free = simulated.readings(*motion)
    wrench = free.wrench.copy()
    wrench[(free.time > 6.0) & (free.time < 6.5)] += [0.0, 20.0, 0.0, -1.0, 0.0, 0.0]
    simulated.write_bag(path, simulated.joint_states(*motion, arm=robot, tool=simulated.TOOL),
                        WrenchSamples(free.frame, free.time, wrench))


def _write_compliance(path: Path, robot: Robot) -> None:
    """Write both sets of a calibration: the arm rests for 3 s in each posture, at 50 Hz."""
    where = postures(12, seed=3)
    with BagWriter(path) as bag:
        bag.add('/robot_description', bag_examples.STRING)
        bag.write('/robot_description', 0, bag_examples.text(robot.urdf))
        write_visits(bag, [(posture, loaded) for loaded in (False, True)
                           for posture in (*where, where[0])])
