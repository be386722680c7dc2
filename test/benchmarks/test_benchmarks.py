# SPDX-License-Identifier: Apache-2.0
"""The reference cell, the conditions, and the command of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import loops, prediction, reference
from benchmarks.__main__ import main
from benchmarks.benchmark import conditions
from benchmarks.reference import Case, drawn_load, recorded, run_case


def test_the_reference_cell_records_its_procedures() -> None:
    record = recorded('static_poses', load=drawn_load(np.random.default_rng(1), 2.0, 2.0),
                      poses=6, dwell=0.5)
    assert np.diff(record.joints.time) == pytest.approx(0.002)
    assert len(record.wrench.time) == len(record.joints.time)
    weight = np.linalg.norm(record.wrench.wrench[:, :3]
                            - record.wrench.wrench[:, :3].mean(axis=0), axis=1)
    # Bias apart, the weight of 2 kg and of the flange turns with the sensor.
    assert 15.0 < weight.max() < 40.0


def test_a_case_of_the_reference_cell_is_within_its_limits() -> None:
    [case] = run_case(2, ('static_poses',))
    assert case.passed
    assert len(case.errors) == 4
    assert not [figure for figure in reference.figures([case]) if figure.met is False]


def test_zeros_and_drift_are_followed_within_their_limits(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown, found = loops.zeros(1)[0]
    assert unknown.max() > 2.0
    assert found.max() < loops.FORCE_BAR
    monkeypatch.setattr(loops, '_DURATION', 45.0)
    monkeypatch.setattr(loops, '_DRIFT', 0.6)
    constant, followed = (loops.drift(1, lag) for lag in (0.0, 5.0))
    assert constant == pytest.approx(0.6, abs=0.01)
    assert followed < 0.3


def test_a_slow_motion_is_good_or_said_not_to_be() -> None:
    inf = np.inf
    judged = [prediction.SlowMotion('UR10', *figures).good for figures in (
        (True, 1.0, 2.0), (True, 6.0, 2.0), (True, 6.0, 7.0), (False, 1.0, 2.0), (False, inf, inf),
        (True, inf, np.nan))]
    assert judged == [True, False, True, False, True, True]


def test_conditions_name_machine_and_versions() -> None:
    found = conditions()
    assert found['cores'] >= 1
    assert all(found[key] for key in ('time', 'processor', 'python', 'robocal_ros', 'numpy'))


@pytest.mark.parametrize(('error', 'code'), [(0.1, 0), (0.6, 1)])
def test_bench_writes_figures_with_conditions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    error: float, code: int,
) -> None:
    case = Case('static_poses', {('error of com_x', 'mm'): (error,)}, True)
    monkeypatch.setattr(reference, 'in_parallel', lambda *_: [[case]])
    assert main(['--only', 'reference', '--seeds', '1', '-o', str(tmp_path)]) == code
    record = json.loads((tmp_path / 'results.json').read_text(encoding='utf-8'))['reference']
    assert record['conditions']['seeds'] == 1
    assert record['figures'][0]['met'] is (code == 0)
    found = json.loads((tmp_path / 'reference.json').read_text(encoding='utf-8'))
    assert found[0]['passed'] is True
    page = (tmp_path / 'benchmarks.md').read_text(encoding='utf-8')
    assert ('**error of com_x** Missed' in page) is (code == 1)
    text = capsys.readouterr().out
    assert ('Missed' in text) is (code == 1)
