# SPDX-License-Identifier: Apache-2.0
"""Exit code, output files and comparison of the demo."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.browser import Page

from benchmarks import seven_joints
from demo import __main__ as demo, default_cell
from demo.compliance import known_load
from demo.leveling import leveling_panel
from demo.tour import TourOutcome, compare
from demo.wrench import ObservedPush, push_figures
from robocal_ros.leveling import Tool
from robocal_ros.results.result import CalibrationResult, Check
from robocal_ros.results.store import read_result
from robocal_ros.robot.model import Robot
from robocal_ros.wrench.model import SensedArm, SensorMount
from robocal_sim.truth import ToolTruth

RESULT = read_result(Path(__file__).parents[1] / 'results' / 'data' / 'payload.yaml')
HIDDEN = default_cell.hidden_truth()
TRUTH = {'mass': 0.67, 'com_x': 1e-4, 'com_z': 0.0122}


def outcome(result: CalibrationResult | None = RESULT, **truth: float) -> TourOutcome:
    return TourOutcome('payload, two_plane', 'The answer.', result, {**TRUTH, **truth})


def run_with(monkeypatch: pytest.MonkeyPatch, folder: Path, outcomes: list[TourOutcome]) -> int:
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(demo, '_open_stage', nullcontext)
    monkeypatch.setattr(demo, '_tour', lambda *_: outcomes)
    monkeypatch.setattr(demo.OUT, '_width', 200)
    return demo.main(['-o', str(folder)])


def test_a_passed_demo_writes_summary_results_and_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, tmp_path, [outcome()]) == 0
    summary = json.loads((tmp_path / 'summary.json').read_text(encoding='utf-8'))
    assert [item['parameter'] for item in summary] == ['mass', 'com_x', 'com_z']
    assert summary[2] == {
        'capability': 'payload', 'method': 'two_plane', 'parameter': 'com_z', 'unit': 'm',
        'truth': 0.0122, 'estimate': 0.0123, 'std': RESULT.parameter('com_z').std,
        'verdict': 'pass'}
    assert read_result(tmp_path / 'payload_two_plane.yaml').parameters == RESULT.parameters
    page = Page((tmp_path / 'report.html').read_text(encoding='utf-8'))
    assert ['payload, com_z', '12.20', '12.30', '0.10', '0.21', 'mm'] in page.rows
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if 'com_z' in line)
    assert row.split() == ['com_z', '12.20', '12.30', '0.10', '0.21', 'mm']
    assert 'Every verdict is pass' in text
    assert str(tmp_path / 'report.html') in text


@pytest.mark.parametrize(('outcomes', 'words'), [
    pytest.param([outcome(com_z=0.0130)], 'the hidden com_z of 0.013 m lies outside',
                 id='truth_outside'),
    pytest.param([outcome(replace(RESULT, checks=(Check('a', False, 1.0, 0.0, '1', 'Wide.'),)))],
                 '✗ payload, two_plane: The answer.', id='verdict_fail'),
    pytest.param([outcome(), outcome(None)], '✗ payload, two_plane: The answer.', id='no_result'),
])
def test_the_demo_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    outcomes: list[TourOutcome], words: str,
) -> None:
    assert run_with(monkeypatch, tmp_path, outcomes) == 1
    assert words in capsys.readouterr().out


def test_the_comparison_uses_the_99_9_percent_interval() -> None:
    std = RESULT.parameter('com_z').std or 0.0
    for sigmas, covered in ((3.28, True), (3.30, False), (-3.28, True), (-3.30, False)):
        truth = {'com_z': 0.0123 + sigmas * std}
        assert compare(RESULT, truth)[0].covered is covered


def test_parameter_without_value_is_not_compared() -> None:
    assert compare(RESULT, {'inertia_xx': 0.1}) == []


def test_payload_truth_is_expressed_in_the_frame_of_the_result() -> None:
    robot = Robot(default_cell.urdf())
    tool = ToolTruth(2.0, (0.01, -0.02, 0.1), (1e-3,) * 3 + (0.0,) * 3, 'flange')
    here = default_cell.payload_truth(tool, robot, 'flange')
    assert here == pytest.approx({'mass': 2.0, 'com_x': 0.01, 'com_y': -0.02, 'com_z': 0.1})
    elsewhere = default_cell.payload_truth(tool, robot, 'ft_wrist')
    q = np.full(robot.n, 0.3)
    points = [
        robot.transform_frame_to_root(q, frame).act(
            np.array([truth['com_x'], truth['com_y'], truth['com_z']]))
        for frame, truth in (('flange', here), ('ft_wrist', elsewhere))
    ]
    assert points[0] == pytest.approx(points[1], abs=1e-12)
    assert elsewhere['com_z'] != here['com_z']


def test_arrows_end_at_the_point_of_application() -> None:
    robot = Robot(default_cell.urdf())
    point, force = np.array([0.055, 0.0, 0.2]), np.array([-30.0, 0.0, 0.0])
    push = ObservedPush('ft_link_2_proximal', point, force, 'ft_link_2_proximal',
                    point + [0.0, 0.0, 0.003], force + [0.0, 0.4, 0.0])
    assert abs(push.point_error - 0.003) < 1e-12
    assert abs(push.force_error - 0.4) < 1e-12
    made = push_figures(robot, np.zeros(6), ['base_link', 'link_2', 'flange'], [push])
    assert [title for title, _ in made] == ['Pushes, side view', 'Pushes, top view']
    side = made[0][1].layout.annotations
    assert len(side) == 2
    # In the zero posture the upper arm stands upright: a push backwards points to -x.
    assert side[0].ax > side[0].x
    assert abs(side[0].ay - side[0].y) < 1e-9


def test_the_benchmark_arm_has_the_required_joints_and_sensors() -> None:
    robot = Robot(seven_joints.urdf())
    assert robot.joint_names == seven_joints.JOINTS
    cut = SensedArm(robot, [SensorMount(frame) for frame in seven_joints.SENSORS])
    assert [chain.rigid for chain in cut.chains] == [True, False, False, True]


def test_the_parameters_of_the_tour_hold_no_compliance_and_no_orientation() -> None:
    known = known_load(HIDDEN)
    assert known['load_mass'] == HIDDEN.load.mass
    assert not any('compliance' in name or 'rpy' in name for name in known)
    assert np.abs(np.array(known['tracker_position']) - HIDDEN.tracker.xyz).max() <= 0.05


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
