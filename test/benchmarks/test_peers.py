# SPDX-License-Identifier: Apache-2.0
"""Comparison with other methods: processes, textbook methods on exact samples, claims."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers.methods import coulomb_viscous, in_motion, lean, load_dependent
from benchmarks.peers.process import ENVIRONMENT, Run, run
from benchmarks.peers.recorded import FIGAROH, OURS, ArmCase, figures, table
from benchmarks.second_cell import OWN, product
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload.model import moving
from robocal_ros.robot import NewtonEuler, RigidBodyInertia, Robot

PERIOD = 0.004
FRAME = 'ft_wrist'


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
    done = run('benchmarks.peers.tools:figaroh', peer=True)
    assert done.answer is None
    assert 'not run' in done.reason


def test_what_a_method_raises_is_its_answer() -> None:
    done = run('benchmarks.peers.methods:textbook', urdf='<robot/>', joints=(), time=np.zeros(2),
               position=np.zeros((2, 0)), effort=np.zeros((2, 0)), q=np.zeros((1, 0)),
               v=np.zeros((1, 0)), a=np.zeros((1, 0)), tool='tool0', cutoff=5.0, weighted=False)
    assert done.answer is None
    assert 'Error' in done.reason


@pytest.mark.parametrize('weighted', [False, True])
def test_textbook_least_squares_predict_an_exact_arm(weighted: bool) -> None:
    robot = product(OWN)[0]
    time, *samples = motion(robot.n, 1)
    _, *other = motion(robot.n, 2)
    rows = [part[::25] for part in other]
    wanted = torques(robot, *rows)
    done = run('benchmarks.peers.methods:textbook', urdf=lean(robot.urdf, robot.joint_names),
               joints=robot.joint_names, time=time, position=samples[0],
               effort=torques(robot, *samples), q=rows[0], v=rows[1], a=rows[2],
               tool=robot.tool_frame, cutoff=20.0, weighted=weighted)
    left = np.sqrt(np.mean((done.answer['torque'] - wanted)**2, axis=0))
    assert np.all(left < 0.05 * np.sqrt(np.mean(wanted**2, axis=0))), left
    assert done.seconds > 0.0


def test_least_squares_in_motion_find_an_exact_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    robot = product(OWN)[0]
    time, q, v, a = motion(robot.n, 3)
    body = RigidBodyInertia(2.0, np.array([0.02, -0.01, 0.08]), 0.01 * np.eye(3))
    whole = robot.distal_inertia(FRAME).to_pinocchio().toDynamicParameters() + np.linalg.solve(
        moving(robot, FRAME), body.to_pinocchio().toDynamicParameters())
    wrench = -NewtonEuler(robot, FRAME).wrench(q, v, a, whole)
    noise = np.random.default_rng(4).normal(size=wrench.shape)
    found = in_motion(robot, JointSamples(robot.joint_names, time, q, v, np.zeros_like(q)),
                      WrenchSamples(FRAME, time, wrench + 0.02 * noise + 1.0))
    assert set(found) == {'weighted least squares', 'total least squares'}
    for value in found.values():
        assert value[0] == pytest.approx(2.0, rel=2e-3)
        assert value[1:] == pytest.approx(body.com, abs=1e-3)


@pytest.mark.parametrize('method', [coulomb_viscous, load_dependent])
def test_simple_laws_of_friction_are_found_in_constant_speeds(method) -> None:
    robot, joint = product(OWN)[0], 5
    parts = []
    for speed in (0.05, 0.1, 0.2, 0.4):
        travel = speed * np.arange(0.0, 3.0, PERIOD)
        rest = np.zeros(int(0.5 / PERIOD))
        parts += [travel, rest + travel[-1], travel[::-1], rest]
    position = np.concatenate(parts)
    q = np.zeros((len(position), robot.n))
    q[:, joint] = position
    v = np.gradient(q, PERIOD, axis=0)
    effort = np.array([robot.gravity_torque(row) for row in q])
    effort[:, joint] += 2.0 * np.sign(v[:, joint]) + 3.0 * v[:, joint]
    samples = JointSamples(robot.joint_names, PERIOD * np.arange(1, len(q) + 1.0), q, v, effort)
    speeds = np.array([0.1, 0.3, -0.2])
    found = method(robot, samples, joint, speeds)
    assert found == pytest.approx(2.0 * np.sign(speeds) + 3.0 * speeds, rel=0.08)


def test_the_product_is_compared_with_the_best_other_method() -> None:
    efforts = np.ones((5, 2))
    case = ArmCase('arm', '', '', None, efforts, efforts, efforts, efforts)

    def done(first: float, second: float, seconds: float) -> tuple[Run, str]:
        return Run({'torque': efforts + [first, second]}, seconds), ''

    found = {OURS: done(2.0, 1.0, 0.5), FIGAROH: done(4.0, 0.5, 1.0),
             'other': (Run(reason='not run: it is not there'), 'not run: it is not there')}
    better, worse, speed = figures(case, found)
    assert (better.worst, worse.worst, speed.worst) == pytest.approx((0.5, 2.0, 2.0))
    assert (better.met, worse.met, speed.met) == (True, False, False)
    rows = table(case, found).rows
    assert rows[0][:3] == (OURS, 2.0, 1.0)
    assert 'not run' in str(rows[2][-1])
