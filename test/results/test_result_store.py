# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from support.result_examples import ROBOT, example, failing

from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.results.result import RobotIdentity
from robocal_ros.results.store import ResultStore, default_directory, from_yaml, to_yaml


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / 'results', ROBOT)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_there_at_first(store: ResultStore) -> None:
    assert store.load('payload') is None


def test_saved_result_is_loaded(store: ResultStore) -> None:
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


def test_full_disk_is_a_sentence(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(ConfigurationError, match=r'No space left.*results_dir\.$'):
        store.save(example())


def test_a_full_or_unwritable_folder_is_noticed_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResultStore(tmp_path / 'new', ROBOT)
    store.check_writable()
    assert list((tmp_path / 'new').iterdir()) == []
    (tmp_path / 'file').touch()
    with pytest.raises(ConfigurationError, match='cannot be written to .*file/below'):
        ResultStore(tmp_path / 'file' / 'below', ROBOT).check_writable()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(ConfigurationError, match='No space left on device'):
        store.check_writable()


def test_unwritable_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / 'file').write_text('not a folder')
    with pytest.raises(ConfigurationError, match=r'could not be written.*results_dir\.$'):
        ResultStore(tmp_path / 'file' / 'results', ROBOT).save(example())


def test_result_of_another_robot_is_not_saved(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, RobotIdentity('other', '', ROBOT.joint_names))
    with pytest.raises(ConfigurationError, match=r"'arm'.*'other'"):
        store.save(example())
    assert not names(tmp_path)


def test_file_of_another_robot_is_not_loaded(store: ResultStore) -> None:
    store.save(example())
    other = ResultStore(store.directory, replace(ROBOT, name='other'))
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
