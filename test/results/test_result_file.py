# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import yaml
from hypothesis import given, settings, strategies as st
from support.result_examples import ROBOT, example, failing

from robocal_ros.errors import ConfigurationError, DataError, FileFormatError
from robocal_ros.results.result import CalibrationResult, Input, Parameter, RobotIdentity, Verdict
from robocal_ros.results.store import (
    ResultStore,
    check_writable,
    default_directory,
    from_yaml,
    read_result,
    to_yaml,
)

DATA = Path(__file__).parent / 'data'
VALID = to_yaml(example())


def assert_equal(a: CalibrationResult, b: CalibrationResult) -> None:
    assert np.array_equal(a.covariance, b.covariance)
    assert len(a.series) == len(b.series)
    for one, other in zip(a.series, b.series, strict=True):
        assert np.array_equal(one.x, other.x)
        assert one.curves.keys() == other.curves.keys()
        assert all(np.array_equal(one.curves[key], other.curves[key]) for key in one.curves)
        assert (one.title, one.x_label, one.y_label) == (other.title, other.x_label, other.y_label)
    plain = {'covariance': np.zeros((3, 3)), 'series': ()}
    for name in CalibrationResult.__dataclass_fields__:
        if name not in plain:
            assert getattr(a, name) == getattr(b, name), name


def edited(change: Callable[[dict[str, Any]], None]) -> str:
    document = yaml.safe_load(VALID)
    change(document)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, explicit_end=True)


def refusal(text: str, robot: RobotIdentity | None = None) -> str:
    with pytest.raises(FileFormatError) as caught:
        from_yaml(text, robot, 'payload.yaml')
    message = str(caught.value)
    assert message.startswith('payload.yaml')
    assert message.endswith('.')
    return message


def test_round_trip_is_exact() -> None:
    assert_equal(from_yaml(VALID), example())
    assert to_yaml(from_yaml(VALID)) == VALID


def other_than_default(part: Any) -> Any:
    """Return a part of a result in which no field has its default value."""
    hints = get_type_hints(type(part))
    values: dict[Any, Any] = {float: 2.5, int: 7, str: 'some text', bool: False}
    changed = {}
    for field in fields(part):
        kind = hints[field.name]
        if field.default in (MISSING, ()) or field.name == 'state':
            continue
        choices = [choice for choice in get_args(kind) if choice not in (field.default, NoneType)]
        value = values.get(kind, values.get(choices[0], choices[0]) if choices else None)
        assert value not in (None, field.default), f'no value for {field.name}: extend this test'
        changed[field.name] = value
    return replace(part, **changed)


def test_every_field_of_every_part_survives_a_file() -> None:
    full = replace(example(), inputs=(Input('friction', 'motion, live', 'ab'),))
    for name in ('parameters', 'fit', 'validation', 'checks', 'inputs'):
        full = replace(full, **{name: tuple(
            other_than_default(part) for part in getattr(full, name))})
    # A value and its deviation are as the covariance states them.
    full = replace(full, parameters=tuple(
        replace(part, value=original.value, std=original.std)
        for part, original in zip(full.parameters, example().parameters, strict=True)))
    assert_equal(from_yaml(to_yaml(full)), full)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_round_trip_of_any_float(values: list[float]) -> None:
    result = replace(
        example(),
        parameters=(*example().parameters,
                    *(Parameter(f'p{i}', '1', value) for i, value in enumerate(values))),
        settings={'values': values},
    )
    read = from_yaml(to_yaml(result))
    assert read.parameters == result.parameters
    assert read.settings == result.settings


@settings(deadline=None)
@given(st.text())
def test_round_trip_of_any_text(text: str) -> None:
    result = replace(example(), source=text, settings={'text': text})
    try:
        written = to_yaml(result)
    except DataError:
        # Half a surrogate pair has no place in a file.
        assert not text.isprintable()
        return
    read = from_yaml(written)
    assert (read.source, read.settings) == (result.source, result.settings)


def test_numpy_and_tuples_in_settings_become_plain() -> None:
    result = replace(example(), settings={
        'a': np.float64(0.5), 'b': np.array([1.0, 2.0]), 'c': (1, 2), 'd': Verdict.PASS})
    assert from_yaml(to_yaml(result)).settings == {
        'a': 0.5, 'b': [1.0, 2.0], 'c': [1, 2], 'd': 'pass'}


def test_numeric_arrays_take_one_line() -> None:
    assert '\n  gravity: [0.0, 0.0, -9.81]\n' in VALID


def test_stored_file_of_version_1_stays_readable() -> None:
    assert_equal(read_result(DATA / 'payload.yaml', ROBOT), example())


@pytest.mark.parametrize('spoilt', [
    {'time': float('nan')},
    {'settings': {'a': object()}},
    {'settings': {'a': float('nan')}},
    {'counts': {'samples': -1}},
    {'covariance': -example().covariance},
    {'kind': '../payload'},
])
def test_writer_refuses_what_the_reader_would(spoilt: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r'\.$'):
        to_yaml(replace(example(), **spoilt))


@pytest.mark.parametrize(('change', 'key', 'got'), [
    (lambda d: d.update(schema_version=2), 'schema_version', '2'),
    (lambda d: d.pop('schema_version'), 'schema_version', 'None'),
    (lambda d: d.pop('frame'), 'frame', 'nothing'),
    (lambda d: d.update(extra=1), 'extra', 'unknown'),
    (lambda d: d['parameters'][1].pop('unit'), 'parameters[1].unit', 'nothing'),
    (lambda d: d['parameters'][0].update(value=None), 'parameters[0].value', 'None'),
    (lambda d: d['parameters'][0].update(value=float('inf')), 'parameters[0].value', 'inf'),
    (lambda d: d['parameters'][0].update(value=10**400), 'parameters[0].value', '1000'),
    (lambda d: d['parameters'][0].update(std=-0.004), 'parameters[0].std', '-0.004'),
    (lambda d: d['parameters'][0].update(interval_95=[0.0, 1.0]), 'parameters[0].interval_95',
     '[0.0, 1.0]'),
    (lambda d: d['parameters'][1].update(name='mass'), 'parameters', 'mass'),
    (lambda d: d['covariance']['names'].__setitem__(1, 'mass'), 'covariance.names', 'mass'),
    (lambda d: d['covariance']['matrix'].pop(), 'covariance.matrix', '2 rows'),
    (lambda d: d['covariance']['matrix'][0].pop(), 'covariance.matrix[0]', '2 numbers'),
    (lambda d: d['covariance']['matrix'][0].__setitem__(0, 1.0), 'covariance.matrix[0][0]', '1.0'),
    (lambda d: d['covariance']['matrix'][0].__setitem__(1, 0.0), 'covariance.matrix', 'differ'),
    (lambda d: d['fit'][0].update(count=1.5), 'fit[0].count', '1.5'),
    (lambda d: d['verdict'].update(value='fail'), 'verdict.value', "'fail'"),
    (lambda d: d['verdict']['checks'][0].update(passed=1), 'verdict.checks[0].passed', '1'),
    (lambda d: d['plots'][0]['x'].append(2.0), 'plots[0].curves.measured', '12 numbers'),
    (lambda d: d['settings'].update(when=__import__('datetime').date(2020, 1, 1)),
     'settings.when', 'datetime'),
    (lambda d: d['settings']['deep'].update({1: 2}), 'settings.deep', '1'),
    (lambda d: d.update(kind='../x'), 'kind', "'../x'"),
    (lambda d: d['robot'].update(vendor='x'), 'robot.vendor',
     'expected only name, urdf_sha256, joint_names, mechanics_sha256'),
    (lambda d: d.update(robot='arm'), 'robot',
     "expected a mapping with name, urdf_sha256, joint_names, mechanics_sha256, got 'arm'"),
    (lambda d: d['robot'].update({3: 'x'}), 'robot', 'a mapping with strings as keys'),
    (lambda d: d['parameters'][0].update(state='good'), 'parameters[0].state',
     'expected one of identified, not_identified, not_evaluated'),
    (lambda d: d['verdict']['checks'][0].update(question='why'), 'verdict.checks[0].question',
     "expected one of '', 'adequate', 'informative', 'trustworthy'"),
    (lambda d: d['verdict']['checks'][0].update(limit=-10**400), 'verdict.checks[0].limit',
     'a number of at most 64 bits'),
    (lambda d: d['verdict']['checks'][0].update(value=float('nan')), 'verdict.checks[0].value',
     'nan'),
    (lambda d: d['samples'].update(dropped=-1), 'samples.dropped',
     'expected a whole number >= 0, got -1'),
    (lambda d: d['plots'][0]['curves'].update(fit=[True] * 12), 'plots[0].curves.fit[0]',
     'expected a number, got True'),
    (lambda d: d['fit'][0].update(after=float('inf')), 'fit[0].after',
     'expected a finite number, got inf'),
    (lambda d: d.update(time=float('nan')), 'time', 'nan'),
])
def test_refusal_names_key_and_value(
    change: Callable[[dict[str, Any]], None], key: str, got: str
) -> None:
    message = refusal(edited(change))
    assert f"key '{key}'" in message
    assert got in message


def test_covariance_with_a_negative_variance_in_some_direction_is_refused() -> None:
    def change(document: dict[str, Any]) -> None:
        matrix = document['covariance']['matrix']
        off = 1.5 * (matrix[0][0] * matrix[1][1]) ** 0.5
        matrix[0][1] = matrix[1][0] = off

    assert 'positive semidefinite' in refusal(edited(change))


@pytest.mark.parametrize('text', [
    '', '[]', 'just words', 'a: [1, 2', 'a: 1\na: 2', '{', '\t', '!!bool maybe', '2020-99-99',
    '!!timestamp x', '[' * 5000, 'a: &a [*a]', '!!python/object:os.system {}', '0x_', '\x00',
])
def test_what_is_no_result_is_refused(text: str) -> None:
    refusal(text)


def test_duplicate_key_is_refused() -> None:
    assert "'frame' is duplicate" in refusal(VALID.replace('\n...', '\nframe: flange\n...'))


def test_other_robot_is_refused_with_both() -> None:
    other = replace(ROBOT, name='other')
    assert "'other'" in refusal(VALID, other)
    assert "'arm'" in refusal(VALID, other)
    message = refusal(VALID, replace(ROBOT, joint_names=('joint_2', 'joint_1')))
    assert 'joint_2, joint_1' in message
    assert 'joint_1, joint_2' in message
    assert 'robot_name' in message


def test_other_urdf_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        from_yaml(VALID, replace(ROBOT, urdf_sha256='cd' * 32), 'payload.yaml')
    assert 'payload.yaml was identified with another description' in caplog.text
    caplog.clear()
    from_yaml(VALID, ROBOT)
    assert not caplog.records


def test_failed_result_keeps_its_reasons() -> None:
    read = from_yaml(to_yaml(failing()))
    assert read.verdict is Verdict.FAIL
    assert read.reasons == ('The interval is too wide.',)


def test_file_that_is_cut_off_anywhere_is_refused() -> None:
    lines = VALID.splitlines(keepends=True)
    ends = [len(''.join(lines[:count])) for count in range(len(lines))]
    for end in {*ends, *range(0, len(VALID) - 1, 17)}:
        refusal(VALID[:end])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3),
    max_leaves=5,
)


@settings(max_examples=80, deadline=None)
@given(st.data(), VALUES)
def test_any_value_at_any_key_gives_a_result_or_a_refusal(
    data: st.DataObject, value: object
) -> None:
    document = yaml.safe_load(VALID)
    node: Any = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        child = node[key]
        if not isinstance(child, dict | list) or not child or data.draw(st.booleans()):
            node[key] = value
            break
        node = child
    try:
        result = from_yaml(yaml.safe_dump(document, allow_unicode=True, explicit_end=True))
    except FileFormatError:
        return
    assert_equal(from_yaml(to_yaml(result)), result)


def test_example_in_the_documentation_is_a_result() -> None:
    page = (Path(__file__).parents[2] / 'docs' / 'result-file.md').read_text(encoding='utf-8')
    text = page.partition('```yaml\n')[2].partition('```')[0]
    assert from_yaml(text).verdict is Verdict.PASS
    described = {line.split('`')[1].partition('.')[0] for line in page.splitlines()
                 if line.startswith('| `')}
    assert set(yaml.safe_load(text)) - {'validation'} <= described


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / 'results', ROBOT)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_saved_result_is_loaded(store: ResultStore) -> None:
    assert store.load('payload') is None
    path = store.save(example())
    assert path == store.directory / 'payload.yaml'
    loaded = store.load('payload')
    assert loaded is not None
    assert loaded.parameters == example().parameters


def test_every_good_result_stays_in_the_history(store: ResultStore) -> None:
    for source in ('first', 'second', 'third'):
        store.save(replace(example(), source=source))
    history = [from_yaml(path.read_text(encoding='utf-8')).source
               for path in sorted((store.directory / 'history').iterdir())]
    assert history == ['first', 'second', 'third']
    assert names(store.directory) == ['history', 'payload.yaml']


@pytest.mark.parametrize('result', [failing(), replace(example(), validation=())])
def test_result_that_did_not_pass_replaces_nothing(store: ResultStore, result) -> None:
    store.save(example())
    before = store.path('payload').read_bytes()
    path = store.save(result)
    assert path.name == 'payload.failed.yaml'
    assert store.path('payload').read_bytes() == before
    assert len(names(store.directory / 'history')) == 1
    assert from_yaml(path.read_text(encoding='utf-8')).verdict is result.verdict


@pytest.mark.parametrize('call', ['fsync', 'replace'])
def test_stop_in_mid_write_leaves_the_old_file(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store.save(example())
    before = store.path('payload').read_bytes()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*((os, 'fsync') if call == 'fsync' else (Path, 'replace')), stop)
    with pytest.raises(KeyboardInterrupt):
        store.save(replace(example(), source='other'))
    monkeypatch.undo()
    assert store.path('payload').read_bytes() == before
    assert names(store.directory) == ['history', 'payload.yaml']
    assert len(names(store.directory / 'history')) == 1


def test_a_full_or_unwritable_folder_is_noticed_before_anything_is_measured(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(store.directory)
    assert names(store.directory) == []
    (tmp_path / 'file').touch()
    below = ResultStore(tmp_path / 'file' / 'below', ROBOT)
    with pytest.raises(ConfigurationError, match='cannot be written to .*file/below'):
        check_writable(below.directory)
    with pytest.raises(ConfigurationError, match=r'could not be written.*results_dir\.$'):
        below.save(example())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(ConfigurationError, match='No space left on device'):
        check_writable(store.directory)
    with pytest.raises(ConfigurationError, match=r'No space left.*results_dir\.$'):
        store.save(example())


def test_result_of_another_robot_is_neither_saved_nor_loaded(store: ResultStore) -> None:
    other = ResultStore(store.directory, replace(ROBOT, name='other'))
    with pytest.raises(ConfigurationError, match=r"'arm'.*'other'"):
        other.save(example())
    assert not store.directory.exists()
    store.save(example())
    with pytest.raises(FileFormatError, match=r"'other'.*'arm'"):
        other.load('payload')


def test_file_that_someone_put_there_must_pass_and_be_of_its_kind(store: ResultStore) -> None:
    store.save(example())
    store.path('payload').write_text(to_yaml(failing()), encoding='utf-8')
    with pytest.raises(FileFormatError, match=r'verdict\.value'):
        store.load('payload')
    store.path('friction').write_text(to_yaml(example()), encoding='utf-8')
    with pytest.raises(FileFormatError, match="'friction'"):
        store.load('friction')


@pytest.mark.parametrize('content', [b'', b'\xff\xfe', b'schema_version: 1\n'])
def test_spoilt_file_is_a_sentence(store: ResultStore, content: bytes) -> None:
    store.save(example())
    store.path('payload').write_bytes(content)
    with pytest.raises(FileFormatError, match=r'payload\.yaml.*\.$'):
        store.load('payload')


def test_writers_at_the_same_time_lose_nothing(store: ResultStore) -> None:
    def write(writer: int) -> None:
        for i in range(5):
            store.save(replace(example(), source=f'{writer}.{i}'))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        store.load('payload')
    for thread in threads:
        thread.join()
    history = {from_yaml(path.read_text(encoding='utf-8')).source
               for path in (store.directory / 'history').iterdir()}
    assert len(history) == 20
    assert store.load('payload') is not None
    assert names(store.directory) == ['history', 'payload.yaml']


def test_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv('ROS_HOME', str(tmp_path))
    assert default_directory('arm') == tmp_path / 'robocal' / 'arm'
    assert default_directory('../my arm') == tmp_path / 'robocal' / '_my_arm'
    assert default_directory('..') == tmp_path / 'robocal' / 'robot'
    monkeypatch.delenv('ROS_HOME')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert default_directory('arm') == tmp_path / '.ros' / 'robocal' / 'arm'
