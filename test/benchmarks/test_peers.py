# SPDX-License-Identifier: Apache-2.0
"""Comparison with other methods: processes, textbook methods on exact samples, claims."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import seven_joints
from benchmarks.adversarial_cell import arm
from benchmarks.peers.arm import lean
from benchmarks.peers.comparison import Row, judged, limits, tables
from benchmarks.peers.geometry import compliance, leveling
from benchmarks.peers.payload import in_motion
from benchmarks.peers.process import ENVIRONMENT, Run, run
from benchmarks.peers.wrench import momentum, weight
from benchmarks.wrench_samples import Impact, SampledArm, Settings
from robocal_ros.messages.samples import JointSamples, WrenchSamples
from robocal_ros.payload.model import body_regressor, moving
from robocal_ros.robot.model import RigidBodyInertia, Robot

PERIOD = 0.004
NAME = 'robocal arm'


def motion(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return time, positions, velocities and accelerations of slow waves over 20 s."""
    generator = np.random.default_rng(seed)
    time = np.arange(0.0, 20.0, PERIOD)
    rate = 2.0 * np.pi * np.array([0.1, 0.23, 0.4])
    size, phase = generator.uniform(0.3, 0.6, (3, n)), generator.uniform(0.0, 6.0, (3, n))
    angle = rate[:, None, None] * time[:, None] + phase[:, None, :]
    weighted = size[:, None, :] * rate[:, None, None]
    return (time, (size[:, None, :] * np.sin(angle)).sum(axis=0),
            (weighted * np.cos(angle)).sum(axis=0),
            -(weighted * rate[:, None, None] * np.sin(angle)).sum(axis=0))


def torques(robot: Robot, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    rigid = np.array([robot.inverse_dynamics(*row) for row in zip(q, v, a, strict=True)])
    return rigid + 2.0 * np.tanh(v / 0.03) + 3.0 * v + 0.5


def test_a_method_that_is_not_installed_gives_a_row_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    done = run('benchmarks.peers.figaroh_arm:identify', peer=True)
    assert done.answer is None
    assert 'not run' in done.reason
    row = Row('quiet', 'FIGAROH', reason=done.reason)
    assert 'not run' in str(next(tables([row])).rows[0][-1])


def test_what_a_method_raises_is_its_answer() -> None:
    done = run('benchmarks.peers.arm:textbook', urdf='<robot/>', joints=(), time=np.zeros(2),
               position=np.zeros((2, 0)), effort=np.zeros((2, 0)), q=np.zeros((1, 0)),
               v=np.zeros((1, 0)), a=np.zeros((1, 0)), tool='tool0', cutoff=5.0, weighted=False)
    assert done.answer is None
    assert 'Error' in done.reason


@pytest.mark.parametrize('weighted', [False, True])
def test_textbook_least_squares_predict_an_exact_arm(weighted: bool) -> None:
    robot = arm(NAME).robot
    time, *samples = motion(robot.n, 1)
    _, *other = motion(robot.n, 2)
    rows = [part[::25] for part in other]
    wanted = torques(robot, *rows)
    done = run('benchmarks.peers.arm:textbook', urdf=lean(robot.urdf, robot.joint_names),
               joints=robot.joint_names, time=time, position=samples[0],
               effort=torques(robot, *samples), q=rows[0], v=rows[1], a=rows[2],
               tool=robot.tool_frame, cutoff=20.0, weighted=weighted)
    left = np.sqrt(np.mean((done.answer['torque'] - wanted)**2, axis=0))
    assert np.all(left < 0.05 * np.sqrt(np.mean(wanted**2, axis=0))), left
    assert done.seconds > 0.0
    assert done.memory > 10.0


@pytest.mark.parametrize('total', [False, True])
def test_least_squares_in_motion_find_an_exact_body(total: bool) -> None:
    chosen = arm(NAME)
    robot, frame = chosen.robot, chosen.sensor
    time, q, v, a = motion(robot.n, 3)
    body = RigidBodyInertia(2.0, np.array([0.02, -0.01, 0.08]), 0.01 * np.eye(3))
    whole = robot.distal_inertia(frame).to_pinocchio().toDynamicParameters() + np.linalg.solve(
        moving(robot, frame), body.to_pinocchio().toDynamicParameters())
    wrench = np.array([-body_regressor(robot, frame, *row) @ whole
                       for row in zip(q, v, a, strict=True)])
    noise = np.random.default_rng(4).normal(size=wrench.shape)
    joints = JointSamples(robot.joint_names, time, q, v, np.zeros_like(q))
    answer = in_motion(name=NAME, joints=joints, total=total, sensor=WrenchSamples(
        frame, time, wrench + 0.02 * noise + 1.0))()()
    assert answer['value'][0] == pytest.approx(2.0, rel=2e-3)
    assert answer['value'][1:] == pytest.approx(body.com, abs=1e-3)
    assert (answer['std'] is None) is total


@pytest.mark.parametrize(('verdict', 'std', 'silent'), [
    ('no verdict', None, True), ('no verdict', 0.1, True), ('no verdict', 1.0, False),
    ('pass', 0.1, True), ('fail', 0.1, False)])
def test_a_result_is_silently_wrong_if_nothing_covers_an_error_that_matters(
    verdict: str, std: float | None, silent: bool,
) -> None:
    claimed = None if std is None else np.array([std])
    row = judged(Row('quiet', 'one', 1, {'mass [%]': 1.0}, verdict=verdict), Run({}, 0.1, 50.0),
                 np.array([1.0]), claimed, None, np.array([0.5]))
    assert row.silent is silent
    harmless = judged(row, Run({}, 0.1, 50.0), np.array([0.4]), claimed, None, np.array([0.5]))
    assert not harmless.silent


def test_the_product_is_compared_with_the_best_other_method() -> None:
    rows = [Row('quiet', name, 1, {'mass [%]': error}, verdict='pass')
            for name, error in (('robocal', 2.0), ('one', 4.0), ('two', 1.0))]
    silent, ratio = limits(rows, {'robocal': ('one', 'two')}, 'because')
    assert silent.met is True
    assert ratio.worst == pytest.approx(2.0)
    assert ratio.met is False


def test_simple_methods_drift_and_err_without_a_word() -> None:
    planned, line, _ = leveling(2)
    assert planned.errors['drift on the way [mm]'] < 0.5 < line.errors['drift on the way [mm]']
    assert (planned.silent, line.silent) == (False, True)
    ours, simple = compliance(2)
    name = 'compliance, RMS over joints [%]'
    assert ours.errors[name] < simple.errors[name]
    assert (ours.silent, simple.silent) == (False, True)


@pytest.mark.parametrize('method', [momentum, weight])
def test_other_observers_find_a_push_on_an_exact_arm_at_rest(method) -> None:
    load = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), 2e-3 * np.eye(3))
    made = SampledArm(
        seven_joints.urdf(), seven_joints.SENSORS, Settings(
            sensor_rates=(1000.0, 1000.0, 1000.0, 500.0), effort_noise=0.0, amplitude=1.0),
        seed=3, load=load)
    push = Impact(3, np.array([20.0, -10.0, 5.0]), np.zeros(3), 0.5, 1.0)
    joints, sensors = made.samples(2.0, [push], moving=False)
    answer = method(joints=joints, sensors=sensors, load=load)()()
    time = answer['time']
    pushed, free = (time > 1.0) & (time < 1.4), time < 0.4
    assert answer['force'][pushed].mean(axis=0) == pytest.approx(push.force, abs=0.5)
    assert answer['force'][free].mean(axis=0) == pytest.approx(np.zeros(3), abs=0.5)
