# SPDX-License-Identifier: Apache-2.0
"""Entry points of the nodes: a process that is asked to end does so without a word, at any time.

A launch file's Ctrl-C reaches all nodes at once, also those that still load their libraries and
those that Python is taking down already.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

NODES = {
    'compliance_calibration': 'robocal_ros.compliance.node',
    'friction_identification': 'robocal_ros.friction.node',
    'leveling': 'robocal_ros.leveling.node',
    'payload_identification': 'robocal_ros.payload.node',
    'wrench_observer': 'robocal_ros.wrench.node',
}
"""Modules of the nodes by the names of their executables."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What takes long to load. A request to end is looked at between two of them: an exception from a
# signal handler in the middle of one would leave it half made, or be swallowed by it.
_LOADED_FIRST = ('numpy', 'rclpy', 'pinocchio')


class Ending:
    """Whether the process is asked to end, by SIGINT or SIGTERM.

    Attributes:
        asked: Whether it is.
        wake: Called when it is asked, for whoever waits.

    """

    def __init__(self) -> None:
        """Take the signals from now on."""
        self.asked = False
        self.wake: Callable[[], None] = lambda: None
        for number in _SIGNALS:
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
        self.wake()


def executable(*modules: str) -> Callable[[], None]:
    """Return an entry point that loads modules and exits with what ``main`` of the last returns.

    Args:
        *modules: What takes long to load, each by itself, then the module with ``main``.

    """
    def main() -> None:
        """Load and run."""
        ending = Ending()
        try:
            for name in modules:
                loaded = import_module(name)
                if ending.asked:
                    return
            sys.exit(loaded.main(ending))
        finally:
            # All is released; a second request must not make that a death by signal.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    return main


compliance_calibration = executable(*_LOADED_FIRST, NODES['compliance_calibration'])
friction_identification = executable(*_LOADED_FIRST, NODES['friction_identification'])
leveling = executable(*_LOADED_FIRST, NODES['leveling'])
payload_identification = executable(*_LOADED_FIRST, NODES['payload_identification'])
wrench_observer = executable(*_LOADED_FIRST, NODES['wrench_observer'])
