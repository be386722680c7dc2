# SPDX-License-Identifier: Apache-2.0
"""Child processes that never outlive their parent, each with its own log file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from robocal_ros.errors import ConfigurationError, RobocalError

_PATIENCE = 8.0
_TAIL_LINES = 15


@dataclass(frozen=True)
class Child:
    """A started process.

    Attributes:
        name: Display name.
        process: The process.
        log: File with its standard output and error.

    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        text = self.log.read_text(encoding='utf-8', errors='replace')
        return '\n'.join(text.splitlines()[-lines:])


def processor_time(child: Child) -> float:
    """Return the CPU time that a process has used [s]."""
    stat = Path(f'/proc/{child.process.pid}/stat').read_text(encoding='ascii')
    fields = stat.rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class Children(AbstractContextManager['Children']):
    """Context manager that ends its processes on exit, also after an exception."""

    def __init__(self, log_folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """Create the log folder.

        Args:
            log_folder: Folder for the log files, and in it one for those of ROS.
            environment: Environment variables to add to this process's own.

        Raises:
            ConfigurationError: The folder cannot be created.

        """
        self._folder = log_folder
        self._environment = {
            **os.environ, 'PYTHONUNBUFFERED': '1',
            'ROS_LOG_DIR': str((log_folder / 'ros').resolve()), **(environment or {})}
        self._children: list[Child] = []
        try:
            log_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f'The log folder {log_folder} cannot be created ({error.strerror}). '
                'Choose another one.'
            ) from error

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        self.stop()

    def start(self, name: str, command: list[str]) -> Child:
        """Start a process.

        Args:
            name: Display name, also of the log file.
            command: Program and arguments.

        """
        log = self._folder / f'{name}.log'
        with log.open('wb') as output:
            # A separate session: Ctrl-C reaches this process alone, which then ends its
            # children in order.
            process = subprocess.Popen(
                _ending_with_parent(command), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env=self._environment, start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def start_node(self, module: str, name: str, parameters: Mapping[str, Any]) -> Child:
        """Start a node of this repository.

        Args:
            module: Module to run, e.g. ``robocal_sim.node``.
            name: Node name.
            parameters: Parameter values; written to a file beside the log.

        """
        file = self._folder / f'{name}.params.yaml'
        document = {name: {'ros__parameters': dict(parameters)}}
        file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding='utf-8')
        return self.start(name, [
            sys.executable, '-m', module, '--ros-args', '--params-file', str(file.resolve())])

    def complete(self, name: str, command: list[str], timeout: float) -> None:
        """Run a process to its end; arguments as for ``start``.

        Raises:
            RobocalError: It fails, or does not end within the timeout [s]; the message has the end
                of its log.

        """
        child = self.start(name, command)
        try:
            code: object = child.process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = f'none after {timeout:.0f} s'
        if code != 0:
            raise RobocalError(f"'{name}' failed (exit code {code}). The end of its log, "
                               f'{child.log}:\n{child.tail()}')
        self._children.remove(child)

    def check(self) -> None:
        """Check that all processes are still running.

        Raises:
            RobocalError: A process has exited; the message has the end of its log.

        """
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                raise RobocalError(
                    f"'{child.name}' exited unexpectedly with code {code}. The end of its log, "
                    f'{child.log}:\n{child.tail()}'
                )

    def stop(self) -> None:
        """Send SIGINT to every process, newest first; kill those that ignore it for 8 s."""
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
    """Wrap a command so that the kernel ends it with this process, if setpriv is installed."""
    setpriv = shutil.which('setpriv')
    return [setpriv, '--pdeathsig', 'TERM', '--', *command] if setpriv else command
