# SPDX-License-Identifier: Apache-2.0
"""Bags of a fleet: where they are, what they answer, and what is estimated from one."""

from __future__ import annotations

import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.bag_examples import MARKS, file_of, joint_state as state, marks, write
from support.fleet_bags import NAMES, PARAMETERS, URDF, write_runs

from robocal_ros.cli.main import main
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.fleet import task as tasks
from robocal_ros.fleet.bags import Arm, Request, arms_in, find_bags, robot_name
from robocal_ros.fleet.catalogue import BROKEN, ESTIMATED, REFUSED, SKIPPED, Catalogue
from robocal_ros.fleet.task import Task, estimate_bag
from robocal_ros.messages.bag import Bag
from robocal_ros.results.store import read_result


@pytest.fixture(scope='module')
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bag of friction runs."""
    folder = tmp_path_factory.mktemp('hall') / 'arm_1'
    folder.mkdir()
    return write_runs(folder / 'runs')


@pytest.fixture
def asked(tmp_path: Path) -> Request:
    return Request(str(tmp_path / 'out'), overrides=PARAMETERS)


def attempts(request: Request, place: object) -> list[tasks.Attempt]:
    bag, = find_bags([str(place)])
    return estimate_bag(Task(bag, request, request.sha256()))


# ------------------------------------------------------------------------------ search


def test_folders_files_patterns_and_lists_are_searched(tmp_path: Path) -> None:
    for week in ('week_1', 'week_2'):
        (tmp_path / week).mkdir()
    one = write(tmp_path / 'week_1' / 'one', [state(1.0)])
    two = write(tmp_path / 'week_2' / 'two', [state(1.0)], storage='sqlite3')
    bare = tmp_path / 'week_2' / 'bare.mcap'
    shutil.copy(file_of(one), bare)
    (tmp_path / 'week_2' / 'notes.yaml').write_text('')
    everything = sorted([str(bare), str(one), str(two)])

    def found(*places: object) -> list[str]:
        return [bag.uri for bag in find_bags(map(str, places))]

    assert found(tmp_path) == everything
    assert found(tmp_path / 'week_*') == everything
    assert found(tmp_path, one) == everything
    assert found(bare) == [str(bare)]
    assert found(f'file://{one}') == [str(one)]
    (tmp_path / 'list.txt').write_text(f'# bags\n{one}\n\n{bare}\n')
    assert found(tmp_path / 'list.txt') == sorted([str(one), str(bare)])


def test_a_place_without_bags_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / 'nowhere', tmp_path / '*.mcap'):
        with pytest.raises(ConfigurationError, match='No bag in'):
            find_bags([str(place)])
    with pytest.raises(ConfigurationError, match=r"The list .*none.txt' cannot be read"):
        find_bags([str(tmp_path / 'none.txt')])
    with pytest.raises(ConfigurationError, match="'nope://x' cannot be opened: Protocol not"):
        find_bags(['nope://x'])


def test_the_fingerprint_changes_with_the_bag(tmp_path: Path) -> None:
    path = write(tmp_path / 'one', [state(1.0)])
    before, = find_bags([str(path)])
    assert find_bags([str(path)]) == [before]
    os.utime(file_of(path), (1.0, 1.0))
    after, = find_bags([str(path)])
    assert after.fingerprint != before.fingerprint


# ------------------------------------------------------------------------- recognition


def arms(path: Path, **options: object) -> list[Arm]:
    with Bag(path) as bag:
        return arms_in(bag, Request('out', **options))


def test_marks_name_what_a_bag_answers(recorded: Path) -> None:
    assert arms(recorded) == [Arm('', ('friction',), True)]
    assert arms(recorded, capabilities=('payload', 'friction')) == [Arm('', ('friction',), True)]
    assert arms(recorded, capabilities=('payload',)) == [Arm('', (), True)]


@pytest.mark.parametrize(('node', 'name', 'service', 'capability'), [
    ('payload_identification', 'end', 'identify_arm', 'arm'),
    ('payload_identification', 'end', 'calibrate_gains', 'drive_gains'),
    ('compliance_calibration', 'end', 'measure_loaded', 'compliance'),
    ('wrench_observer', 'tared', 'tare', 'wrench'),
])
def test_each_capability_is_recognised_by_its_marks(
    tmp_path: Path, node: str, name: str, service: str, capability: str
) -> None:
    stamps = '1.0 2.0' if name == 'tared' else '2.0'
    bag = write(tmp_path / 'bag', [marks(name, service, joint_states=stamps)],
                topic=f'/left/{node}/marks', kind=MARKS)
    assert arms(bag) == [Arm('/left', (capability,), True)]


def test_a_bag_without_a_complete_run_says_so(tmp_path: Path) -> None:
    unmarked = write(tmp_path / 'unmarked', [state(1.0, NAMES)])
    with pytest.raises(DataError, match=r'holds no marks of a run.*--capability'):
        arms(unmarked)
    assert arms(unmarked, capabilities=('friction',)) == [Arm('', ('friction',), True)]
    begun = write(tmp_path / 'begun', [marks('begin', 'run', joint_states='1.0')],
                  topic='/friction_identification/marks', kind=MARKS)
    with pytest.raises(DataError, match='belong to no complete run'):
        arms(begun)
    other = write(tmp_path / 'other', [marks('x', 'y')], topic='/diagnostics', kind=MARKS)
    with pytest.raises(DataError, match='neither joint states nor marks'):
        arms(other)


@pytest.mark.parametrize(('source', 'name'), [
    ('', ''), ('folder', 'arm_7'), ('namespace', 'left'), ('/(line_[0-9])/', 'line_2')])
def test_a_robot_is_named_by_its_source(source: str, name: str) -> None:
    request = Request('out', robot_from=source)
    for uri in ('s3://hall/line_2/arm_7/bag', 'simplecache::s3://hall/line_2/arm_7/bag'):
        assert robot_name(request, uri, Arm('/left', (), True)) == name
    if source:
        with pytest.raises(DataError, match='yields no name'):
            robot_name(request, 's3://', Arm('', (), True))


@pytest.mark.parametrize(('options', 'words'), [
    ({'robot_from': 'arm'}, '0 groups; expected'), ({'robot_from': '('}, 'no regular expression'),
    ({'urdf': '{robot}.urdf'}, 'depends on the robot'),
    ({'capabilities': ('leveling',)}, 'not a capability'),
])
def test_options_that_cannot_work_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Request('out', **options)


# -------------------------------------------------------------------------- estimation


def test_a_result_is_a_file_and_rows(recorded: Path, asked: Request) -> None:
    done, = attempts(asked, recorded)
    assert (done.outcome, done.robot, done.kind, done.verdict) == (
        ESTIMATED, 'two_joint', 'friction', 'pass')
    written = read_result(Path(asked.output, done.result))
    assert written.parameter('elbow.coulomb_forward').value == pytest.approx(0.5, abs=0.1)
    rows = Catalogue(asked.output).query('SELECT * FROM results ORDER BY parameter')
    assert [row['parameter'] for row in rows] == sorted(item.name for item in written.parameters)
    assert {row['result'] for row in rows} == {done.result}
    assert {row['inputs_sha256'] for row in rows} == {done.inputs_sha256}
    assert {row['bag'] for row in rows} == {str(recorded)}


def test_the_same_inputs_are_estimated_once(
    recorded: Path, asked: Request, tmp_path: Path
) -> None:
    first, = attempts(asked, recorded)
    again, = attempts(asked, recorded)
    copied, = attempts(asked, shutil.copytree(recorded, tmp_path / 'copy' / 'runs'))
    assert [first.verdict, again.verdict, copied.verdict] == ['pass', '', '']
    assert first.result == again.result == copied.result
    changed = replace(asked, overrides=(*PARAMETERS, ('fit_threshold', '0.011')))
    other, = attempts(changed, recorded)
    assert other.verdict == 'fail'
    catalogue = Catalogue(asked.output)
    assert {row['result'] for row in catalogue.query('SELECT result FROM results')} == {
        first.result, other.result}, 'the copy still has the first result'
    assert len(list(Path(asked.output).rglob('*.yaml'))) == 2


def test_another_urdf_parameter_file_or_stored_result_is_another_input(
    recorded: Path, asked: Request, tmp_path: Path
) -> None:
    urdf = tmp_path / 'arm_1.urdf'
    urdf.write_text(URDF.read_text())
    named = replace(asked, robot_from='folder', urdf=str(tmp_path / '{robot}.urdf'))
    first, = attempts(named, recorded)
    assert first.robot == 'arm_1'
    before = named.sha256()
    urdf.write_text(URDF.read_text() + '<!-- changed -->')
    second, = attempts(named, recorded)
    file = tmp_path / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n    fit_threshold: 0.011\n')
    third, = attempts(replace(named, params_files=(str(file),)), recorded)
    stored = tmp_path / 'stored' / 'arm_1'
    stored.mkdir(parents=True)
    (stored / 'drive_gains.yaml').write_text('no result')
    fourth, = attempts(replace(named, results_dir=str(tmp_path / 'stored' / '{robot}')), recorded)
    assert named.sha256() != before
    assert [first.verdict, second.verdict, third.verdict] == ['pass', 'pass', 'fail']
    assert len({item.result for item in (first, second, third)}) == 3
    assert fourth.outcome == REFUSED
    assert 'drive_gains.yaml' in fourth.reason


def test_two_arms_in_one_bag_are_two_robots(tmp_path: Path, asked: Request) -> None:
    left = write_runs(tmp_path / 'left', namespace='/left')
    both = write_runs(tmp_path / 'both', namespace='/right', seed=2)
    shutil.copy(file_of(left), both / 'left.mcap')
    (both / 'metadata.yaml').unlink()
    files = tuple(name for bag in find_bags([str(both)]) for name in bag.files)
    bag = replace(find_bags([str(left)])[0], uri=str(both), files=files)
    done = estimate_bag(Task(bag, asked, 'r'))
    assert [(item.robot, item.outcome) for item in done] == [
        ('two_joint/left', ESTIMATED), ('two_joint/right', ESTIMATED)]
    done = estimate_bag(Task(bag, replace(asked, robot_from='namespace'), 'r'))
    assert [item.robot for item in done] == ['left', 'right']
    done = estimate_bag(Task(bag, replace(asked, namespace='right'), 'r'))
    assert [(item.robot, item.outcome) for item in done] == [('two_joint', ESTIMATED)]


def test_a_bag_in_an_archive_is_copied(recorded: Path, asked: Request, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / 'week.zip', 'w') as archive:
        for path in recorded.iterdir():
            archive.write(path, f'bags/arm_1/{path.name}')
    done, = attempts(replace(asked, robot_from='folder'), f'zip://bags::{tmp_path}/week.zip')
    assert (done.outcome, done.robot) == (ESTIMATED, 'bags')
    assert read_result(Path(asked.output, done.result)).source == 'arm_1'
    row = Catalogue(asked.output).query('SELECT DISTINCT bag FROM results')
    assert row == [{'bag': f'zip://bags/arm_1::{tmp_path}/week.zip'}]


def test_a_bad_bag_is_recorded_with_its_reason(
    recorded: Path, asked: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / 'arm_9' / 'broken.mcap'
    broken.parent.mkdir()
    broken.write_bytes(file_of(recorded).read_bytes()[:1000])
    named = replace(asked, robot_from='folder')
    done, = attempts(named, broken)
    assert (done.outcome, done.robot) == (REFUSED, 'arm_9')
    assert 'broken' in done.reason
    done, = attempts(replace(named, capabilities=('payload',)), recorded)
    assert done.outcome == SKIPPED
    monkeypatch.setattr(tasks, 'make_robot', lambda *_: 1 / 0)
    done, = attempts(named, recorded)
    assert (done.outcome, done.reason) == (BROKEN, 'ZeroDivisionError: division by zero')
    found = Catalogue(asked.output).query('SELECT bag, reason FROM failures ORDER BY bag')
    assert {Path(row['bag']).name for row in found} == {'broken.mcap', 'runs'}


def test_stamps_without_a_date_get_that_of_the_recorder(
    tmp_path: Path, asked: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = write_runs(tmp_path / 'boot', begin=5.0)
    monkeypatch.setattr(Bag, 'end', 1.7e9)
    attempts(asked, bag)
    (row,) = Catalogue(asked.output).query('SELECT DISTINCT epoch(time) AS at FROM results')
    assert row['at'] == 1.7e9


def test_what_has_no_date_is_not_of_1970(
    tmp_path: Path, asked: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts(asked, write_runs(tmp_path / 'boot', begin=5.0))
    for arguments in ['show', asked.output], ['show', asked.output, '--parameter', '*']:
        assert main(['fleet', *arguments]) == 0
    page = tmp_path / 'fleet.html'
    assert main(['fleet', 'dashboard', asked.output, '-o', str(page)]) == 0
    text = page.read_text(encoding='utf-8')
    assert '1970' not in capsys.readouterr().out + text
    assert ' without a date' in text
