# SPDX-License-Identifier: Apache-2.0
"""`robocal report`: result files as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from robocal_ros.cli.console import OUT

NAME = 'report'
SUMMARY = 'write an HTML report of result files, with plots'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument('files', nargs='+', type=Path, metavar='RESULT', help='a result file')
    parser.add_argument('-o', '--output', type=Path, default=Path('report.html'),
                        help='the page (default: %(default)s)')
    parser.add_argument('--title', default='Calibration report', help='its title')


def run(options: argparse.Namespace) -> int:
    """Write the report.

    Raises:
        FileFormatError: If a file is no result file.
        ConfigurationError: If the page cannot be written.

    """
    from robocal_ros.results.report import write_report
    from robocal_ros.results.store import read_result

    results = [read_result(path) for path in options.files]
    write_report(results, options.output, title=options.title)
    OUT.print(f'Report of {len(results)} result(s): {options.output}', soft_wrap=True)
    return 0
