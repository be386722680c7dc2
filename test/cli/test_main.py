# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from robocal_ros.cli import main as entry
from robocal_ros.cli import show
from robocal_ros.cli.main import main
from robocal_ros.errors import DataError

RESULT = str(Path(__file__).parents[1] / 'results' / 'data' / 'payload.yaml')


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry.ERRORS, '_width', 200)
    monkeypatch.setattr(show.OUT, '_width', 200)


def test_show_prints_verdict_values_and_residuals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['show', RESULT]) == 0
    text = capsys.readouterr().out
    for part in ('Payload, two plane of arm: pass', 'com_z', '12.30', '0.21', 'mm',
                 'Not evaluated: inertia_xx (at rest).', 'torque of joint_2', 'held out'):
        assert part in text


def test_report_writes_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / 'page.html'
    assert main(['report', RESULT, RESULT, '-o', str(page), '--title', 'My arm']) == 0
    assert '<title>My arm</title>' in page.read_text(encoding='utf-8')
    assert str(page) in capsys.readouterr().out


def test_a_kind_stands_for_the_stored_results(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROS_HOME', str(tmp_path))
    assert main(['show', 'payload']) == 2
    assert 'no stored result of this kind' in capsys.readouterr().err
    folder = tmp_path / 'robocal' / 'arm'
    folder.mkdir(parents=True)
    text = Path(RESULT).read_text(encoding='utf-8')
    (folder / 'payload.failed.yaml').write_text(text, encoding='utf-8')
    assert main(['show', 'payload']) == 0
    assert main(['show', 'friction']) == 2
    assert 'there are: payload' in capsys.readouterr().err.replace('\n', ' ')
    (folder / 'payload.yaml').write_text(text, encoding='utf-8')
    assert main(['report', 'payload', '-o', str(tmp_path / 'page.html')]) == 0
    assert (tmp_path / 'page.html').exists()


@pytest.mark.parametrize('command', ['show', 'report'])
def test_refusal_is_one_sentence_and_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    missing = tmp_path / 'missing.yaml'
    assert main([command, str(missing)]) == 2
    output = capsys.readouterr()
    assert output.out == ''
    assert output.err.startswith(f'The result file {missing} cannot be read')
    assert output.err.count('\n') == 1


def test_markup_in_a_refusal_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> int:
        raise DataError('expected [bold] and [/x].')

    monkeypatch.setattr(show, 'run', refuse)
    assert main(['show', RESULT]) == 2
    assert capsys.readouterr().err == 'expected [bold] and [/x].\n'


def test_interrupt_is_code_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, 'run', interrupt)
    assert main(['show', RESULT]) == 130
    assert capsys.readouterr().err.startswith('Interrupted')


def test_sigterm_unwinds_as_an_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(show, 'run', lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as caught:
        main(['show', RESULT])
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize('arguments', [
    [], ['nonsense'], ['show'], ['doctor', '--nonsense'],
])
def test_wrong_usage_is_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert 'usage: robocal' in capsys.readouterr().err


@pytest.mark.parametrize('arguments', [
    ['estimate', 'friction', 'bag', '-p', 'speed'], ['estimate', 'friction', 'bag', '-p', ':=1'],
    ['estimate', 'friction', 'bag', '--remap', 'a=b'], ['run', 'payload', '-p', 'method'],
])
def test_an_assignment_has_a_name_and_a_value(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert f"'{arguments[-1]}' is not of the form NAME:=VALUE" in capsys.readouterr().err


COMMANDS = ('doctor', 'run', 'record', 'estimate', 'show', 'report', 'apply')


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, '--help'])
    assert caught.value.code == 0
    assert f'usage: robocal {command}' in capsys.readouterr().out


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_has_its_module(command: str) -> None:
    assert callable(import_module(f'robocal_ros.cli.{command}').run)


def test_help_imports_neither_ros_nor_the_numerics() -> None:
    program = ('import sys; from robocal_ros.cli.arguments import build_parser; '
               'import robocal_ros.cli.main; build_parser().format_help(); '
               "sys.exit(bool({'rclpy', 'numpy', 'scipy', 'pinocchio'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, '-c', program], check=False).returncode == 0
