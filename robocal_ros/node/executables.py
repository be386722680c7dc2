# SPDX-License-Identifier: Apache-2.0
"""Entry points of the nodes: whoever is asked to end ends without a word, at any time.

A launch file's Ctrl-C reaches all nodes at once, also those that still load their libraries and
those that are being taken down by Python, where nobody heeds signals any more.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _leave(number: int, frame: Any) -> NoReturn:
    os._exit(0)


NODES = {
    'compliance_calibration': 'robocal_ros.compliance.node',
    'friction_identification': 'robocal_ros.friction.node',
    'leveling': 'robocal_ros.leveling.node',
    'payload_identification': 'robocal_ros.payload.node',
    'wrench_observer': 'robocal_ros.wrench.node',
}
"""Modules of the nodes by the names of their executables."""


def executable(module: str) -> Callable[[], None]:
    """Return an entry point that loads a node's module and runs its ``main``."""
    def main() -> None:
        """Load the node and run it."""
        for number in _SIGNALS:
            signal.signal(number, _leave)
        try:
            sys.exit(import_module(module).main())
        finally:
            # All is let go; a second request must not make that a death by signal.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    return main


compliance_calibration = executable(NODES['compliance_calibration'])
friction_identification = executable(NODES['friction_identification'])
leveling = executable(NODES['leveling'])
payload_identification = executable(NODES['payload_identification'])
wrench_observer = executable(NODES['wrench_observer'])
