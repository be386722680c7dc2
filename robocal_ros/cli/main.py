# SPDX-License-Identifier: Apache-2.0
# PYTHON_ARGCOMPLETE_OK
"""`robocal`: entry point, errors and interrupts."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

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
        Exit code: 0 success, 1 verdict or check failed, 2 error, 130 interrupted.

    """
    return run(build_parser(), arguments)


def run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Parse and run a command line; exit codes as for ``main``.

    Args:
        parser: Parser whose options contain the function to call as ``run``.
        arguments: Command line without the program's name; the process's by default.

    """
    if '_ARGCOMPLETE' in os.environ:
        # A request of the shell. It is part of ROS distributions: ros2's own command line uses it.
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    options = parser.parse_args(arguments)
    # SIGTERM unwinds the stack, so that child processes end too.
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return options.run(options)
    except RobocalError as error:
        ERRORS.print(Text(str(error), style='bold red'), soft_wrap=True)
        return REFUSED
    except KeyboardInterrupt:
        ERRORS.print('Interrupted; everything that was started has been ended.')
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == '__main__':
    sys.exit(main())
