# SPDX-License-Identifier: Apache-2.0
"""`robocal`: the entry, and what becomes of errors and interrupts."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from rich.text import Text

from robocal_ros.cli.arguments import build_parser
from robocal_ros.cli.console import ERRORS
from robocal_ros.errors import RobocalError

REFUSED = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Args:
        arguments: Command line without the program's name; the process's by default.

    Returns:
        Exit code: 0 good, 1 a verdict that is not, 2 a refusal, 130 interrupted.

    """
    return run(build_parser(), arguments)


def run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Parse a command line and carry it out; exit codes as of ``main``.

    Args:
        parser: Its options hold the function to call as ``run``.
        arguments: Command line without the program's name; the process's by default.

    """
    _complete(parser)
    options = parser.parse_args(arguments)
    try:
        with _ending_on_sigterm():
            code: int = options.run(options)
    except RobocalError as error:
        ERRORS.print(Text(str(error), style='bold red'), soft_wrap=True)
        return REFUSED
    except KeyboardInterrupt:
        ERRORS.print('Interrupted; everything that was started has been ended.')
        return INTERRUPTED
    return code


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell that completes a command line, if it is one that called.

    argcomplete is what ros2's own command line uses, so a distribution has it.
    """
    if '_ARGCOMPLETE' not in os.environ:
        return
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(parser)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the program, so that children end with it."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == '__main__':
    sys.exit(main())
