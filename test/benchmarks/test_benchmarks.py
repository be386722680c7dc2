# SPDX-License-Identifier: Apache-2.0
"""Short cases and figures of the benchmarks, their command, and the page that it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    compliance,
    guided,
    leveling,
    loops,
    offline,
    prediction,
    reference,
    seven_joints,
    wrench,
)
from benchmarks.__main__ import main
from benchmarks.benchmark import Figure, Table, share_band
from benchmarks.page import Record, read_records, write_page, write_records
from benchmarks.second_campaign import Case, Value
from benchmarks.second_cell import OWN
from benchmarks.second_world import read_arm
from robocal_ros.errors import FileFormatError
from robocal_ros.robot import RigidBodyInertia, Robot, with_payload
from robocal_ros.wrench import SensedArm, SensorMount

LOAD = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), np.diag([2e-3, 3e-3, 4e-3]))
CONDITIONS = {'time': '2024-01-01T00:00:00', 'commit': 'abc', 'processor': 'any', 'cores': 2,
              'system': 'Linux', 'python': '3', 'taken': 3.0, 'seeds': 2, 'numpy': '2'}
RECORD = Record('Growth of time', 'A test.', CONDITIONS, (
    Figure('speed', 'time', 's', 1.0, 2.5, 2.0, band=(0.9, 1.1), reason='the clock is slow.'),
    Figure('speed', 'other', 's', 1.0, 1.0, 2.0)),
    (Table('Peers', ('tool', 'error'), (('ours', 1.23456), ('a|b', None))),),
    ('A remark.',))


def test_the_reference_cell_records_its_procedures() -> None:
    load = reference.drawn_load(np.random.default_rng(1), 2.0, 2.0)
    record = reference.recorded('static_poses', load=load, poses=6, dwell=0.5)
    assert np.diff(record.joints.time) == pytest.approx(0.002)
    assert len(record.wrench.time) == len(record.joints.time)
    weight = np.linalg.norm(record.wrench.wrench[:, :3]
                            - record.wrench.wrench[:, :3].mean(axis=0), axis=1)
    # Bias apart, the weight of 2 kg and of the flange turns with the sensor.
    assert 15.0 < weight.max() < 40.0


def test_a_case_of_the_reference_cell_is_within_its_limits() -> None:
    [case] = reference.run_case(2, ('static_poses',))
    assert case.passed
    assert len(case.errors) == 4
    assert not [figure for figure in reference.figures([case]) if figure.met is False]


def test_zeros_and_drift_are_followed_within_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(('error', 'code'), [(0.1, 0), (0.6, 1)])
def test_bench_writes_figures_with_conditions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    error: float, code: int,
) -> None:
    case = reference.Case('static_poses', {('error of com_x', 'mm'): (error,)}, True)
    monkeypatch.setattr(reference, 'in_parallel', lambda *_: [[case]])
    assert main(['--only', 'reference', '--seeds', '1', '-o', str(tmp_path)]) == code
    record = json.loads((tmp_path / 'results.json').read_text(encoding='utf-8'))['reference']
    known = record['conditions']
    assert known['seeds'] == 1
    assert known['cores'] >= 1
    assert all(known[key] for key in ('time', 'processor', 'python', 'robocal_ros', 'numpy'))
    assert record['figures'][0]['met'] is (code == 0)
    found = json.loads((tmp_path / 'reference.json').read_text(encoding='utf-8'))
    assert found[0]['passed'] is True
    page = (tmp_path / 'benchmarks.md').read_text(encoding='utf-8')
    assert ('**error of com_x** Missed' in page) is (code == 1)
    text = capsys.readouterr().out
    assert ('Missed' in text) is (code == 1)


# -------------------------------------------------------------------------------- page


def test_the_guide_leads_a_quiet_arm_to_its_payload() -> None:
    *way, end = guided.calibrated(501 * len(guided.ROBOTS), 'gravity')
    assert (end.arm, end.effects) == ('UR5', {})
    assert end.passed, end.reason
    assert way[-1].method == 'payload'
    assert {value.name for value in end.values} >= {'com_x', 'com_y', 'com_z'}
    assert not any(case.wrong for case in (*way, end))
    assert end.usable


def test_bands_of_shares_are_exact() -> None:
    """None of n: the upper end p solves (1 − p)^n = 0.025 (Clopper and Pearson)."""
    low, high = share_band(0, 100)
    assert low == 0.0
    assert (1.0 - high) ** 100 == pytest.approx(0.025)


def test_figures_of_cases_have_the_worst_on_the_side_of_the_limit() -> None:
    values = [1.0, 2.0, 9.0]
    assert Figure.over('a', 'b', 's', values, 5.0).met is False
    assert Figure.over('a', 'b', 's', values, 0.5, at_least=True).worst == 1.0
    share = Figure.share('a', 'found', 9, 10, 80.0)
    assert (share.median, share.met) == (90.0, True)


def test_page_is_made_from_the_results_file(tmp_path: Path) -> None:
    results, page = tmp_path / 'results.json', tmp_path / 'docs' / 'benchmarks.md'
    write_records(results, {'growth': RECORD})
    page.parent.mkdir()
    write_page(page, read_records(results))
    text = page.read_text(encoding='utf-8')
    assert '**1 of 2 limits are met.**' in text
    assert ('| **time** Missed: the clock is slow. | **1** | **0.9 to 1.1** | **2.5** | **≤ 2** '
            '| **s** |') in text
    assert '| other | 1 |  |  | ≤ 2 | s |' in text
    assert '| a\\|b |  |' in text
    assert '| ours | 1.23 |' in text
    assert '[Growth of time](#growth-of-time)' in text
    again = page.read_bytes()
    write_records(results, read_records(results))
    write_page(page, read_records(results))
    assert page.read_bytes() == again


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'results.json').write_text('{"growth": 3}', encoding='utf-8')
    with pytest.raises(FileFormatError, match='not a results file'):
        read_records(tmp_path / 'results.json')
    assert read_records(tmp_path / 'none.json') == {}


# ----------------------------------------------------------- compliance, leveling, wrench


def test_arms_at_rest_meet_the_limits_and_the_bound() -> None:
    upright, walled, drawn = compliance.run_case(3)
    first = read_arm(upright.arm).joints[0]
    assert first not in {joint.name for joint in upright.values}
    assert first in {joint.name for joint in walled.values}
    for case in (upright, walled):
        assert case.notes['sag removed'] > 95.0
        assert all(abs(joint.z) < 3.3 for joint in case.values)
        # One draw of some errors; the bound is that of a known tracker.
        ratios = [joint.error / joint.bound for joint in case.values]
        assert 0.2 < np.sqrt(np.mean(np.square(ratios))) < 2.5
    assert not drawn.wrong
    assert not any(joint.bound for joint in drawn.values)


def test_figures_of_compliance_are_judged_by_their_limits() -> None:
    sharp = Value('j', 1.0, 0.01, 0.01, 1.0, bound=0.01)
    weak = Value('weak', 1.0, 0.9, 0.6, 1.5, bound=0.9)
    good = Case(0, '', 'UR10', {}, 'pass', '', (sharp, weak), {'sag removed': 97.0})
    within, removed, bound = compliance.figures('quiet', [good] * 20)
    assert (within.met, removed.met, bound.met) == (True, True, True)
    assert bound.worst == pytest.approx(1.0)
    # A joint with a large deviation does not count.
    assert within.what.endswith('of 20')
    bad = replace(good, values=(replace(sharp, error=0.03), weak), notes={'sag removed': 94.0})
    assert [figure.met for figure in compliance.figures('quiet', [good] * 18 + [bad] * 2)] == [
        False, False, False]


def test_wrong_passes_of_compliance_are_counted() -> None:
    outside = Value('j', 1.0, 0.05, 0.01, 5.0)
    wrong = Case(0, '', 'UR10', {}, 'pass', '', (outside,), {'sag removed': 97.0})
    found = {figure.what.partition(',')[0]: figure for figure in compliance.figures(
        'drawn', [wrong, replace(wrong, verdict='fail')])}
    assert found['wrong passes'].worst == 1.0
    assert found['wrong passes'].met is False
    assert found['values of passes inside 99.9 %'].met is False


def test_plans_of_all_arms_meet_the_limits() -> None:
    attempts = leveling.run_case(2)
    assert [item.arm for item in attempts] == list(leveling.ARMS)
    assert [np.isfinite(item.true_tilt) for item in attempts] == [True, False, False, False]
    for figure in leveling.figures(attempts):
        assert figure.met is not False or figure.what.startswith('planning'), figure


def test_figures_of_leveling_are_judged_by_their_limits() -> None:
    good = leveling.Attempt(OWN, 10.0, 1e-6, 0.1, 0.001)
    bad = replace(good, tilt=0.06, drift=0.6, true_tilt=0.06)
    refused = leveling.Attempt(OWN, 60.0, obstacle='position limit')

    def met(*attempts: leveling.Attempt) -> dict[str, bool | None]:
        return {figure.what.partition(',')[0]: figure.met for figure in leveling.figures(attempts)}

    assert False not in met(good).values()
    missed = met(bad, refused)
    for what in ('residual tilt', 'drift', 'true tilt of a loaded arm that sags'):
        assert missed[what] is False, what


def test_a_short_case_is_counted() -> None:
    case = wrench.run_case(1, error=0.02, motion=3.0, impacts=8, pushes=2, weak=2)
    assert (case.false_alarms, case.missed, case.impacts) == (0, 0, 8)
    assert len(case.position) == len(case.force) == 2
    assert case.ratio < 2.5 < case.weight_only
    assert max(case.position) < 5.0
    assert max(case.delays) <= 20.0
    assert not [figure for figure in wrench.figures(0.02, [case]) if figure.met is False]


def test_others_get_the_same_payload() -> None:
    def sensed(urdf: str) -> SensedArm:
        return SensedArm(Robot(urdf), [SensorMount(frame) for frame in seven_joints.SENSORS])

    carrying = sensed(with_payload(seven_joints.urdf(), LOAD, 'tool0'))
    cut = sensed(seven_joints.urdf())
    cut.carry(LOAD, 'tool0')
    motion = np.random.default_rng(0).normal(size=(3, 7))
    np.testing.assert_allclose(carrying.held(*motion), cut.held(*motion), atol=1e-9)


def test_a_bag_is_written_and_estimated(tmp_path: Path) -> None:
    speed, memory = offline.measured('wrench', 'mcap', 5.0, tmp_path)
    assert speed > 0.0
    assert memory > 0.0
