# SPDX-License-Identifier: Apache-2.0
"""Random cells, the arm in this process, figures, and the command of the benchmarks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks import payload
from benchmarks.__main__ import main
from benchmarks.arm import InProcessArm
from benchmarks.figures import Deviation, Timing, conditions, coverage, error_figures
from benchmarks.payload import BARS, STATIC, Case
from benchmarks.random_cell import random_truth, truth_document
from demo import default_cell
from robocal_ros.errors import MotionError
from robocal_ros.robot.trajectories import quintic_move
from robocal_sim.truth import HiddenTruth, parse_truth

BASE = default_cell.hidden_truth()


def drawn(seed: int, mass: float | None = None) -> HiddenTruth:
    return random_truth(BASE, seed, mass, sensor='ft_wrist')


def test_drawn_cells_stay_within_the_reference_cells_ranges() -> None:
    masses = []
    for seed in range(200):
        truth = drawn(seed)
        assert truth.tool is not None
        masses.append(truth.tool.mass)
        assert 1.0 <= truth.tool.mass <= 3.0
        assert np.linalg.norm(truth.tool.centre_of_mass) <= 0.15
        for joint in truth.joints.values():
            forward, backward = joint.friction.coulomb
            assert abs(forward - backward) / (0.5 * (forward + backward)) == pytest.approx(0.1)
            ratio = np.array(joint.friction.breakaway) / joint.friction.coulomb
            assert ((ratio >= 1.5) & (ratio <= 2.0)).all()
            assert 1e-6 <= joint.compliance <= 2e-4
    assert max(masses) - min(masses) > 1.9


def test_equal_seeds_and_only_they_draw_equal_cells() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    tool = drawn(3, 2.0).tool
    assert tool is not None
    assert tool.mass == 2.0


def test_a_drawn_truth_survives_writing_and_reading() -> None:
    truth = drawn(5)
    text = yaml.safe_dump(truth_document(truth))
    assert parse_truth(yaml.safe_load(text)) == truth


def test_in_process_arm_follows_a_motion_and_records_it() -> None:
    truth = drawn(1)
    arm = InProcessArm(default_cell.urdf(), truth, default_cell.reference_cell(), 1)
    start = arm.posture
    goal = start + 0.05
    limits = np.full(len(start), 1.0)
    arm.move(quintic_move(start, goal, limits, limits))
    arm.dwell(0.1)
    joints, wrenches = arm.take_samples()
    assert np.abs(arm.posture - goal).max() < 1e-3
    assert joints.position[-1] == pytest.approx(goal, abs=1e-3)
    assert np.diff(joints.time) == pytest.approx(0.002)
    assert len(wrenches) == len(joints)
    with pytest.raises(MotionError, match='refused'):
        arm.move(replace(quintic_move(goal, start, limits, limits),
                         velocity=np.ones((2, len(start)))))


def deviation(seed: int, error: float, parameter: str = 'com_x', truth: float = 0.01) -> Deviation:
    return Deviation(STATIC, seed, parameter, 'm', truth, error, 1e-4, 'pass')


def test_figures_are_median_and_worst_of_the_absolute_errors() -> None:
    found = [deviation(seed, error) for seed, error in enumerate((1e-4, -6e-4, 2e-4))]
    (figure,) = error_figures(found, STATIC, BARS[STATIC])
    assert (figure.median, figure.worst, figure.bar) == pytest.approx((0.2, 0.6, 0.5))
    assert figure.met is False


def test_errors_of_the_mass_are_in_percent() -> None:
    (figure,) = error_figures([deviation(0, -0.01, 'mass', 2.0)], STATIC, BARS[STATIC])
    assert (figure.worst, figure.unit, figure.met) == (pytest.approx(0.5), '%', True)


def test_coverage_counts_intervals_that_contain_the_truth() -> None:
    found = [deviation(0, 1.9e-4), deviation(1, -1.9e-4), deviation(2, 2.0e-4)]
    assert coverage(found, STATIC) == (2, 3)


def test_conditions_name_machine_and_versions() -> None:
    found = conditions()
    assert found['cores'] >= 1
    assert all(found[key] for key in ('time', 'processor', 'python', 'robocal_ros', 'numpy'))


@pytest.mark.parametrize(('error', 'code'), [(1e-4, 0), (6e-4, 1)])
def test_bench_writes_figures_with_conditions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    error: float, code: int,
) -> None:
    cases = [Case(1, (deviation(1, error),), (Timing('static poses, estimate', 60.0, 30000,
                                                     0.03),))]
    monkeypatch.setattr(payload, 'in_parallel', lambda *_: cases)
    monkeypatch.setattr(payload.excitation, 'efficiency', lambda _: [])
    assert main(['--only', 'payload', '--seeds', '1', '-o', str(tmp_path)]) == code
    record = json.loads((tmp_path / 'results.json').read_text(encoding='utf-8'))['payload']
    assert record['conditions']['seeds'] == 1
    assert record['figures'][0]['met'] is (code == 0)
    found = json.loads((tmp_path / 'payload.json').read_text(encoding='utf-8'))
    assert found[0]['deviations'][0]['error'] == error
    page = (tmp_path / 'benchmarks.md').read_text(encoding='utf-8')
    assert ('**error of com_x** Missed' in page) is (code == 1)
    text = capsys.readouterr().out
    assert ('met' if code == 0 else 'missed') in text
    assert '2e+03' in text or '2000' in text


def test_a_quick_run_tries_every_step_and_writes_the_page(tmp_path: Path) -> None:
    """Those without short cases of their own in other tests."""
    names = ('coverage', 'robustness', 'scaling')
    assert main(['--quick', '--jobs', '1', '-o', str(tmp_path),
                 *(word for name in names for word in ('--only', name))]) == 0
    records = json.loads((tmp_path / 'results.json').read_text(encoding='utf-8'))
    assert tuple(records) == names
    for record in records.values():
        assert record['figures']
    page = (tmp_path / 'benchmarks.md').read_text(encoding='utf-8')
    for image in (tmp_path / 'images').iterdir():
        assert f'images/{image.name}' in page


def test_static_poses_in_process_find_the_drawn_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (('_POSES', 6), ('_DWELL', 0.8), ('_VELOCITY', 3.0),
                        ('_ACCELERATION', 12.0)):
        monkeypatch.setattr(payload, name, value)
    procedure = payload._Procedure(drawn(2), 2)
    result = procedure.static_poses()
    for name, limit in (('mass', 0.01), ('com_x', 5e-4), ('com_y', 5e-4), ('com_z', 5e-4)):
        value = result.parameter(name).value
        assert value is not None
        assert abs(value - procedure.expected[name]) < limit
