# SPDX-License-Identifier: Apache-2.0
"""A user's set of runs: what fits is read, what does not is refused with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.arms import arm

from robocal_ros.errors import FileFormatError, RobocalError
from robocal_ros.friction.plan import load_trajectory_set
from robocal_ros.robot.model import Robot
from robocal_ros.robot.trajectories import Lspb, MotionLimits

TWO_JOINT = Path(__file__).parents[1] / 'data' / 'two_joint.urdf'
GOOD = '- {joint: shoulder, start: -0.4, goal: 0.4, speed: 0.25, duration: 3.4}\n'


def limits_of(robot: Robot) -> MotionLimits:
    return MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                        np.full(robot.n, 2.0))


@pytest.fixture(scope='module')
def robot() -> Robot:
    return Robot(TWO_JOINT.read_text(), tool_frame='lower')


def written(folder: Path, text: str) -> str:
    path = folder / 'set.yaml'
    path.write_text(text)
    return str(path)


def test_entries_become_segments_in_their_order(robot, tmp_path):
    text = GOOD + '- {joint: elbow, start: 1, goal: 0.5, speed: 0.2, duration: 3}\n'
    runs = load_trajectory_set(written(tmp_path, text), robot)
    assert list(runs) == ['shoulder', 'elbow']
    (first,), (second,) = runs.values()
    assert (first.start, first.goal) == (-0.4, 0.4)
    assert (first.speed, first.duration) == (0.25, 3.4)
    assert first.blend == pytest.approx(3.4 - 0.8 / 0.25)
    assert second.goal < second.start


def test_the_acceleration_at_the_start_may_be_another_one(robot, tmp_path):
    text = GOOD.replace('}', ', acceleration: 2.0}')
    (run,) = load_trajectory_set(written(tmp_path, text), robot)['shoulder']
    motion = run.trajectory(np.zeros(2), 0)
    np.testing.assert_allclose(motion.time, [0.0, 0.125, 3.125, 3.4])
    at = np.array([0.06, 1.5, 3.3])
    position, velocity, acceleration = motion.sample(at)
    np.testing.assert_allclose(acceleration[:, 0], [2.0, 0.0, -0.25 / 0.275], atol=1e-9)
    np.testing.assert_allclose(velocity[:, 0], [0.12, 0.25, 0.1 * 0.25 / 0.275])
    np.testing.assert_allclose(position[1, 0], -0.4 + 0.25 * (1.5 - 0.0625))
    assert (motion.start[0], motion.goal[0]) == pytest.approx((-0.4, 0.4))


@pytest.mark.parametrize(('text', 'words'), [
    ('', 'a list of runs'),
    *((GOOD.replace('}', f', acceleration: {value}}}'), 'run 1: .*must be above 0.625 rad/s²')
      for value in (0.6, 0.0, -2.0)),
    ('[]', 'a list of runs'),
    ('joint: shoulder', 'a list of runs'),
    ('- 3', 'run 1'),
    (GOOD + GOOD.replace(', duration: 3.4', ''), "'run 2.duration': expected a value"),
    (GOOD + GOOD.replace('duration: 3.4', 'time: 3.4'),
     "'run 2.time' is unknown; expected only joint, start, goal, speed, duration, acceleration"),
    (GOOD.replace('}', ', colour: red}'), "'run 1.colour' is unknown"),
    (GOOD.replace('0.25', 'fast'), 'run 1.speed'),
    (GOOD.replace('0.25', '.nan'), 'run 1.speed'),
    (GOOD.replace('shoulder', '7'), 'run 1.joint'),
    # The rule of the segment: (qf - q0)/tf < v <= 2 (qf - q0)/tf.
    (GOOD + GOOD.replace('0.25', '0.2'), 'run 2: .*above 0.2353 and at most 0.4706 rad/s'),
    (GOOD.replace('0.25', '0.5'), 'run 1: Cruise speed 0.5 rad/s does not fit'),
    (GOOD.replace('0.25', '-0.25'), 'run 1: Cruise speed -0.25'),
    (GOOD.replace('goal: 0.4', 'goal: -0.4'), 'run 1: A segment needs a positive length'),
    ('- {joint: shoulder, start: [', 'set.yaml'),
])
def test_what_does_not_fit_is_refused_with_its_place(robot, tmp_path, text, words):
    with pytest.raises(FileFormatError, match=words):
        load_trajectory_set(written(tmp_path, text), robot)


def test_an_unknown_joint_is_refused_with_those_there_are(robot, tmp_path):
    with pytest.raises(RobocalError, match='wrist.*shoulder'):
        load_trajectory_set(written(tmp_path, GOOD.replace('shoulder', 'wrist')), robot)


@pytest.mark.parametrize(('segment', 'words'), [
    ((5.0, 6.5, 0.3, 2.0), "'joint_6' goes up to 6.5"),
    ((-0.4, 0.4, 0.3, 2.5), "'joint_6' accelerates at 2.5"),
    ((-5.0, 5.0, 3.6, 2.0), "'joint_6' moves at 3.6"),
])
def test_the_limits_of_the_moving_joint_are_kept(robocal, tmp_path, segment, words):
    runs = [Lspb.with_acceleration(*numbers) for numbers in ((-0.4, 0.4, 0.3, 2.0), segment)]
    path = written(tmp_path, ''.join(
        f'- {{joint: joint_6, start: {run.start}, goal: {run.goal}, speed: {run.speed}, '
        f'duration: {run.duration!r}}}\n' for run in runs))
    with pytest.raises(FileFormatError, match=f'set.yaml, run 2: .*{words}'):
        load_trajectory_set(path, robocal, limits_of(robocal))


def test_other_joints_need_not_reach_zero(tmp_path):
    panda = arm('panda').robot()
    # The fourth joint of this arm cannot be at zero.
    assert panda.upper[3] < 0.0
    path = written(tmp_path, GOOD.replace('shoulder', panda.joint_names[6]))
    assert load_trajectory_set(path, panda, limits_of(panda))
