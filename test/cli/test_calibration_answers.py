# SPDX-License-Identifier: Apache-2.0
"""Questions of `robocal calibrate`, and their file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from robocal_ros.cli import calibration_answers
from robocal_ros.cli.calibration_answers import Answers, as_parameters, asked, confirmed
from robocal_ros.errors import ConfigurationError, FileFormatError


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what types lines at the terminal."""
    def typing(text: str) -> None:
        monkeypatch.setattr('sys.stdin', io.StringIO(text))
        monkeypatch.setattr(calibration_answers.sys.stdin, 'isatty', lambda: True, raising=False)

    return typing


def test_a_weighed_tool(typing: Callable[[str], None], capsys) -> None:
    typing('gripper\ny\n2,0\n2.0\n0.005\nmaybe\ny\ngravity, sailing\ngravity contact\n50\n'
           '-0.02\n0.1 0.1 0.2\n')
    found = asked('base_link', ())
    assert found == Answers('gripper', True, 2.0, 0.005, True, ['gravity', 'contact'], 0.5, -0.02,
                            [0.1, 0.1, 0.2])
    told = capsys.readouterr().out
    assert "Purpose 'sailing' is not known" in told
    assert "Height of floor or table in 'base_link'" in told
    # At most five questions, one of which may have parts.
    assert [mark for mark in '123456' if f'{mark}. ' in told] == list('12345')


def test_an_arm_without_a_tool(typing: Callable[[str], None]) -> None:
    typing('\n100\n\n\n')
    found = asked('world', ['friction'])
    assert (found.tool, found.mounted, found.floor) == ('', False, -1000.0)
    assert found.purposes == ['friction']


def test_a_file_of_answers_comes_back(tmp_path: Path) -> None:
    answers = Answers('gripper', False, 1.5, done=['a reference run'])
    answers.write(tmp_path / 'answers.yaml')
    assert Answers.read(tmp_path / 'answers.yaml') == answers


@pytest.mark.parametrize(('text', 'error', 'words'), [
    ('speed: 2.0', ConfigurationError, 'speed is 2.0'),
    ('purposes: [swim]', ConfigurationError, "Purpose 'swim' is not known"),
    ('mass: heavy', FileFormatError, 'mass'), ('tool_box: [1.0]', ConfigurationError, 'tool_box'),
    ('colour: red', FileFormatError, 'colour'),
])
def test_answers_that_cannot_be_used(
    tmp_path: Path, text: str, error: type[Exception], words: str
) -> None:
    (tmp_path / 'answers.yaml').write_text(text)
    with pytest.raises(error, match=words):
        Answers.read(tmp_path / 'answers.yaml')


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.stdin', io.StringIO('y\n'))
    with pytest.raises(ConfigurationError, match='--yes FILE'):
        confirmed('Begin?')


def test_the_end_of_input_interrupts(typing: Callable[[str], None]) -> None:
    typing('')
    with pytest.raises(KeyboardInterrupt):
        confirmed('Begin?')


def test_what_was_not_answered_leaves_the_protection_of_the_nodes() -> None:
    assert as_parameters(Answers('gripper')) == {'tool': 'gripper'}
    assert as_parameters(Answers(speed=0.3, floor=-0.1, tool_box=[0.1, 0.1, 0.2])) == {
        'tool': '', 'speed_scale': 0.3, 'floor': -0.1, 'tool_box': [0.1, 0.1, 0.2]}
