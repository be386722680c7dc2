# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

from rich.console import Console

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


def test_on_a_terminal_progress_is_a_bar() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=120, force_terminal=True)
    with ProgressView('payload', console) as view:
        view.update(50.0, 'Moving.')
    assert ' 50%' in stream.getvalue()
    assert 'Moving.' in stream.getvalue()
