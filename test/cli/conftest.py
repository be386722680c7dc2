# SPDX-License-Identifier: Apache-2.0
"""Consoles of the command line as tests read them."""

from __future__ import annotations

import pytest

from robocal_ros.cli import console, main


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no line broken."""
    for screen in (main.ERRORS, console.OUT):
        monkeypatch.setattr(screen, '_width', 400)
