# SPDX-License-Identifier: Apache-2.0
"""Nodes in processes that are forked from one that has imported them: they start at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from robocal_ros import registry

_SERVER = get_context('forkserver')
_SERVER.set_forkserver_preload([
    *registry.nodes().values(), 'robocal_sim.node', 'robocal_ros.robot.collision'])


def _run(
    module: str, arguments: Sequence[str], log: Path, opened: Path | None, folder: Path,
    environment: dict[str, str],
) -> None:
    """Run the ``main`` of a module, and list every file that it opens."""
    with log.open('a') as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(folder)
    os.environ.update(environment)
    if opened is not None:
        listing = opened.open('w', buffering=1)

        def note(event: str, values: tuple[object, ...]) -> None:
            if event == 'open':
                listing.write(f'{values[0]}\n')

        sys.addaudithook(note)
    if not module.startswith('robocal_sim'):
        # A node that imports the simulation shows by the files that it opens.
        for name in [name for name in sys.modules if name.startswith('robocal_sim')]:
            del sys.modules[name]
    sys.argv = [module, *arguments]
    sys.exit(import_module(module).main())


class Forked:
    """Process of a node, with the methods of Popen."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, opened: Path | None, folder: Path
    ) -> None:
        log.write_text('')
        self._process = _SERVER.Process(
            target=_run, daemon=True,
            args=(module, arguments, log, opened, folder, dict(os.environ)))
        self._process.start()
        self.terminate, self.kill = self._process.terminate, self._process.kill

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)
