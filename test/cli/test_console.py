# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest
from rich.console import Console

from robocal_ros.cli import console
from robocal_ros.cli.console import ProgressView


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
