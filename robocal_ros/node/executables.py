# SPDX-License-Identifier: Apache-2.0
"""Entry points of the nodes: the process ends cleanly on SIGINT and SIGTERM at any time.

Ctrl-C in a launch file reaches all nodes at once, also those that are still importing libraries
and those whose interpreter is already shutting down.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from robocal_ros import registry

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Libraries that take long to import. The stop request is checked between two of them: an
# exception raised by a signal handler during an import could leave the module half initialised,
# or be swallowed by it.
_LOADED_FIRST = ('numpy', 'rclpy', 'pinocchio')


class StopRequest:
    """Stop request to the process, by SIGINT or SIGTERM.

    Attributes:
        received: True once a signal was received.
        wake: Called on a signal, to wake a waiting executor.

    """

    def __init__(self) -> None:
        """Install the signal handlers."""
        self.received = False
        self.wake: Callable[[], None] = lambda: None
        for number in _SIGNALS:
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: Any) -> None:
        self.received = True
        self.wake()


def executable(*modules: str) -> Callable[[], None]:
    """Return an entry point that imports modules and exits with the code of the last's ``main``.

    Args:
        *modules: Libraries that take long to import, then the module with ``main``.

    """
    def main() -> None:
        """Import the modules and run the node."""
        stop_request = StopRequest()
        try:
            for name in modules:
                loaded = import_module(name)
                if stop_request.received:
                    return
            sys.exit(loaded.main(stop_request))
        finally:
            # Everything is released; a further signal must not change the exit code.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    return main


def __getattr__(name: str) -> Callable[[], None]:
    """Return the entry point of a capability's node."""
    if name not in registry.nodes():
        raise AttributeError(f'There is no node {name}.')
    return executable(*_LOADED_FIRST, registry.nodes()[name])
