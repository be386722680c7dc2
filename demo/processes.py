# SPDX-License-Identifier: Apache-2.0
"""Child processes that never outlive their parent, each with a log of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from robocal_ros.errors import ConfigurationError, RobocalError

_PATIENCE = 8.0
_TAIL_LINES = 15


@dataclass(frozen=True)
class Child:
    """A process that was started.

    Attributes:
        name: Its name, for people.
        process: The process.
        log: Its output.

    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the end of its log."""
        text = self.log.read_text(encoding='utf-8', errors='replace')
        return '\n'.join(text.splitlines()[-lines:])


def processor_time(child: Child) -> float:
    """Return the processor time that a process has taken [s]."""
    stat = Path(f'/proc/{child.process.pid}/stat').read_text(encoding='ascii')
    fields = stat.rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class Children:
    """Processes that end with a ``with`` block, whatever ends it."""

    def __init__(self, log_folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """Make the folder.

        Args:
            log_folder: Folder of the logs.
            environment: Variables on top of this process's own.

        Raises:
            ConfigurationError: If the folder cannot be made.

        """
        self._folder = log_folder
        self._environment = {**os.environ, 'PYTHONUNBUFFERED': '1', **(environment or {})}
        self._children: list[Child] = []
        try:
            log_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f'The folder {log_folder} for logs cannot be made ({error.strerror}). '
                'Name another one.'
            ) from error

    def __enter__(self) -> Children:
        """Do nothing; `start` starts."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process."""
        self.stop()

    def start(self, name: str, command: list[str]) -> Child:
        """Start a process.

        Args:
            name: Its name, and that of its log.
            command: Program and arguments.

        """
        log = self._folder / f'{name}.log'
        with log.open('wb') as output:
            # A session of its own: Ctrl-C reaches this process alone, which then ends its
            # children in order.
            process = subprocess.Popen(
                _ending_with_parent(command), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env=self._environment, start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def start_node(self, module: str, name: str, parameters: Mapping[str, Any]) -> Child:
        """Start a node of this package.

        Args:
            module: Its module, e.g. ``robocal_sim.node``.
            name: Its node name.
            parameters: Its parameters.

        """
        file = self._folder / f'{name}.params.yaml'
        document = {name: {'ros__parameters': dict(parameters)}}
        file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding='utf-8')
        return self.start(name, [
            sys.executable, '-m', module, '--ros-args', '--params-file', str(file.resolve())])

    def check(self) -> None:
        """Refuse to go on when a process has ended by itself.

        Raises:
            RobocalError: With the end of its log.

        """
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                raise RobocalError(
                    f"'{child.name}' ended by itself with exit code {code}; it was expected to "
                    f'run on. The end of its log, {child.log}:\n{child.tail()}'
                )

    def stop(self) -> None:
        """Ask every process to end, newest first, and kill what does not within seconds."""
        while self._children:
            process = self._children.pop().process
            if process.poll() is not None:
                continue
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ending_with_parent(command: list[str]) -> list[str]:
    """Have the kernel end the process should this one be killed, where a tool for that exists."""
    setpriv = shutil.which('setpriv')
    return [setpriv, '--pdeathsig', 'TERM', '--', *command] if setpriv else command
