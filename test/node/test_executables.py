# SPDX-License-Identifier: Apache-2.0
"""Executables asked to end: while they load, and again while they are being taken down."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures('ros')

ROOT = Path(__file__).resolve().parents[2]
WHILE_LOADING = """
import signal
from robocal_ros.node import executables
executables.import_module = lambda name: signal.raise_signal({number})
executables.leveling()
"""
# What a module holds goes after Python has given up its signal handlers.
WHILE_ENDING = """
import signal
from types import SimpleNamespace
from robocal_ros.node import executables

class Last:
    def __del__(self, ask=signal.raise_signal):
        ask({number})

last = Last()
executables.import_module = lambda name: SimpleNamespace(main=lambda ending: {code})
executables.leveling()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, '-c', program], cwd=ROOT, capture_output=True,
                          text=True, timeout=20.0, check=False)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_asked_to_end_while_loading(number: signal.Signals) -> None:
    done = run(WHILE_LOADING.format(number=int(number)))
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('code', [0, 1])
def test_asked_again_while_ending(number: signal.Signals, code: int) -> None:
    done = run(WHILE_ENDING.format(number=int(number), code=code))
    assert (done.returncode, done.stdout, done.stderr) == (code, '', '')

