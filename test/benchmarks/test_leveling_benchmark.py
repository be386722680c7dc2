# SPDX-License-Identifier: Apache-2.0
"""Verification by search, figures and short cases of the leveling benchmark, and the panel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import foreign_arms, leveling
from benchmarks.leveling import Attempt, Case, Judge, Opinion
from benchmarks.leveling_search import Chain, SecondOpinion, Turn
from demo import default_cell
from demo.leveling import leveling_panel
from robocal_ros.leveling.model import Tool
from robocal_ros.robot.model import Robot

OWN = foreign_arms.OWN


@pytest.mark.parametrize('name', foreign_arms.names())
def test_the_kinematics_of_the_search_agree_with_pinocchio(name: str) -> None:
    robot = foreign_arms.arm(name).robot
    chain, tool = Chain(robot.urdf, robot.tool_frame), Tool(robot)
    low, high = robot.sampling_limits()
    many = np.random.default_rng(2).uniform(low, high, (5, robot.n))
    for q, *found in zip(many, *chain.poses(many), strict=True):
        for one, other in zip(found, tool.pose_and_jacobian(q), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def opinion(start: np.ndarray, axis: np.ndarray, angle: float) -> float:
    item = foreign_arms.arm(OWN)
    tool = Tool(item.robot)
    rotation, point = tool.pose(start)
    second = SecondOpinion(item, 0.01, tool.length, 1)
    return second.reached(start, Turn(rotation, point, axis, angle))


def test_the_search_finds_a_path_and_a_limit() -> None:
    """The tool turns about its own axis: one joint, up to its limit."""
    start = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 5.0])
    robot = foreign_arms.arm(OWN).robot
    axis = Tool(robot).pose(start)[0][:, 2]
    room = float(robot.upper[5]) - 5.0
    assert opinion(start, axis, 0.9 * room) == 1.0
    angle = 2.0 * room
    assert opinion(start, axis, angle) == pytest.approx(0.5, abs=0.06 / angle)


def test_a_case_meets_the_limits() -> None:
    case = leveling.run_case(3)
    assert [item.arm for item in case.attempts] == list(foreign_arms.names())
    for figure in leveling.figures([case], []):
        assert figure.met is not False or figure.what.startswith('planning'), figure


def test_figures_are_judged_by_their_limits() -> None:
    good = Attempt(OWN, 0.5, True, 0.01, 1e-9, 1e-4, 0.08)
    bad = replace(good, tilt=np.radians(0.06), drift=6e-4, step=0.09, planning=0.06)
    refused = Attempt(OWN, 0.5, False, 0.06, share=0.4, obstacle='position limit')
    opinions = [Opinion(OWN, False, 0.4), Opinion(OWN, False, 1.0), Opinion(OWN, True, 1.0)]

    def met(*attempts: Attempt) -> dict[str, bool | None]:
        return {figure.what.partition(',')[0]: figure.met
                for figure in leveling.figures([Case(1, attempts)], opinions)}

    assert met(good)['residual tilt'] is True
    missed = met(bad, refused)
    for what in ('residual tilt', 'drift', 'joint step between points', 'confirmed refusals'):
        assert missed[what] is False, what


def test_the_first_refusals_are_selected_for_verification() -> None:
    solved = Attempt(OWN, 0.5, True, 0.01)
    refused = Attempt(OWN, 0.5, False, 0.01)
    cases = [Case(seed, (refused, solved)) for seed in range(1, 9)]
    wanted = leveling.wanted_opinions(cases, 4)
    assert [seed for seed, chosen in wanted.items() if (OWN, False) in chosen] == [1, 2, 3, 4]
    assert [seed for seed, chosen in wanted.items() if (OWN, True) in chosen] == [1]


def test_the_search_confirms_a_refusal() -> None:
    for seed in range(1, 20):
        if not leveling.attempt(OWN, seed).solved:
            [found] = Judge({seed: ((OWN, False),)})(seed)
            assert found.share < 1.0
            return
    pytest.fail('none of the postures is refused')


def test_the_simulated_arm_meets_the_limits() -> None:
    [motion] = leveling.simulated(range(1, 10), 1)
    assert np.degrees(motion.measured[0]) <= leveling.TILT_BAR
    assert 1e3 * motion.measured[2] <= leveling.DRIFT_BAR
    assert 1e3 * motion.drift_in_motion <= leveling.DRIFT_BAR


def test_the_panel_shows_the_arm_before_during_and_after() -> None:
    robot = Robot(default_cell.urdf())
    tool = Tool(robot)
    start = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])
    way = np.linspace(start, start + 0.001, 50)
    panel = leveling_panel(tool, np.linspace(0.0, 1.0, 50), way,
                           'The IMU measures a tilt of 0.031°.', success=True, title='leveling')
    assert [title for title, _ in panel.drawings] == [
        'before', 'on the way', 'after', 'tilt and drift over time']
    assert panel.rows[2][2] == '0.031'
    # A tilted tool is no success, whatever the node says.
    assert not panel.passed
