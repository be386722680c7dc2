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
from support.fixtures import Call
from support.joints import plain

from robocal_ros.cli import import_csv
from robocal_ros.cli.main import main
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.intake import JointIntake, WrenchIntake
from robocal_ros.results.result import Verdict
from robocal_ros.results.store import from_yaml

LOG = {'joints': ['a', 'b'], 'position': ['q1', 'q2'], 'effort': ['t1', 't2'], 'time': 'stamp'}
HEADER = 'stamp,q1,q2,t1,t2\n'
SEMICOLONS = 'stamp;q1;q2;t1;t2\n5,0;0,1;0,2;1,0;2,0\n'


@pytest.fixture
def imported(tmp_path: Path, call: Call) -> Call:
    """Imports a text by a column map into `bag`; returns what is printed."""
    def run(text: str, columns: dict[str, Any], code: int = 0) -> str:
        (tmp_path / 'log.csv').write_text(text, encoding='utf-8')
        (tmp_path / 'map.yaml').write_text(yaml.safe_dump(columns), encoding='utf-8')
        told = call('import', tmp_path / 'log.csv', tmp_path / 'bag', '--columns',
                    tmp_path / 'map.yaml', code=code)
        assert (tmp_path / 'bag').exists() is (code == 0)
        return told

    return run


@pytest.mark.parametrize(('changes', 'position', 'effort', 'first'), [
    ({}, 1.0, 1.0, 5.0),
    ({'position_unit': ['deg'], 'effort_unit': 'mA', 'time_unit': 'ms'}, np.pi / 180.0, 1e-3,
     0.005),
    ({'position_unit': ['deg', 'mm']}, np.array([np.pi / 180.0, 1e-3]), 1.0, 5.0),
    ({'time': '', 'rate': 100.0}, 1.0, 1.0, 1.0),
    ({'position': [2, 3], 'effort': [4, 5], 'time': 1}, 1.0, 1.0, 5.0),
])
def test_a_log(
    tmp_path: Path, imported: Call, changes: dict[str, Any], position: Any, effort: float,
    first: float
) -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 4))
    text = HEADER + ''.join(
        f'{5.0 + 0.01 * i!r},' + ','.join(map(repr, row)) + '\n'
        for i, row in enumerate(rows.tolist()))
    told = imported(text, {**LOG, **changes})
    assert f"position_unit {', '.join(changes.get('position_unit', ['rad']))}." in told
    intake = JointIntake(plain(('a', 'b')), np.ones(2), need_effort=True)
    with Bag(tmp_path / 'bag') as bag:
        bag.read({'/joint_states': intake.take})
    samples = intake.bag_samples()
    assert samples.time[0] == pytest.approx(first)
    np.testing.assert_allclose(samples.position, position * rows[:, :2])
    np.testing.assert_allclose(samples.effort, effort * rows[:, 2:])


GOOD = f'{HEADER}5.0,0.1,0.2,1,2\n5.1,0.1,0.2,1,2\n'


@pytest.mark.parametrize(('line', 'words'), [
    ('5.2,0.1,soon,1,2', "line 4, column 'q2': 'soon' is not a finite number"),
    ('5.2,0.1,nan,1,2', "line 4, column 'q2': 'nan' is not a finite number"),
    ('5.2,0.1,,1,2', "line 4, column 'q2': '' is not a finite number"),
    ('5.2,0.1,0.2,1', 'line 4: 4 columns, expected 5'),
    ('1e151,0.1,0.2,1,2', "line 4, column 'stamp': 1e+151 s is outside the range of stamps"),
    ('5.1,0.1,0.2,1,2', "line 4, column 'stamp': 5.1 s does not follow 5.1 s"),
    (f'5.2,{"1" * 150_000},0.2,1,2', 'line 4: field larger than field limit'),
])
def test_a_bad_line_is_named(imported: Call, line: str, words: str) -> None:
    assert words in imported(f'{GOOD}{line}\n', LOG, code=2)


@pytest.mark.parametrize(('changes', 'words'), [
    ({'effort': ['t1', 't9']}, "has no column 't9'; it has stamp, q1, q2, t1, t2"),
    ({'effort': ['t1']}, "key 'effort': expected 0 or 2 entries for 2 joints"),
    ({'position_unit': ['turns']}, "key 'position_unit[0]': expected one of 'deg'"),
    ({'time': ''}, "key 'time': expected the column of the time"),
    ({'wrench': ['q1'] * 6}, "key 'wrench_frame'"),
    ({'wrench': ['q1'] * 6, 'wrench_frame': 'ft', 'postures': True}, "key 'wrench_noise'"),
    ({'speed': ['q1']}, 'speed'),
])
def test_a_bad_column_map_is_named(imported: Call, changes: dict[str, Any], words: str) -> None:
    assert words in imported(GOOD, {**LOG, **changes}, code=2)


@pytest.mark.parametrize(('text', 'changes', 'words'), [
    *((text, {}, 'is empty; expected one line per sample') for text in ('', '\n', HEADER)),
    # The way to it would fill the disk.
    (f'{HEADER}0,0.1,0.2,1,2\n0,0.1,1e9,1,2\n', {'time': '', 'postures': True},
     "line 3, column 'q2': 1e+09 rad or m is no posture"),
    (SEMICOLONS, {}, "seem to be separated by ';': set delimiter"),
    (SEMICOLONS, {'delimiter': ';'},
     "'0,1' is not a finite number. Export the log with decimal points."),
])
def test_a_file_of_no_use_is_refused(
    imported: Call, text: str, changes: dict[str, Any], words: str
) -> None:
    assert words in imported(text, {**LOG, **changes}, code=2)


def test_a_set_with_one_posture_per_line_gives_the_payload(tmp_path: Path, imported: Call) -> None:
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
    imported('\n'.join(lines) + '\n', {
        'joints': list(robot.joint_names), 'position': list(range(1, robot.n + 1)),
        'position_unit': ['deg'], 'postures': True, 'header': False,
        'wrench': list(range(robot.n + 1, robot.n + 7)), 'wrench_frame': frame,
        'wrench_noise': [0.02, 0.002]})
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


def test_progress_goes_from_reading_to_writing(imported: Call, monkeypatch) -> None:
    monkeypatch.setattr(import_csv, 'QUIET', 0.0)
    monkeypatch.setattr(import_csv, '_REPORTED', 10)
    text = HEADER + ''.join(f'{0.01 * i},0,0,0,0\n' for i in range(100))
    shown = imported(text, LOG)
    percents = [int(item) for item in re.findall(r'import: +(\d+) %', shown)]
    assert percents == sorted(percents)
    assert percents[0] == 0
    assert percents[-1] >= 80
    assert shown.index('reading') < shown.index('writing')
