# SPDX-License-Identifier: Apache-2.0
"""`robocal report`: result files as one HTML page."""

from __future__ import annotations

import argparse

from robocal_ros.cli.console import OUT
from robocal_ros.cli.show import result_files
from robocal_ros.results.report import write_report
from robocal_ros.results.store import read_result


def run(options: argparse.Namespace) -> int:
    """Write the report.

    Raises:
        FileFormatError: If a file is not a result file.
        ConfigurationError: If a file cannot be read, or the page cannot be written.

    """
    results = [read_result(path) for path in result_files(options.files)]
    write_report(results, options.output, title=options.title)
    OUT.print(f'Report of {len(results)} result(s): {options.output}', soft_wrap=True)
    return 0
