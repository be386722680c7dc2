# SPDX-License-Identifier: Apache-2.0
"""Launch files as tests evaluate them: through a stand-in for `launch`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.launch_stand_in import Context, launched

from robocal_ros import launching

Launch = Callable[..., Context]


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, 'is_installed', lambda _: True)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, 'is_installed', lambda _: False)


@pytest.fixture
def bringup(monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Evaluates bringup.launch.py with the arguments that differ from the defaults."""
    return lambda **arguments: launched(monkeypatch, 'bringup.launch.py', **arguments)


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Evaluates replay.launch.py with the arguments that differ from the defaults."""
    return lambda **arguments: launched(monkeypatch, 'replay.launch.py', **arguments)
