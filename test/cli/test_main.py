# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support.fixtures import Call
from support.result_examples import example, failing

from robocal_ros.cli import console, main as entry, show
from robocal_ros.cli.console import ProgressView
from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, Check
from robocal_ros.results.store import ResultStore

RESULT = str(Path(__file__).parents[1] / 'results' / 'data' / 'payload.yaml')


def test_show_prints_verdict_values_and_residuals(call: Call) -> None:
    text = call('show', RESULT)
    for part in ('Payload, two plane of arm: pass', 'com_z', '12.30', '0.21', 'mm',
                 'Not evaluated: inertia_xx (at rest).', 'torque of joint_2', 'held out'):
        assert part in text


def test_a_check_that_was_not_evaluated_has_no_tick(capsys: pytest.CaptureFixture[str]) -> None:
    show.show_result(replace(example(), checks=(
        Check('a', True, 0.0, 1.0, '1', 'This holds.'),
        Check('b', True, 0.0, 1.0, '1', 'Nothing shows that.', evaluated=False))))
    text = capsys.readouterr().out
    assert '✓ This holds.' in text
    assert '? Nothing shows that.' in text


def test_names_that_look_like_emoji_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str]
) -> None:
    console.print_line('bag:x:1')
    assert capsys.readouterr().out == 'bag:x:1\n'


def test_linear_algebra_has_one_thread_unless_the_user_sets_more() -> None:
    code = 'import os, robocal_ros; print(os.environ["OPENBLAS_NUM_THREADS"])'
    without = {name: value for name, value in os.environ.items()
               if not name.endswith('_NUM_THREADS')}
    for given, expected in (({}, '1'), ({'OPENBLAS_NUM_THREADS': '3'}, '3')):
        done = subprocess.run([sys.executable, '-c', code], env={**without, **given}, check=True,
                              capture_output=True, text=True)
        assert done.stdout.strip() == expected


def store(folder: Path, result: CalibrationResult, **changes: object) -> CalibrationResult:
    changed = replace(result, **changes)
    ResultStore(folder, changed.robot).save(changed)
    return changed


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv('ROS_HOME', str(tmp_path))
    return tmp_path / 'robocal'


def test_a_kind_stands_for_the_stored_results(home: Path, call: Call) -> None:
    assert 'no stored result of this kind' in call('show', 'payload', code=2)
    store(home / 'arm', failing())
    assert 'Payload, two plane of arm: fail' in call('show', 'payload')
    assert 'there are: payload' in call('show', 'friction', code=2)
    store(home / 'arm', example())
    assert 'Payload, two plane of arm: pass' in call('show', 'payload')


def test_report_without_files_is_of_the_whole_arm(home: Path, tmp_path: Path, call: Call) -> None:
    first = store(home / 'arm', example(), kind='friction', method='auto')
    store(home / 'arm', example(), inputs=(first.as_input(),))
    store(home / 'arm', failing(), kind='arm')
    # Replaces what the payload was estimated with.
    store(home / 'arm', example(), kind='friction', method='auto', time=1800000000.0)
    page = tmp_path / 'page.html'
    assert f'Report of 3 results: {page}' in call('report', '-o', page, '--title', 'My arm')
    text = page.read_text(encoding='utf-8')
    assert '<title>My arm</title>' in text
    assert '2 of 3 results passed. Do not use: Arm, two plane. Stale, to be estimated again: ' \
        'Payload, two plane.' in text
    # What others are built on comes first.
    assert text.index('>Arm, two plane<') < text.index('>Friction, auto<') \
        < text.index('>Payload, two plane<')
    assert 'was replaced by auto, live' in text
    assert 'Do not apply these values' in text


def test_a_failed_result_is_reported_until_a_newer_one_passes(home: Path) -> None:
    store(home / 'arm', failing())
    assert [path.name for path in show.stored_files()] == ['payload.failed.yaml']
    store(home / 'arm', example())
    os.utime(home / 'arm' / 'payload.failed.yaml', ns=(1, 1))
    assert [path.name for path in show.stored_files()] == ['payload.yaml']


def test_report_of_several_robots_asks_for_one(home: Path, tmp_path: Path, call: Call) -> None:
    page = tmp_path / 'page.html'
    assert 'No stored results' in call('report', '-o', page, code=2)
    for name in ('left', 'right'):
        store(home / name, example(), robot=replace(example().robot, name=name))
    told = call('report', '-o', page, code=2)
    assert f'{home / "left"}, {home / "right"}' in told
    assert not page.exists()
    call('report', '--results-dir', home / 'left', '-o', page)
    assert '1 result of robot “left”' in page.read_text(encoding='utf-8')
    # A kind stands for all robots, each named in its row.
    call('report', 'payload', '-o', page)
    assert '<th scope="col" class="words">Robot</th>' in page.read_text(encoding='utf-8')
    call('report', 'payload', '--results-dir', home / 'right', '-o', page)
    assert '“left”' not in page.read_text(encoding='utf-8')


def test_a_report_of_files_is_written_into_a_new_folder(call: Call, tmp_path: Path) -> None:
    page = tmp_path / 'new' / 'page.html'
    assert f'Report of 2 results: {page}' in call('report', RESULT, RESULT, '-o', page)
    assert page.read_text(encoding='utf-8').startswith('<!DOCTYPE html>')
    told = call('report', RESULT, '-o', page / 'page.html', code=2)
    assert re.search(r'could not be written.*\.$', told)


@pytest.mark.parametrize(('line', 'expected'), [
    ('robocal report --res', ['--results-dir']),
    ('robocal run com', ['compliance']),
])
def test_the_shell_completes(tmp_path: Path, line: str, expected: list[str]) -> None:
    answer = tmp_path / 'answer'
    subprocess.run(
        [sys.executable, '-m', 'robocal_ros.cli.main'], check=False, timeout=60.0, env={
            **os.environ, '_ARGCOMPLETE': '1', '_ARGCOMPLETE_IFS': ' ', 'COMP_TYPE': '9',
            'COMP_LINE': line, 'COMP_POINT': str(len(line)),
            '_ARGCOMPLETE_STDOUT_FILENAME': str(answer)})
    assert answer.read_text().split() == expected
    # The mark by which argcomplete's global completion finds programs.
    assert 'PYTHON_ARGCOMPLETE_OK' in Path(entry.__file__).read_text(encoding='utf-8')[:1024]


@pytest.mark.parametrize('command', ['show', 'report'])
def test_refusal_is_one_sentence_and_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    missing = tmp_path / 'missing.yaml'
    assert entry.main([command, str(missing)]) == 2
    output = capsys.readouterr()
    assert output.out == ''
    assert output.err.startswith(f'The result file {missing} cannot be read')
    assert output.err.count('\n') == 1


@pytest.mark.parametrize(('error', 'code', 'told'), [
    # Markup is shown as it is.
    (DataError('expected [bold] and [/x].'), 2, 'expected [bold] and [/x].\n'),
    (KeyboardInterrupt(), 130,
     'Interrupted; everything that was started has been ended.\n')])
def test_errors_are_a_sentence_and_a_code(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, told: str
) -> None:
    def end(_: object) -> int:
        raise error

    monkeypatch.setattr(show, 'run', end)
    assert call('show', RESULT, code=code) == told


def test_sigterm_unwinds_as_an_exit(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(show, 'run', lambda _: signal.raise_signal(signal.SIGTERM))
    call('show', RESULT, code=143)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_script_started_in_the_background_is_interrupted_all_the_same(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It inherits that SIGINT is ignored, by which `robocal view` cancels a motion."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr(show, 'run', lambda _: signal.raise_signal(signal.SIGINT))
        call('show', RESULT, code=130)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize('arguments', [[], ['nonsense'], ['show'], ['doctor', '--nonsense']])
def test_wrong_usage_is_code_2(call: Call, arguments: list[str]) -> None:
    assert 'usage: robocal' in call(*arguments, code=2)


@pytest.mark.parametrize('arguments', [
    ['estimate', 'friction', 'bag', '-p', 'speed'], ['estimate', 'friction', 'bag', '-p', ':=1'],
    ['estimate', 'friction', 'bag', '--remap', 'a=b'], ['run', 'payload', '-p', 'method'],
])
def test_an_assignment_has_a_name_and_a_value(call: Call, arguments: list[str]) -> None:
    told = call(*arguments, code=2)
    assert f"'{arguments[-1]}' is not of the form NAME:=VALUE" in told


COMMANDS = ('doctor', 'run', 'record', 'estimate', 'show', 'report', 'apply')


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_has_help(call: Call, command: str) -> None:
    assert f'usage: robocal {command}' in call(command, '--help')


def test_help_imports_neither_ros_nor_the_numerics() -> None:
    program = ('import sys; from robocal_ros.cli.main import build_parser; '
               'build_parser().format_help(); '
               "sys.exit(bool({'rclpy', 'numpy', 'scipy', 'pinocchio'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, '-c', program], check=False).returncode == 0


def test_without_a_terminal_progress_is_a_few_lines() -> None:
    stream = io.StringIO()
    with ProgressView('payload', Console(file=stream, width=80)) as view:
        for step in range(1001):
            view.update(0.1 * step, f'Step {step}.')
    lines = stream.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[0] == '  payload:   0 %, Step 0.'
    assert lines[-1] == '  payload: 100 %, Step 1000.'


def test_the_remaining_time_follows_from_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), 0.0
    monkeypatch.setattr(console.time, 'monotonic', lambda: now)
    with ProgressView('payload', Console(file=stream, width=80)) as view:
        for at, percent in ((0.0, 0.0), (20.0, 20.0), (30.0, 40.0), (300.0, 60.0), (310.0, 1e2)):
            now = at
            view.update(percent, 'Moving.')
    lines = stream.getvalue().splitlines()
    assert [line.partition('%')[2] for line in lines] == [
        ', Moving.', ' (80 s left), Moving.', ' (45 s left), Moving.', ' (3 min left), Moving.',
        ', Moving.']


def test_on_a_terminal_progress_is_a_bar() -> None:
    stream = io.StringIO()
    terminal = Console(file=stream, width=120, force_terminal=True)
    with ProgressView('payload', terminal) as view:
        view.update(50.0, 'Moving.')
    assert ' 50%' in stream.getvalue()
    assert 'Moving.' in stream.getvalue()


def test_short_tasks_without_a_terminal_are_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), 0.0
    monkeypatch.setattr(console.time, 'monotonic', lambda: now)
    with ProgressView('report', Console(file=stream, width=80), quiet=2.0) as view:
        now = 1.9
        view.update(30.0, 'Reading.')
        assert stream.getvalue() == ''
        now = 3.0
        view.update(50.0, 'Reading.')
    assert stream.getvalue().splitlines() == ['  report:  50 % (3 s left), Reading.']
