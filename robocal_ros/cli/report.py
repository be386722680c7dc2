# SPDX-License-Identifier: Apache-2.0
"""`robocal report`: result files, or all stored results of an arm, as one HTML page.

It says what to do with each result: the commands that apply it, or that resolve why it did not
pass.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from robocal_ros import registry
from robocal_ros.cli.apply import driver_load, urdf_with
from robocal_ros.cli.console import OUT, QUIET, ProgressView
from robocal_ros.cli.drivers import payload_calls, recognised
from robocal_ros.cli.show import compared, current_results, result_files, stored_files
from robocal_ros.errors import RobocalError
from robocal_ros.files import write_output
from robocal_ros.results import (
    Advice,
    CalibrationResult,
    Panel,
    Step,
    Verdict,
    plural,
    read_result,
    report_html,
    stale_inputs,
)
from robocal_ros.robot import ARM, DRIVE_GAINS, carried_load, formatted, identity_of, read_urdf

REMEDIES = (
    (r'set estimate_gravity|base tilted by',
     'The base leans: estimate the direction of gravity too.',
     'robocal run payload --configure -p method:=static_poses -p estimate_gravity:=true'),
    (r"calibrate the drive gains|drive gains are identified|best drive gain|links that weigh|"
     r"Nothing shows that the arm's own model holds|gravity by the model and by averaging",
     'Links and drive gains of this arm are not known well enough. The guided calibration finds '
     'the cheapest steps to them; weigh the tool before.',
     'robocal calibrate --for gravity'),
    (r'are not explained \(limit',
     'Identify friction at operating temperature; the reason above names the likely cause. Do not '
     'raise the limit to obtain a pass.',
     'robocal run friction'),
    (r'the mass of the load, and that it was mounted between the sets',
     'Measure both sets again, the first one without the load.',
     'ros2 service call /compliance_calibration/measure_unloaded std_srvs/srv/Trigger'),
    (r'The rests remove',
     'Move the arm to a further posture, and rest there.',
     'robocal run torque_zero'),
    (r'The \w+ bias of',
     'Let the sensor warm up, then tare at rest and without contact.',
     'robocal run wrench'),
)
"""Patterns of the reasons of checks, what to do, and the command: docs/troubleshooting.md."""

_CONTEXT = 2


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
    OUT.print(f'Report of {plural(len(results), "result")}: {output}', soft_wrap=True)


# ----------------------------------------------------------------------- next steps


def next_steps(
    result: CalibrationResult, path: Path, stale: bool = False,
    urdf: tuple[Path, str] | None = None,
) -> tuple[Step, ...]:
    """Return what to do with a result, in order.

    Args:
        result: The result.
        path: Its file.
        stale: Whether an input of it is no longer current.
        urdf: File and text of the robot's URDF, if they are known.

    """
    if result.verdict is not Verdict.PASS:
        return (*_remedies(result, path), Step(
            'Then measure again, or estimate again from the recording if that suffices.',
            _again(result.kind, result.source, path)))
    if stale:
        return (Step('Do not apply these values: estimate them again, with the current inputs.',
                     _again(result.kind, result.source, path)),)
    procedure = registry.of_kind(result.kind)
    if procedure is not None and procedure.urdf:
        calls = _driver(result, urdf) if result.kind == 'payload' else ()
        return (*calls, _urdf(result, path, procedure.urdf, urdf))
    text, command = registry.Procedure.then if procedure is None else procedure.then
    # After drive gains for which an identified arm was used.
    again = [Step(
        'Identify the arm again, unless that was done since: links that were identified before '
        'these gains are not used.', _again(ARM, item.name.partition(', ')[2], path))
        for item in result.inputs
        if result.kind == DRIVE_GAINS and item.kind == ARM and item.sha256]
    return (*again, Step(text, (('', command),) if command else ()))


def _remedies(result: CalibrationResult, path: Path) -> list[Step]:
    reasons = ' '.join(result.reasons)
    found = [Step(text, (('', command),)) for pattern, text, command in REMEDIES
             if re.search(pattern, reasons)]
    for item in result.inputs:
        kind = item.kind.replace('_', ' ')
        if f'The {kind} result is stale.' in reasons:
            # The name of an input is its method and its source.
            found.append(Step(f'Renew the {kind} result, which is stale.',
                              _again(item.kind, item.name.partition(', ')[2], path)))
    return found or [Step('Remove the cause that the reason above names; '
                          'docs/troubleshooting.md explains it.')]


def _again(kind: str, source: str, path: Path) -> tuple[tuple[str, str], ...]:
    """Return the commands that repeat a result, from its bag or on the robot.

    Args:
        kind: Its kind.
        source: Its source, ``live`` or the name of a bag.
        path: Its file, or one in the same results folder.

    """
    procedure, commands = registry.of_kind(kind), []
    if procedure is None or not procedure.verb:
        return ()
    if source not in ('', 'live') and procedure.estimator:
        stored = ['--results-dir', str(path.parent)] if (path.parent / 'history').is_dir() else []
        commands.append(('from its bag, with the parameters used before',
                         shlex.join(['robocal', 'estimate', procedure.name, source, *stored])))
    return (*commands, ('on the robot', f'robocal run {procedure.name}'))


def _driver(result: CalibrationResult, urdf: tuple[Path, str] | None) -> tuple[Step, ...]:
    """Return the step that sets a payload in the robot's driver."""
    text = '' if urdf is None else urdf[1]
    known = recognised(joints=result.robot.joint_names, urdf=text)
    frame, condition = result.frame, ''
    if known is None:
        condition = (" if that is the driver's flange; robocal apply --frame gives the values in "
                     'another')
    elif not re.fullmatch(known.driver.tool_frame, frame):
        frame = known.tool_frame
        if urdf is None:
            return (Step(f"Set the payload in the driver. It needs the values in '{frame}', "
                         f"and these are in '{result.frame}': write this report again with "
                         '--urdf.'),)
    try:
        total, mounted = (carried_load(result), 0.0) if urdf is None else driver_load(
            result, text, frame)
    except RobocalError as error:
        return (Step(f'The values for the driver could not be computed: {error}'),)
    amount = (
        'If the URDF has masses distal to this frame, such as a gripper, the driver needs the '
        'sum: write this report with --urdf, which adds them.' if urdf is None else
        f'It includes {mounted:.4g} kg that the URDF has there.' if mounted else
        'The URDF has no further mass there.')
    inertia = '' if total.inertia.any() else ' The inertia was not identified.'
    return (Step(
        f"Set the payload in the driver, in frame '{frame}'{condition}. {amount}{inertia} Set the "
        'payload of the driver to zero again before the next identification.',
        payload_calls(total, known.driver if known else None)),)


def _urdf(
    result: CalibrationResult, path: Path, suffix: str, urdf: tuple[Path, str] | None
) -> Step:
    """Return the step that writes a result into the URDF."""
    given = Path('my_arm.urdf') if urdf is None else urdf[0]
    out = given.with_name(f'{given.stem}_{suffix}.urdf')
    command = shlex.join(['robocal', 'apply', str(path), '--urdf', str(given), '--out', str(out)])
    text = 'Write the values into the URDF, for simulation and planning.'
    changes = ''
    if urdf is None:
        text += ' Replace my_arm.urdf by the file of your robot.'
    else:
        try:
            # Apart from the layout.
            changes = '\n'.join(difflib.unified_diff(
                formatted(urdf[1]).splitlines(), urdf_with(result, urdf[1]).splitlines(),
                given.name, out.name, lineterm='', n=_CONTEXT))
        except RobocalError as error:
            return Step(f'The values do not fit {given}: {error}')
        if not identity_of(urdf[1]).is_described_as(result.robot):
            text += (' This URDF differs from the one that the result was identified with: check '
                     'that links, frames and masses are the same.')
    return Step(text, (('', command),), changes)
