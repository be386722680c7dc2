# SPDX-License-Identifier: Apache-2.0
"""`robocal report`: result files, or all stored results of an arm, as one HTML page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from robocal_ros.cli.console import OUT, QUIET, ProgressView
from robocal_ros.cli.next_steps import next_steps
from robocal_ros.cli.show import compared, current_results, result_files, stored_files
from robocal_ros.files import write_output
from robocal_ros.results import Advice, Panel, Verdict, read_result, report_html, stale_inputs
from robocal_ros.robot import read_urdf


def run(options: argparse.Namespace) -> int:
    """Write the report.

    Raises:
        FileFormatError: If a file is not a result file.
        ConfigurationError: If a file cannot be read, the stored results are those of several
            robots, or the page cannot be written.

    """
    files = (result_files(options.files, options.results_dir) if options.files
             else stored_files(options.results_dir))
    write_report(files, options.urdf, options.output, options.title,
                 [compared(files)] if options.compare else ())
    return 0


def write_report(
    files: Sequence[Path], urdf_file: Path | None, output: Path, title: str,
    panels: Sequence[Panel] = (),
) -> None:
    """Write the report of result files.

    Args:
        files: The files.
        urdf_file: URDF of the robot, None if it is not known.
        output: The page.
        title: Its title.
        panels: Further sections.

    """
    urdf = None if urdf_file is None else (urdf_file, read_urdf(urdf_file))
    results, advice = [], []
    with ProgressView('report', quiet=QUIET) as view:
        for i, path in enumerate(files):
            view.update(100.0 * i / (len(files) + 1), path.name)
            result = read_result(path)
            load = current_results(result, path)
            stale = (stale_inputs(result, load)
                     if load is not None and result.verdict is Verdict.PASS else ())
            results.append(result)
            advice.append(Advice(next_steps(result, path, bool(stale), urdf), stale))
        view.update(100.0 * len(files) / (len(files) + 1), 'writing')
        write_output(output, report_html(
            results, title=title, panels=panels, advice=advice), 'report')
    OUT.print(f'Report of {len(results)} result(s): {output}', soft_wrap=True)
