# SPDX-License-Identifier: Apache-2.0
"""Launch files as tests evaluate them: through a stand-in for `launch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.launch_stand_in import Context, launched

from robocal_ros import launching

Launch = Callable[..., Context]


def evaluated(
    monkeypatch: pytest.MonkeyPatch, file: str, *, installed: bool = True, **arguments: str
) -> Context:
    """Evaluate a launch file where all packages or no further ones are installed."""
    monkeypatch.setattr(launching, 'is_installed', lambda _: installed)
    return launched(monkeypatch, file, **arguments)


@pytest.fixture
def bringup(monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Evaluates bringup.launch.py with the arguments that differ from the defaults."""
    return partial(evaluated, monkeypatch, 'bringup.launch.py')


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Evaluates replay.launch.py with the arguments that differ from the defaults."""
    return partial(evaluated, monkeypatch, 'replay.launch.py')
