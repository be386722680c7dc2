# SPDX-License-Identifier: Apache-2.0
"""Broken and malicious input files: each loads cleanly or is refused with a sentence."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st
from support import bag_examples
from support.result_examples import example

from robocal_ros.cli import import_csv
from robocal_ros.compliance.plan import load_postures
from robocal_ros.errors import ConfigurationError, FileFormatError, ModelError, RobocalError
from robocal_ros.files import load, read_text
from robocal_ros.fleet import find_bags
from robocal_ros.friction.plan import load_trajectory_set
from robocal_ros.messages import JOINT_STATE, Bag
from robocal_ros.offline import read_parameters
from robocal_ros.payload import PayloadParameters
from robocal_ros.results import ResultStore, RobotIdentity, default_directory, from_yaml, to_yaml
from robocal_ros.robot import CollisionChecker, RigidBodyInertia, Robot, read_urdf, with_payload

URDF = (Path(__file__).parent / 'data' / 'two_joint.urdf').read_text()
TOKENS = ('', '\n', ' ', '-', '[', ']', '{', '}', ':', ',', '"', "'", '<', '>', '/', '&a ', '*a',
          '!!python/object:os.system ', '%', '\x00', '\ufeff', 'nan', '.inf', '-1e400', '1e99999',
          '0x7', '9' * 400, '2001-99-99', '~', 'true', '<!--', '&lt;', '../../etc', '\t', '| ')
SMALL = settings(max_examples=40, suppress_health_check=list(HealthCheck))

edits = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 12), st.sampled_from(TOKENS)),
                 min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4), max_leaves=8)


def changed(text: str, changes: list[tuple[float, int, str]]) -> str:
    """Replace some characters at relative places."""
    for place, length, new in changes:
        at = int(place * len(text))
        text = text[:at] + new + text[at + length:]
    return text


def with_value(text: str, place: float, value: object) -> str:
    """Replace one value, anywhere in a YAML document."""
    document = yaml.safe_load(text)
    places: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        for key, item in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(item, dict | list):
                collect(item)

    collect(document)
    node, key = places[min(int(place * len(places)), len(places) - 1)]
    node[key] = value
    return yaml.dump(document, sort_keys=False, explicit_end=True)


def refused_or_read(read: Callable[[], object]) -> None:
    message = '.'
    try:
        read()
    except RobocalError as error:
        message = str(error).strip()
    assert message[-1] in '.?', message


@cache
def two_joints() -> Robot:
    return Robot(URDF, tool_frame='lower')


# File of each kind, and what reads it.
RUNS = '- {joint: shoulder, start: -0.4, goal: 0.4, speed: 0.25, duration: 3.4}\n'
MAP = 'joints: [joint_1]\nposition: [q]\neffort: [tau]\ntime: t\neffort_unit: Nm\n'
PARAMETERS = ('payload_identification:\n  ros__parameters:\n    known_mass: 2.0\n'
              '    method: two_plane\n    gravity: [0.0, 0.0, -9.81]\n    speed_scale: 0.5\n')
YAML_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    'result': (to_yaml(example()), lambda path: from_yaml(read_text(path, 'result'))),
    'postures': ('- [0.1, 0.2]\n- [0.3, 0.4]\n',
                 lambda path: load_postures(str(path), two_joints())),
    'trajectories': (RUNS, lambda path: load_trajectory_set(str(path), two_joints())),
    'columns': (MAP, import_csv.read_map),
    'parameters': (PARAMETERS, lambda path: read_parameters(
        PayloadParameters, 'payload_identification', [path])),
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp('files')


@pytest.mark.parametrize('kind', YAML_FILES)
@SMALL
@given(changes=edits, place=st.floats(0.0, 1.0), value=values)
def test_yaml_files(
    folder: Path, kind: str, changes: list[tuple[float, int, str]], place: float, value: object
) -> None:
    valid, read = YAML_FILES[kind]
    path = folder / f'{kind}.yaml'
    for text in (changed(valid, changes), with_value(valid, place, value)):
        path.write_text(text, encoding='utf-8', errors='replace')
        refused_or_read(lambda: read(path))


@pytest.mark.parametrize('kind', YAML_FILES)
def test_valid_yaml_files_load(folder: Path, kind: str) -> None:
    valid, read = YAML_FILES[kind]
    path = folder / f'{kind}.yaml'
    path.write_text(valid, encoding='utf-8')
    read(path)


@SMALL
@given(st.binary(max_size=200))
def test_binary_files(folder: Path, raw: bytes) -> None:
    path = folder / 'binary.yaml'
    path.write_bytes(raw)
    for _, read in YAML_FILES.values():
        refused_or_read(lambda read=read: read(path))


BOMB = 'a0: &a0 [x, x]\n' + ''.join(
    f'a{n}: &a{n} [{", ".join([f"*a{n - 1}"] * 10)}]\n' for n in range(1, 12))


@pytest.mark.parametrize('text', [
    BOMB, 'a: &a [*a]\n', '[' * 100_000, '{a: ' * 50_000, '- ' * 50_000 + 'x'],
    ids=['expansion', 'cycle', 'lists', 'mappings', 'sequences'])
def test_yaml_that_expands_or_nests_without_end(folder: Path, text: str) -> None:
    with pytest.raises(FileFormatError):
        load(text, 'file')
    with pytest.raises(FileFormatError):
        from_yaml(f'{to_yaml(example())[:-4]}\n{text}\n...\n')


def test_yaml_builds_no_objects() -> None:
    with pytest.raises(FileFormatError):
        load('!!python/object/apply:os.getcwd []', 'file')


def test_files_that_are_too_large_are_not_read(folder: Path) -> None:
    path = folder / 'large.yaml'
    with path.open('wb') as file:
        file.truncate(10**9)
    with pytest.raises(FileFormatError, match=r'1000 MB.* at most'):
        read_text(path, 'result file')


@pytest.mark.parametrize('text', [
    '[' + '[],' * 150_000 + ']', 'a: ' + '1' * 5000, 'a: ' + '1:' * 5000 + '1'],
    ids=['values', 'digits', 'sexagesimal'])
def test_yaml_that_takes_long_is_refused(text: str) -> None:
    with pytest.raises(FileFormatError, match=r'more than \d+ (values|characters)'):
        load(text, 'file')


def in_time(call: Callable[[], object]) -> list[Exception]:
    """Call a function that must end by itself; return what it raised."""
    raised: list[Exception] = []

    def ended() -> None:
        try:
            call()
        except RobocalError as error:
            raised.append(error)

    thread = Thread(target=ended, daemon=True)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive()
    return raised


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_pipe(path: Path) -> None:
    pipe(path.with_name('pipe'))
    path.symlink_to('pipe')


def endless(path: Path) -> None:
    path.symlink_to('/dev/zero')


# What reads each kind of file, by the file's name.
READERS: dict[str, Callable[[Path], object]] = {
    **{f'{kind}.yaml': read for kind, (_, read) in YAML_FILES.items()},
    'arm.urdf': read_urdf,
    'payload.yaml': lambda path: ResultStore(path.parent, example().robot).load('payload'),
    'log.csv': lambda path: import_csv.Table(path, import_csv.ColumnMap((), ())),
    'bag.mcap': Bag,
    'bag.db3': lambda path: find_bags([str(path.parent)]),
    'bags.txt': lambda path: find_bags([str(path)]),
}


@pytest.mark.parametrize('name', READERS)
@pytest.mark.parametrize('make', [pipe, link_to_pipe, endless, Path.mkdir])
def test_only_regular_files_are_opened(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path / name)
    (error,) = in_time(lambda: READERS[name](tmp_path / name))
    assert str(error)[-1] == '.'


def test_bags_beside_a_named_pipe_are_read_or_refused(
    tmp_path: Path, bags: dict[str, bytes]
) -> None:
    (tmp_path / 'bag.mcap').write_bytes(bags['.mcap'])
    pipe(tmp_path / 'metadata.yaml')
    assert not in_time(lambda: Bag(tmp_path).__exit__())
    (tmp_path / 'bag.db3').write_bytes(bags['.db3'])
    pipe(tmp_path / 'bag.db3-journal')
    assert in_time(lambda: Bag(tmp_path / 'bag.db3'))


# -------------------------------------------------------------------------------- URDF


def build(urdf: str) -> None:
    robot = Robot(urdf, tool_frame='lower')
    CollisionChecker(robot.copy())
    body = RigidBodyInertia(1.0, np.zeros(3), np.eye(3))
    with_payload(urdf, body, 'lower')


@SMALL
@given(changes=edits)
def test_urdf(changes: list[tuple[float, int, str]]) -> None:
    refused_or_read(lambda: build(changed(URDF, changes)))


@settings(SMALL, max_examples=100)
@given(st.integers(0, 10**6), st.sampled_from((
    '', 'nan', 'inf', '-1', '1e308', 'x', '0 0', '1 2 3 4', '<', '../../etc/passwd')))
def test_urdf_attributes(place: int, value: str) -> None:
    found = list(re.finditer(r'="([^"]*)"', URDF))
    match = found[place % len(found)]
    refused_or_read(lambda: build(
        URDF[:match.start(1)] + value.replace('<', '&lt;') + URDF[match.end(1):]))


@pytest.mark.parametrize('prolog', [
    '<!DOCTYPE robot [<!ENTITY a "aaaaaaaaaa">' + ''.join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 9)).replace('&a0;', '&a;')
    + ']>',
    '<!DOCTYPE robot [<!ENTITY a SYSTEM "file:///etc/passwd">]>'])
def test_urdf_with_entities_is_refused(prolog: str) -> None:
    body = URDF[URDF.index('<robot'):]
    for urdf in (f'{prolog}{body}', prolog + body.replace('name="', 'name="&a;', 1)):
        for read in (build, lambda text: with_payload(
                text, RigidBodyInertia(1.0, np.zeros(3), np.eye(3)), 'lower')):
            with pytest.raises(ModelError, match=r'DOCTYPE'):
                read(urdf)


def test_urdf_that_nests_without_end() -> None:
    for count in (200, 100_000):
        with pytest.raises(ModelError, match=r'nests more than'):
            build('<robot name="x">' + '<link>' * count + '</link>' * count + '</robot>')


def box(name: str) -> str:
    return (f'<link name="{name}"><collision><geometry><box size="1 1 1"/></geometry></collision>'
            '</link>')


def joint(name: str, parent: str, child: str, kind: str = 'fixed') -> str:
    return (f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>')


@pytest.mark.parametrize(('added', 'problem'), [
    (joint('again', 'lower', 'upper'), "Link 'upper' is the child of two joints"),
    (box('x') + joint('self', 'x', 'x'), "Link 'x' is its own ancestor"),
    (''.join(box(f'x{i}') + joint(f'y{i}', f'x{i}', f'x{(i + 1) % 3}') for i in range(3)),
     'is its own ancestor'),
    (''.join(box(f'x{i}') + joint(f'y{i}', f'x{i - 1}' if i else 'lower', f'x{i}', 'revolute')
             for i in range(400)), 'movable joints; expected at most 150'),
    (''.join(joint(f'y{i}', 'lower', f'x{i}') for i in range(2000)), 'joints; expected at most'),
    (box('x').replace('</link>', '<collision/>' * 2000 + '</link>') + joint('y', 'lower', 'x'),
     'collision shapes; expected at most 1000'),
], ids=['loop', 'itself', 'ring', 'movable', 'joints', 'shapes'])
def test_urdf_that_would_end_the_process(added: str, problem: str) -> None:
    """Pinocchio's parser overflows the stack in a loop, and its model the memory."""
    with pytest.raises(ModelError, match=problem):
        build(URDF.replace('</robot>', f'{added}</robot>'))


@pytest.mark.parametrize('mass', ['nan', 'inf', '4,0', '1e308', 'four'])
def test_urdf_with_a_mass_that_would_be_left_out(mass: str) -> None:
    with pytest.raises(ModelError, match=rf"Link 'upper' .* has value '{mass}' in its inertial"):
        build(URDF.replace('mass value="4.0"', f'mass value="{mass}"'))


def test_urdf_with_a_mesh_that_cannot_be_read(tmp_path: Path) -> None:
    mesh = '<collision><geometry><mesh filename="file://{}"/></geometry></collision></link>'
    with (tmp_path / 'huge.stl').open('wb') as file:
        file.truncate(2**40)
    pipe(tmp_path / 'pipe.stl')
    known = CollisionChecker(Robot(URDF, tool_frame='lower')).missing_meshes
    for name in ('huge.stl', 'pipe.stl'):
        urdf = URDF.replace('</link>', mesh.format(tmp_path / name), 1)
        made: list[CollisionChecker] = []
        assert not in_time(lambda urdf=urdf, made=made: made.append(
            CollisionChecker(Robot(urdf, tool_frame='lower'))))
        assert len(made[0].missing_meshes) == len(known) + 1


def test_urdf_with_links_or_attributes_without_end() -> None:
    links = ''.join(f'<link name="l{i}"/><joint name="j{i}" type="fixed"><parent link="l{i}"/>'
                    f'<child link="l{i + 1}"/></joint>' for i in range(10_000))
    attributes = ' '.join(f'a{i}="1"' for i in range(50_000))
    for text, problem in ((f'{links}<link name="l10000"/>', '10001 links; expected at most 1000'),
                          (f'<link name="l" {attributes}/>', 'attributes of one element')):
        with pytest.raises(ModelError, match=problem):
            build(f'<robot name="x">{text}</robot>')


# ------------------------------------------------------------------------------- paths


@SMALL
@given(st.text(max_size=40) | st.sampled_from(('..', '../..', '/etc', '.', '~root', 'a/../../b')))
def test_no_robot_name_leaves_the_results_folder(name: str) -> None:
    home = default_directory('x').parent
    found = default_directory(name)
    assert found.parent == home
    assert found.name not in ('', '.', '..')
    assert '\x00' not in str(found)


@pytest.mark.parametrize('name', ['../../evil', '/tmp/evil', 'a\x00b', '..'])
def test_results_of_robots_with_such_names_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    result = replace(example(), robot=RobotIdentity(name, '0' * 64, (f'{name}1', f'{name}2')))
    store = ResultStore(tmp_path / 'results', result.robot)
    before = set(tmp_path.parent.rglob('*'))
    store.save(result)
    written = set(tmp_path.parent.rglob('*')) - before
    assert written
    assert all(path.is_relative_to(tmp_path / 'results') for path in written)


def test_a_results_folder_that_must_not_be_read_is_named(tmp_path: Path) -> None:
    result = example()
    folder = tmp_path / 'results'
    store = ResultStore(folder, result.robot)
    store.save(result)
    folder.chmod(0)
    root = os.geteuid() == 0
    if root:
        for item in (*tmp_path.parents, tmp_path):
            item.chmod(item.stat().st_mode | 0o111)
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigurationError, match=r'Permission denied\. Correct'):
            store.load(result.kind)
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
    assert store.load(result.kind) is not None


@pytest.mark.parametrize('kind', ['../payload', '/etc/passwd', 'a.b', '', 'A'])
def test_no_kind_leaves_the_results_folder(tmp_path: Path, kind: str) -> None:
    with pytest.raises(RobocalError, match=r'not a kind of result'):
        ResultStore(tmp_path, example().robot).path(kind)


# -------------------------------------------------------------------------------- bags


@pytest.fixture(scope='module')
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Contents of valid bags by suffix."""
    folder = tmp_path_factory.mktemp('bags')
    names = ['joint_1', 'joint_2']
    messages = [bag_examples.joint_state(0.01 * row, names, [0.0, 0.1], effort=[1.0, 2.0])
                for row in range(50)]
    return {suffix: bag_examples.file_of(bag_examples.write(
        folder / suffix[1:], messages, storage=storage)).read_bytes()
        for suffix, storage in (('.mcap', 'mcap'), ('.db3', 'sqlite3'))}


@pytest.mark.parametrize('suffix', ['.mcap', '.db3'])
@SMALL
@given(changes=st.lists(st.tuples(st.floats(0.0, 1.0), st.binary(max_size=9)), max_size=5),
       length=st.floats(0.0, 1.0) | st.just(1.0))
def test_bags(
    bags: dict[str, bytes], suffix: str, changes: list[tuple[float, bytes]], length: float
) -> None:
    raw = bytearray(bags[suffix])
    for place, new in changes:
        at = int(place * len(raw))
        raw[at:at + len(new)] = new
    with TemporaryDirectory() as folder:
        path = Path(folder) / f'bag{suffix}'
        path.write_bytes(raw[:int(length * len(raw))])

        def read() -> None:
            with Bag(path) as bag:
                topics = [name for name, kind in bag.topics.items() if kind == JOINT_STATE]
                bag.read(dict.fromkeys(topics, len))
                for topic in topics:
                    list(bag.messages(topic))

        refused_or_read(read)


# --------------------------------------------------------------------------------- CSV


CSV = 't,q,tau\n' + ''.join(f'{0.01 * row},{0.1 * row},{row}\n' for row in range(20))


@SMALL
@given(changes=edits, columns=edits)
def test_csv(changes: list[tuple[float, int, str]], columns: list[tuple[float, int, str]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        options = Namespace(file=folder / 'log.csv', columns=folder / 'map.yaml',
                            bag=folder / 'bag')
        for data, text in ((changed(CSV, changes), MAP), (CSV, changed(MAP, columns))):
            options.file.write_text(data, encoding='utf-8', errors='replace')
            options.columns.write_text(text, encoding='utf-8', errors='replace')
            refused_or_read(lambda: import_csv.run(options))
            assert {path.name for path in folder.iterdir()} <= {'log.csv', 'map.yaml', 'bag'}
            for path in (folder / 'bag').rglob('*'):
                path.unlink()
            if (folder / 'bag').exists():
                (folder / 'bag').rmdir()
