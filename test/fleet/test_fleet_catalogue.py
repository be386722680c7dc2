# SPDX-License-Identifier: Apache-2.0
"""The catalogue: its rows, its parts and their compaction, and its views."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.fleet_bags import tried
from support.result_examples import example

from robocal_ros.cli import fleet as command
from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet.catalogue import (
    BROKEN,
    ESTIMATED,
    REFUSED,
    RESULTS,
    Catalogue,
    parts_of,
    rows_of,
    utc,
)
from robocal_ros.results.result import Parameter, RobotIdentity, State

ORIGIN = {'bag': '/bags/a', 'bag_sha256': 'b' * 64, 'settings_sha256': 's' * 64,
          'inputs_sha256': 'i' * 64, 'result': 'results/arm/friction-1.yaml'}


def rows(result: str = 'r.yaml', **changes: object) -> pa.Table:
    row = dict.fromkeys(RESULTS.names, '') | {
        'value': 1.0, 'std': None, 'freedom': None, 'temperature': None, 'time': utc(1.7e9),
        'result': result, 'robot': 'arm', 'kind': 'friction', 'parameter': 'mass'}
    return pa.Table.from_pylist([row | changes], RESULTS)


def counted(catalogue: Catalogue, view: str) -> int:
    return int(catalogue.query(f'SELECT count(*) AS n FROM {view}')[0]['n'])


def files(folder: Path, table: str = 'results') -> list[Path]:
    return sorted((folder / 'catalogue' / table).glob('*.parquet'))


def test_a_result_is_one_row_per_parameter(tmp_path: Path) -> None:
    plain = example()
    result = replace(
        plain, kind='friction', time=1.7e9 + 0.25,
        robot=RobotIdentity('arm', 'u' * 64, ('joint_1', 'joint_2')),
        settings={'temperatures': {'joint_1': 30.0, 'joint_2': 40.0}},
        parameters=(*plain.parameters,
                    Parameter('joint_2.coulomb_forward', 'N·m', 1.5, 0.1, freedom=7.0),
                    Parameter('joint_1.static', 'N·m', state=State.NOT_IDENTIFIED)),
    )
    catalogue = Catalogue(str(tmp_path))
    catalogue.add(rows_of(result, result.time, **ORIGIN))
    assert counted(catalogue, 'results') == len(result.parameters)
    row, = catalogue.query("SELECT * FROM results WHERE joint = 'joint_2'")
    assert row == row | {
        'robot': 'arm', 'parameter': 'joint_2.coulomb_forward', 'quantity': 'coulomb_forward',
        'unit': 'N·m', 'value': 1.5, 'std': 0.1, 'freedom': 7.0, 'state': 'identified',
        'temperature': 40.0, 'verdict': result.verdict.value, 'result': ORIGIN['result'],
        'bag': '/bags/a', 'time': utc(1.7e9 + 0.25)}
    row, = catalogue.query("SELECT * FROM results WHERE joint = 'joint_1'")
    assert (row['value'], row['std'], row['state']) == (None, None, 'not_identified')
    row = catalogue.query("SELECT * FROM results WHERE parameter = 'mass'")[0]
    assert (row['joint'], row['quantity'], row['temperature']) == ('', 'mass', 35.0)
    catalogue.compact()
    (whole,) = files(tmp_path)
    assert pq.read_schema(whole).equals(RESULTS)


@pytest.mark.parametrize(('name', 'parts'), [
    ('a.static', ('a', 'static')), ('a+b.coupling', ('a+b', 'coupling')), ('mass', ('', 'mass')),
    ('ft_wrist.bias', ('', 'ft_wrist.bias')), ('a.b.c', ('', 'a.b.c')),
])
def test_a_parameter_is_split_at_a_joint_only(name: str, parts: tuple[str, str]) -> None:
    assert parts_of(name, ('a', 'b')) == parts


def test_compaction_leaves_one_file_with_all_rows(tmp_path: Path) -> None:
    catalogue = Catalogue(str(tmp_path))
    for number in range(5):
        catalogue.add(rows(f'{number}.yaml'))
        catalogue.add(tried(number, ESTIMATED, bag=f'/bags/{number}'))
    assert len(files(tmp_path)) == 5
    catalogue.compact()
    assert (len(files(tmp_path)), len(files(tmp_path, 'bags'))) == (1, 1)
    assert (counted(catalogue, 'results'), counted(catalogue, 'bags')) == (5, 5)
    catalogue.add(rows('5.yaml'))
    catalogue.compact()
    assert counted(catalogue, 'results') == 6
    assert len(files(tmp_path)) == 1


def test_a_compaction_that_was_interrupted_doubles_nothing(tmp_path: Path) -> None:
    catalogue = Catalogue(str(tmp_path))
    catalogue.add(rows('1.yaml'))
    catalogue.add(rows('2.yaml'))
    parts = [(path, path.read_bytes()) for path in files(tmp_path)]
    catalogue.compact()
    # As if it had been killed before it removed the parts.
    for path, content in parts:
        path.write_bytes(content)
    assert counted(catalogue, 'results') == 2
    catalogue.compact()
    assert len(files(tmp_path)) == 1
    assert counted(catalogue, 'results') == 2


def test_newer_estimates_replace_older_ones_of_the_same_bag(tmp_path: Path) -> None:
    catalogue = Catalogue(str(tmp_path))
    for number in (1, 2):
        catalogue.add(rows(f'{number}.yaml'))
        catalogue.add(tried(number, ESTIMATED, result=f'{number}.yaml',
                            request_sha256=str(number)))
    for _ in range(2):
        assert [row['result'] for row in catalogue.query('SELECT * FROM results')] == ['2.yaml']
        assert counted(catalogue, 'all_results') == 2
        catalogue.compact()


def test_failures_are_those_of_the_newest_attempts(tmp_path: Path) -> None:
    catalogue = Catalogue(str(tmp_path))
    catalogue.add(tried(1, BROKEN, robot='', kind='', reason='gone'))
    catalogue.add(tried(1, REFUSED, bag='/bags/b', reason='no rest'))
    assert counted(catalogue, 'failures') == 2
    catalogue.add(tried(2, ESTIMATED))
    row, = catalogue.query('SELECT * FROM failures')
    assert (row['bag'], row['reason']) == ('/bags/b', 'no rest')


def test_an_object_store_holds_a_catalogue(request: pytest.FixtureRequest) -> None:
    catalogue = Catalogue(f'memory://{request.node.name}')
    catalogue.add(rows('1.yaml'))
    catalogue.add(rows('2.yaml'))
    catalogue.compact()
    catalogue.add(rows('3.yaml'))
    assert counted(catalogue, 'results') == 3


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    catalogue = Catalogue(str(tmp_path))
    catalogue.add(rows())
    files(tmp_path)[0].write_bytes(b'no parquet')
    with pytest.raises(ConfigurationError, match='part-'):
        catalogue.query('SELECT * FROM results')


def test_missing_libraries_are_named_with_the_command() -> None:
    with pytest.raises(ConfigurationError, match='pip install no_such_library$'):
        command.require(('rich', 'no_such_library'))
    assert sys.modules.get('no_such_library') is None
