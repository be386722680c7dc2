# SPDX-License-Identifier: Apache-2.0
"""Executables that receive a stop signal while they load, and another one at exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.ros_rig import PATIENCE, ROOT

pytestmark = pytest.mark.usefixtures('ros')

WHILE_LOADING = """
import signal
from robocal_ros.node import executables
executables.import_module = lambda name: signal.raise_signal({number})
executables.leveling()
"""
# A module's objects are deleted after Python has restored the default signal handlers.
WHILE_ENDING = """
import signal
from types import SimpleNamespace
from robocal_ros.node import executables

class Last:
    def __del__(self, ask=signal.raise_signal):
        ask({number})

last = Last()
executables.import_module = lambda name: SimpleNamespace(main=lambda stop_request: {code})
executables.leveling()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, '-c', program], cwd=ROOT, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_while_loading_ends_the_process(number: signal.Signals) -> None:
    done = run(WHILE_LOADING.format(number=int(number)))
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('code', [0, 1])
def test_a_further_signal_at_exit_keeps_the_exit_code(number: signal.Signals, code: int) -> None:
    done = run(WHILE_ENDING.format(number=int(number), code=code))
    assert (done.returncode, done.stdout, done.stderr) == (code, '', '')



def test_a_node_that_ends_reports_no_leaks() -> None:
    """Libraries that find their objects alive at the end of the process print a list of them."""
    done = run("""
import sys
from robocal_ros.leveling import node
from robocal_ros.node.executables import StopRequest

stop_request = StopRequest()
stop_request.received = True
sys.exit(node.main(stop_request))
""")
    assert (done.returncode, done.stdout) == (0, '')
    assert 'leaked' not in done.stderr


def test_a_named_pipe_as_parameter_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / 'leveling.yaml')
    done = subprocess.run(
        [sys.executable, '-c', 'from robocal_ros.node.executables import leveling; leveling()',
         '--ros-args', '--params-file', tmp_path / 'leveling.yaml'],
        cwd=ROOT, capture_output=True, text=True, timeout=60.0, check=False)
    assert done.returncode == 1
    assert 'expected a regular file' in done.stderr
