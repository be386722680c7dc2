# SPDX-License-Identifier: Apache-2.0
"""`robocal import`: CSV files into bags that the estimators read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.arms import arm
from support.joints import plain

from robocal_ros.cli import import_csv
from robocal_ros.cli.main import main
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.intake import JointIntake, WrenchIntake
from robocal_ros.results.result import Verdict
from robocal_ros.results.store import from_yaml

LOG = {'joints': ['a', 'b'], 'position': ['q1', 'q2'], 'effort': ['t1', 't2'], 'time': 'stamp'}
HEADER = 'stamp,q1,q2,t1,t2\n'


def imported(folder: Path, text: str, columns: dict[str, Any]) -> int:
    (folder / 'log.csv').write_text(text, encoding='utf-8')
    (folder / 'map.yaml').write_text(yaml.safe_dump(columns), encoding='utf-8')
    return main(['import', str(folder / 'log.csv'), str(folder / 'bag'), '--columns',
                 str(folder / 'map.yaml')])


@pytest.mark.parametrize(('changes', 'position', 'effort', 'first'), [
    ({}, 1.0, 1.0, 5.0),
    ({'position_unit': ['deg'], 'effort_unit': 'mA', 'time_unit': 'ms'}, np.pi / 180.0, 1e-3,
     0.005),
    ({'position_unit': ['deg', 'mm']}, np.array([np.pi / 180.0, 1e-3]), 1.0, 5.0),
    ({'time': '', 'rate': 100.0}, 1.0, 1.0, 1.0),
    ({'position': [2, 3], 'effort': [4, 5], 'time': 1}, 1.0, 1.0, 5.0),
])
def test_a_log(
    tmp_path: Path, changes: dict[str, Any], position: Any, effort: float, first: float
) -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 4))
    text = HEADER + ''.join(
        f'{5.0 + 0.01 * i!r},' + ','.join(map(repr, row)) + '\n'
        for i, row in enumerate(rows.tolist()))
    assert imported(tmp_path, text, {**LOG, **changes}) == 0
    intake = JointIntake(plain(('a', 'b')), np.ones(2), need_effort=True)
    with Bag(tmp_path / 'bag') as bag:
        bag.read({'/joint_states': intake.take})
    samples = intake.bag_samples()
    assert samples.time[0] == pytest.approx(first)
    np.testing.assert_allclose(samples.position, position * rows[:, :2])
    np.testing.assert_allclose(samples.effort, effort * rows[:, 2:])


@pytest.mark.parametrize(('line', 'words'), [
    ('5.2,0.1,soon,1,2', "line 4, column 'q2': 'soon' is not a finite number"),
    ('5.2,0.1,nan,1,2', "line 4, column 'q2': 'nan' is not a finite number"),
    ('5.2,0.1,,1,2', "line 4, column 'q2': '' is not a finite number"),
    ('5.2,0.1,0.2,1', 'line 4: 4 columns, expected 5'),
    ('1e151,0.1,0.2,1,2', "line 4, column 'stamp': 1e+151 s is outside the range of stamps"),
    ('5.1,0.1,0.2,1,2', "line 4, column 'stamp': 5.1 s does not follow 5.1 s"),
    (f'5.2,{"1" * 150_000},0.2,1,2', 'line 4: field larger than field limit'),
])
def test_a_bad_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    text = f'{HEADER}5.0,0.1,0.2,1,2\n5.1,0.1,0.2,1,2\n{line}\n'
    assert imported(tmp_path, text, LOG) == 2
    assert words in capsys.readouterr().err.replace('\n', ' ')
    assert not (tmp_path / 'bag').exists()


@pytest.mark.parametrize(('changes', 'words'), [
    ({'effort': ['t1', 't9']}, "has no column 't9'; it has stamp, q1, q2, t1, t2"),
    ({'effort': ['t1']}, "key 'effort': expected 0 or 2 entries for 2 joints"),
    ({'position_unit': ['turns']}, "key 'position_unit[0]': expected one of 'deg'"),
    ({'time': ''}, "key 'time': expected the column of the time"),
    ({'wrench': ['q1'] * 6}, "key 'wrench_frame'"),
    ({'wrench': ['q1'] * 6, 'wrench_frame': 'ft', 'postures': True}, "key 'wrench_noise'"),
    ({'speed': ['q1']}, 'speed'),
])
def test_a_bad_column_map_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    text = f'{HEADER}5.0,0.1,0.2,1,2\n5.1,0.1,0.2,1,2\n'
    assert imported(tmp_path, text, {**LOG, **changes}) == 2
    assert words in capsys.readouterr().err.replace('\n', ' ')


@pytest.mark.parametrize('text', ['', '\n', HEADER])
def test_a_file_without_samples_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert imported(tmp_path, text, LOG) == 2
    assert 'is empty; expected one line per sample' in capsys.readouterr().err.replace('\n', ' ')
    assert not (tmp_path / 'bag').exists()


def test_a_posture_that_no_arm_reaches_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way to it would fill the disk."""
    columns = {**LOG, 'time': '', 'postures': True}
    assert imported(tmp_path, f'{HEADER}0,0.1,0.2,1,2\n0,0.1,1e9,1,2\n', columns) == 2
    assert "line 3, column 'q2': 1e+09 rad or m is no posture" in (
        capsys.readouterr().err.replace('\n', ' '))


def test_a_set_with_one_posture_per_line_gives_the_payload(tmp_path: Path) -> None:
    robot = arm('robocal').robot()
    frame = robot.tool_frame
    generator = np.random.default_rng(1)
    low, high = robot.sampling_limits()
    mass, centre = 1.8, np.array([0.02, -0.03, 0.07])
    lines = []
    for q in generator.uniform(0.5 * low, 0.5 * high, (16, robot.n)):
        down = robot.transform_frame_to_root(q, frame).rotation.T @ robot.gravity
        reading = np.concatenate((mass * down, np.cross(centre, mass * down)))
        reading += generator.normal(0.0, np.repeat([0.02, 0.002], 3))
        lines.append(','.join(map(repr, (*np.degrees(q).tolist(), *reading.tolist()))))
    assert imported(tmp_path, '\n'.join(lines) + '\n', {
        'joints': list(robot.joint_names), 'position': list(range(1, robot.n + 1)),
        'position_unit': ['deg'], 'postures': True, 'header': False,
        'wrench': list(range(robot.n + 1, robot.n + 7)), 'wrench_frame': frame,
        'wrench_noise': [0.02, 0.002]}) == 0
    wrench = WrenchIntake('ft_wrist/wrench', frame, 1.0)
    with Bag(tmp_path / 'bag') as bag:
        bag.read({'/ft_wrist/wrench': wrench.take})
    # Two readings after each of the pauses are left out, until the pause is believed.
    assert len(wrench.bag_samples()) == 16 * 100 - 15 * 2
    (tmp_path / 'arm.urdf').write_text(robot.urdf, encoding='utf-8')
    code = main(['estimate', 'payload', str(tmp_path / 'bag'), '-p', 'method:=static_poses',
                 '-p', f'tool_frame:={frame}', '-p', f'sensor_frame:={frame}',
                 '--urdf', str(tmp_path / 'arm.urdf'), '--results-dir', str(tmp_path),
                 '-o', str(tmp_path / 'result.yaml')])
    result = from_yaml((tmp_path / 'result.yaml').read_text(encoding='utf-8'))
    assert result.parameter('mass').value == pytest.approx(mass, abs=0.02)
    assert code == (0 if result.verdict is Verdict.PASS else 1)


def test_progress_goes_from_reading_to_writing(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(import_csv, 'QUIET', 0.0)
    monkeypatch.setattr(import_csv, '_REPORTED', 10)
    text = HEADER + ''.join(f'{0.01 * i},0,0,0,0\n' for i in range(100))
    assert imported(tmp_path, text, LOG) == 0
    shown = capsys.readouterr().out
    percents = [int(item) for item in re.findall(r'import: +(\d+) %', shown)]
    assert percents == sorted(percents)
    assert percents[0] == 0
    assert percents[-1] >= 80
    assert shown.index('reading') < shown.index('writing')


def test_semicolons_and_decimal_commas_are_named(tmp_path: Path, capsys) -> None:
    text = 'stamp;q1;q2;t1;t2\n5,0;0,1;0,2;1,0;2,0\n'
    assert imported(tmp_path, text, LOG) == 2
    assert "seem to be separated by ';': set delimiter" in capsys.readouterr().err
    assert imported(tmp_path, text, {**LOG, 'delimiter': ';'}) == 2
    assert "'0,1' is not a finite number. Export the log with decimal points." in (
        capsys.readouterr().err)
