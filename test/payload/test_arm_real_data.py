# SPDX-License-Identifier: Apache-2.0
"""Identification of real arms from published recordings, skipped where these are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.methods import predicted
from robocal_ros.cli.main import main
from robocal_ros.errors import ConvergenceError
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.samples import JointSamples
from robocal_ros.payload.arm_identification import estimate
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import read_result
from robocal_ros.robot.arm_model import identified_model, link_parameters, pseudo_inertia
from robocal_ros.robot.model import Robot

DATA = Path(__file__).parents[3] / 'shared' / 'data'


def recorded(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f'the recording {path} is not here')
    return path


def urdf(name: str) -> str:
    found = list(Path(sys.prefix).rglob(f'example-robot-data/robots/**/{name}'))
    if not found:
        pytest.skip(f'{name} of example-robot-data is not here')
    return found[0].read_text()


def identified(bag: Path, text: str, tool: str, folder: Path) -> CalibrationResult:
    """Return the result of `robocal estimate arm`."""
    (folder / 'arm.urdf').write_text(text)
    output = folder / 'arm.yaml'
    assert main(['estimate', 'arm', str(bag), '--urdf', str(folder / 'arm.urdf'), '-p',
                 f'tool_frame:={tool}', '--results-dir', str(folder), '-o', str(output)]) == 0
    return read_result(output)


def check_possible(robot: Robot, result: CalibrationResult) -> None:
    """Check that links and rotors are those of possible bodies."""
    links = link_parameters(identified_model(robot, result).robot)
    assert all(np.linalg.eigvalsh(matrix)[0] > 0.0 for matrix in pseudo_inertia(links))
    assert min(result.parameter(f'{joint}.rotor_inertia').value or 0.0
               for joint in robot.joint_names) >= 0.0


def test_a_ur10_predicts_the_torque_of_another_trajectory(tmp_path: Path) -> None:
    text = urdf('ur10_robot.urdf')
    bag = recorded('ur10_bags/ur10_exciting_trajectory.db3')
    result = identified(bag, text, 'tool0', tmp_path)
    robot = Robot(text, tool_frame='tool0')
    assert result.verdict is Verdict.PASS
    check_possible(robot, result)
    with Bag(bag.with_name('validation_trajectory.db3')) as other:
        points = [p for m in other.messages('/joint_space_trajectory') for p in m.points]
    q, v, a, effort = (np.array([getattr(point, name) for point in points]) for name in (
        'positions', 'velocities', 'accelerations', 'effort'))
    left = np.sqrt(np.mean((effort - predicted(robot, result, q, v, a))**2, axis=0))
    # The URDF alone leaves more than the half of most torques; the values are those reached, with
    # a tenth of margin.
    assert np.all(left < (4.7, 5.1, 1.02, 0.86, 1.03, 0.71)), left


def test_a_panda_at_30_hz_predicts_the_end_of_its_motion(tmp_path: Path) -> None:
    text = urdf('panda.urdf').replace('panda_joint', 'fer_joint')
    bag = recorded('panda_bag/panda_exciting_trajectory.db3')
    result = identified(bag, text, 'panda_link8', tmp_path)
    assert result.verdict is Verdict.PASS
    check_possible(Robot(text, tool_frame='panda_link8'), result)
    left = np.array([fit.after for fit in result.validation])
    assert np.all(left < (0.51, 0.35, 0.46, 0.40, 0.14, 0.11, 0.07)), left


def test_a_urdf_with_placeholders_is_refused_with_the_reason() -> None:
    """A slow motion of a Med7 whose URDF holds axes and dummy masses."""
    data = np.load(recorded('kuka_med7/med7.npz'))
    text = recorded('kuka_med7/med7_axes.urdf').read_text()
    robot = Robot(text, tool_frame='l7')
    q = data['q']
    samples = JointSamples(
        robot.joint_names, 0.01 * np.arange(len(q)), q, np.zeros_like(q), data['tau'])
    with pytest.raises(ConvergenceError, match='masses in the URDF are placeholders'):
        estimate(robot, samples, PayloadParameters(), scale=np.ones(7),
                 scale_covariance=0.01 * np.eye(7))
