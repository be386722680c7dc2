# SPDX-License-Identifier: Apache-2.0
"""`robocal show`: result files in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path

from robocal_ros.cli.console import OUT

NAME = 'show'
SUMMARY = 'show result files in the terminal'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument('files', nargs='+', type=Path, metavar='RESULT', help='a result file')


def run(options: argparse.Namespace) -> int:
    """Show the files.

    Raises:
        FileFormatError: If one is no result file.

    """
    from robocal_ros.cli.console import show_result
    from robocal_ros.results.store import read_result

    # All are read before the first is shown: a refusal is then not lost among tables.
    for result in [read_result(path) for path in options.files]:
        show_result(OUT, result)
    return 0
