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


def _executable(name: str) -> Callable[[], None]:
    def main() -> None:
        """Load the node and run it."""
        for number in _SIGNALS:
            signal.signal(number, _leave)
        try:
            sys.exit(import_module(f'robocal_ros.nodes.{name}').main())
        finally:
            # All is let go; a second request must not make that a death by signal.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    return main


compliance_calibration = _executable('compliance_calibration')
friction_identification = _executable('friction_identification')
leveling = _executable('leveling')
payload_identification = _executable('payload_identification')
sim_arm = _executable('sim_arm')
wrench_observer = _executable('wrench_observer')
