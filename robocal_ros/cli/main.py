# SPDX-License-Identifier: Apache-2.0
# PYTHON_ARGCOMPLETE_OK
"""`robocal`: all subcommands with their arguments, errors and interrupts.

Nothing here imports ROS or numerical libraries, so that `--help` and shell completion are fast; a
subcommand's module is imported when it is run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any

from robocal_ros import __version__, registry
from robocal_ros.cli.console import ERRORS, print_line
from robocal_ros.errors import RobocalError

REFUSED = 2
INTERRUPTED = 130

_Add = Callable[..., Any]
_RESULT = 'a result file, or a kind, such as payload, for the stored results of all robots'


def _assignment(text: str) -> tuple[str, str]:
    """Parse ``NAME:=VALUE``."""
    name, sign, value = text.partition(':=')
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME:=VALUE")
    return name.strip(), value


def positive(text: str) -> int:
    """Parse a number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f'expected a number of at least 1, got {value}')
    return value


# What several commands share.
_NAMESPACE: dict[str, Any] = {'default': '', 'metavar': 'NS', 'help': "the robot's namespace"}
_FILE: dict[str, Any] = {'type': Path, 'metavar': 'FILE'}
_FOLDER: dict[str, Any] = {'type': Path, 'metavar': 'FOLDER'}
_REPEATED: dict[str, Any] = {'action': 'append', 'default': []}
_ASSIGNMENTS: dict[str, Any] = {**_REPEATED, 'type': _assignment}
_ROBOT: dict[str, Any] = {'default': '*', 'metavar': 'NAME',
                          'help': 'only robots of this name, in which * stands for anything'}
_TIMEOUT: dict[str, Any] = {'type': float, 'default': 10.0, 'metavar': 'SECONDS'}


def _looks(add: _Add) -> None:
    """Add the options of commands that look at a robot."""
    add('--namespace', **_NAMESPACE)
    add('--tool-frame', default='', metavar='FRAME', help='frame at the end of the arm (default: '
        'that of the recognised driver, or tool0)')
    add('--controller', default='', metavar='NAME', help='the joint trajectory controller '
        '(default: that of the recognised driver, or joint_trajectory_controller)')
    add('--joint-states', default='joint_states', metavar='TOPIC',
        help='topic of the joint states (default: %(default)s)')
    add('--duration', type=float, default=3.0, metavar='SECONDS',
        help='least duration of the check (default: %(default)s)')


def _doctor(add: _Add) -> None:
    """Check machine and robot, and report what is missing and how to fix it."""
    _looks(add)
    add('--machine', action='store_true', help='check the machine only, without a robot')


def _calibrate(add: _Add) -> None:
    """From a new arm to the numbers for its driver: look, ask, plan, run.

    Looks at the robot, asks at most five questions, shows a plan with the reason of each step, and
    carries it out. The plan is the cheapest one from what is there and what is already known to
    what is asked for; steps that their preview expects to fail are replaced. Interrupted at any
    time, the same command goes on. Exit code 0: all that was asked for is known; 1: it is not, or
    a hand is needed with --yes; 2: error; 130: interrupted, and the arm is held.
    """
    _looks(add)
    add('--for', dest='purposes', default='', metavar='PURPOSES', help='what it is for, separated '
        'by commas: gravity, contact, friction, accuracy (default: asked)')
    add('--yes', **_FILE, help='take the answers from a file, and do not ask; '
        '--dry-run prints one')
    add('--answers', **_FILE, help='take the answers from a file, but ask '
        'before motion and about what is done by hand; then the file says what is mounted')
    add('--dry-run', action='store_true', help='show plan and answers, and move nothing')
    add('--again', **_REPEATED, metavar='KIND', help='measure this anew, although there is a '
        'result, e.g. payload; can be repeated')
    add('--timeout', **_TIMEOUT, help='longest wait for a node (default: %(default)s)')


def _view(add: _Add) -> None:
    """Show the arm and what its nodes do in a browser; reads only, but for a button to cancel."""
    add('--namespace', **_NAMESPACE)
    add('--allow-motion', action='store_true', help='let the page plan and carry out a '
        'calibration, as robocal calibrate does')
    add('--host', default='127.0.0.1', metavar='ADDRESS', help='address to serve at; beyond the '
        'default, the access token in the address of the page crosses the network unencrypted '
        '(default: %(default)s)')
    add('--port', type=int, default=8080, metavar='PORT',
        help='first port to try (default: %(default)s)')
    add('--results-dir', **_FOLDER, help="stored results (default: those of the robot's name)")
    add('--mesh-folder', **_REPEATED, metavar='FOLDER', help='folder in which package:// meshes '
        'are looked up, besides those of the sourced workspaces; can be repeated')
    add('--open', action='store_true', help='open the browser')


def _run(add: _Add) -> None:
    """Call the procedure of a node; Ctrl-C cancels it and holds the arm."""
    add('capability', help='what to run', choices=tuple(
        name for name, item in registry.procedures().items() if item.verb))
    add('--verb', metavar='SERVICE', help='another service of the node, e.g. estimate (default: '
        "the procedure's own)")
    add('--namespace', default='', metavar='NS', help="the node's namespace")
    add('--node', metavar='NAME', help="the node's name, if it was changed")
    add('--configure', action='store_true',
        help='configure and activate the node first, if it is not active')
    add('-p', '--param', **_ASSIGNMENTS, metavar='NAME:=VALUE', help='with --configure: one '
        'parameter, e.g. known_mass:=2.0; the node is configured again with it')
    add('--timeout', **_TIMEOUT, help='longest wait for the node (default: %(default)s)')


def _record(add: _Add) -> None:
    """Record the topics that an estimation needs into a bag, until Ctrl-C."""
    add('topics', nargs='*', metavar='TOPIC', help='further topics besides those of the profile')
    add('-o', '--output', **_FOLDER, help='the bag, a folder that does not '
        'exist yet (default: named after the time)')
    add('--storage', choices=('mcap', 'sqlite3'), default='mcap',
        help='format of the bag (default: %(default)s)')
    add('--namespace', **_NAMESPACE)
    add('--profile', **_FILE,
        help='topics to record (default: config/recorder.yaml of the package)')
    add('--duration', type=float, metavar='SECONDS', help='end after this time')
    add('--timeout', **_TIMEOUT, help='longest wait for needed topics (default: %(default)s)')


def _guide(add: _Add) -> None:
    """Write down postures of an arm guided by hand, and report what they determine.

    Each Enter appends the joint angles to a file. Then it reports how far this posture is from the
    fit of all, how many parameters of the geometry are known, and which postures to take next.
    """
    add('sets', **_FOLDER, help='folder with a folder for each placement')
    add('set', metavar='PLACEMENT/NAME', help='the file to write, such as left/hole_0')
    add('--urdf', required=True, **_FILE, help='URDF of the robot')
    add('--params-file', **_REPEATED, **_FILE,
        help='parameter file of compliance_calibration; can be repeated')
    add('-p', '--param', **_ASSIGNMENTS, metavar='NAME:=VALUE',
        help='one parameter, e.g. target_xyz:="[0.0, 0.0, 0.15]"; wins over files')
    add('--results-dir', **_FOLDER, help='stored results, such as a payload')
    add('--namespace', **_NAMESPACE)
    add('--timeout', **_TIMEOUT, help='longest wait for joint states (default: %(default)s)')


def _bags(add: _Add, kind: type[Path | str], stored: str, note: str = '') -> None:
    """Add the options that tell how to read a bag.

    Args:
        add: Adds an argument.
        kind: Type of paths.
        stored: Description of stored results.
        note: Remark on paths.

    """
    add('--urdf', type=kind, metavar='FILE',
        help=f'URDF of the robot{note} (default: robot_description in the bag)')
    add('--params-file', type=kind, **_REPEATED, metavar='FILE',
        help=f"parameter file of the capability's node{note}; can be repeated")
    add('-p', '--param', **_ASSIGNMENTS, metavar='NAME:=VALUE',
        help='one parameter, e.g. method:=static_poses; wins over files')
    add('--results-dir', type=kind, metavar='FOLDER', help=stored)
    add('--namespace', default='', metavar='NS',
        help="namespace of the robot's topics in the bag (default: any)")
    add('--remap', **_ASSIGNMENTS, metavar='NAME:=TOPIC',
        help='topic in the bag, e.g. joint_states:=/left/joint_states')


def _estimate(add: _Add) -> None:
    """Estimate from a bag, as the node would after replaying it.

    The bag is one of rosbag2; no robot and no ROS are needed.

    payload, drive_gains, arm, friction, compliance: one result from the samples of the last marked
    run, or of the whole bag.

    geometry: frames and compliance of all joints from CSV files, not from a bag: one posture a
    line, the joint angles and what saw the tool (docs/geometry.md). Needs --urdf.

    wrench: tares, then observes the bag sample by sample. Shows each link (share of time with a
    known wrench, RMS and largest force) and each contact (time, force, point). Writes the tare as
    the result file, and the wrench on every link at every instant as a series beside it. The tare
    is the first available of: the stored one, with -p keep_tare:=true; the marked tare of the bag,
    from the same samples; the one that the node published; one at the first rest in the bag.
    """
    add('capability', choices=(*registry.estimators(), *registry.file_estimators()),
        help='what to estimate')
    add('files', nargs='+', type=Path, metavar='BAG', help='a folder of rosbag2, or a .db3 or '
        '.mcap file; for geometry CSV files, folders of such, or lists')
    _bags(add, Path, 'stored results of the same robot to use, such as friction for payload, or '
          'payload for compliance; the new result is stored there too')
    add('--use', type=Path, **_REPEATED, metavar='RESULT',
        help='a result file to use instead of a stored one; can be repeated')
    add('--from', dest='begin', type=float, default=float('-inf'), metavar='SECONDS',
        help='start, in seconds after the first joint state')
    add('--to', dest='end', type=float, default=float('inf'), metavar='SECONDS',
        help='end, in seconds after the first joint state')
    add('--whole', action='store_true', help='use the whole bag, not only the last marked run')
    add('-o', '--output', **_FILE, help='the result file (default: <bag>.<capability>.yaml)')
    add('--series', **_FILE,
        help='wrench: the series, as .mcap or .csv (default: beside the result)')
    add('--covariances', action='store_true',
        help='wrench: the tool wrench and all covariances in the series, too')


def _fleet_estimate(add: _Add) -> None:
    """Estimate all that bags answer; finished bags are not repeated.

    Estimates on all cores, or on the workers of a Dask scheduler. Each bag is asked for what its
    marks say was run (payload, drive_gains, arm, friction, compliance, the tare of wrench), with
    the estimators of `robocal estimate`. Results are files in the output folder, and rows of a
    catalogue of Parquet files there.

    The command can be interrupted and started again at any time: what is finished, with the same
    bag, parameters, URDF and version, is not repeated. A bag that fails is listed with its reason
    and does not stop the others.
    """
    add('places', nargs='+', metavar='BAGS', help='a bag, a folder to search, a pattern of such '
        'in quotes, or a .txt file with one of these a line; paths or URIs such as s3://…')
    add('-o', '--output', required=True, metavar='FOLDER',
        help='folder of results and catalogue, path or URI')
    add('--robot-from', default='', metavar='SOURCE', help="source of the robots' names: "
        "'namespace' of the topics, 'folder' that holds the bag, or a regular expression with one "
        'group that is searched in its path (default: the name in the URDF)')
    add('--capability', **_REPEATED, choices=tuple(registry.estimators()), help='estimate this '
        'alone, also from bags without marks; can be repeated (default: what the marks in each '
        'bag name)')
    _bags(add, str, 'stored results to build on, such as friction for payload; may contain '
          '{robot} (default: none)', ', may contain {robot}')
    add('--workers', type=positive, metavar='N',
        help='number of worker processes on this machine (default: one per core)')
    add('--memory-limit', default='', metavar='SIZE',
        help='memory of each of them, e.g. 2GiB (default: equal shares)')
    add('--scheduler', default='', metavar='ADDRESS', help='use the workers of an existing Dask '
        'scheduler, e.g. tcp://10.0.0.2:8786; they must reach bags and output under the same '
        'names')
    add('--retry', action='store_true', help='try refused bags again')


def _fleet_show(add: _Add) -> None:
    """Show robots, failures or values of the catalogue."""
    add('output', metavar='FOLDER', help='the output folder of fleet estimate')
    add('--robot', **_ROBOT)
    add('--parameter', default='', metavar='NAME', help='the values of a parameter over time, '
        'e.g. joint_2.coulomb_forward; * stands for anything')
    add('--failures', type=int, default=10, metavar='N',
        help='largest number of reasons of failures to list (default: %(default)s)')


def _fleet_dashboard(add: _Add) -> None:
    """Write an HTML page of what changed on which robot."""
    add('folder', metavar='FOLDER', help='the output folder of fleet estimate')
    add('-o', '--output', type=Path, default=Path('fleet.html'),
        help='the HTML file (default: %(default)s)')
    add('--robot', **_ROBOT)
    add('--robots', type=positive, default=12, metavar='N',
        help='largest number of robots drawn in detail (default: %(default)s)')


def _fleet(add: _Add) -> None:
    """Estimate from many bags of many robots, and keep a catalogue."""


def _import(add: _Add) -> None:
    """Convert a CSV file into a bag by a column map: a log, or one posture per line."""
    add('file', type=Path, metavar='CSV', help='the CSV file')
    add('bag', type=Path, metavar='BAG', help='the bag to write, a new folder')
    add('--columns', required=True, **_FILE, help='the column map, a YAML file (docs/bags.md)')


_COMPARE: dict[str, Any] = {
    'action': 'store_true', 'help': 'of two results: each difference, and whether chance explains '
    'it'}


def _show(add: _Add) -> None:
    """Show result files in the terminal."""
    add('files', nargs='+', metavar='RESULT', help=_RESULT)
    add('--compare', **_COMPARE)


def _report(add: _Add) -> None:
    """Write an HTML report of results: verdicts, what to do, values, plots."""
    add('files', nargs='*', metavar='RESULT',
        help=f'{_RESULT} (default: all stored results of the robot)')
    add('--results-dir', **_FOLDER,
        help='folder of the stored results (default: that of the only robot)')
    add('--urdf', **_FILE, help='URDF of the robot, to show what results change '
        "in it, and the driver's values in the driver's frame")
    add('-o', '--output', type=Path, default=Path('report.html'),
        help='the HTML file (default: %(default)s)')
    add('--title', default='Calibration report', help='title of the page')
    add('--compare', **_COMPARE)


def _apply(add: _Add) -> None:
    """Write a result into a URDF, and show what drivers take of it."""
    add('file', metavar='RESULT', help='a payload, friction, arm or geometry result file, or '
        'one of these words for the stored one')
    add('--urdf', required=True, **_FILE, help='URDF of the robot that was calibrated')
    add('--out', required=True, **_FILE, help='the URDF to write')
    add('--mjcf', type=Path, nargs=2, metavar=('FILE', 'OUT'), help='a MuJoCo model of the robot, '
        'and the one to write: with identified friction, or rotor inertias of an arm')
    add('--ur-kinematics', type=Path, metavar='OUT', help='the file of kinematics to write for '
        'ur_robot_driver (kinematics_params_file), of the geometry of a UR arm')
    add('--desk', type=Path, metavar='OUT', help="the JSON file to write for Franka Desk's end "
        'effector settings, of the payload of a Franka arm')
    add('--frame', metavar='FRAME', help="frame of the driver's flange for the driver's values "
        "(default: the result's)")
    add('--send', action='store_true', help="call the driver's service that sets a payload, and "
        'show its answer and how to undo it')
    add('--force', action='store_true', help='accept a result whose verdict is not pass')


_COMMANDS = {
    'doctor': _doctor, 'calibrate': _calibrate, 'run': _run, 'view': _view, 'record': _record,
    'guide': _guide, 'import': _import, 'estimate': _estimate, 'fleet': _fleet, 'show': _show,
    'report': _report, 'apply': _apply}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; the function to call is its options' ``run``."""
    parser = argparse.ArgumentParser(
        prog='robocal', description='Robot arms that measure themselves.')
    parser.add_argument('--version', action='version', version=f'robocal_ros {__version__}')
    commands = parser.add_subparsers(title='commands', required=True, metavar='COMMAND')
    for name, declare in _COMMANDS.items():
        module = 'import_csv' if name == 'import' else name  # a Python keyword
        _command(commands, name, declare).set_defaults(run=partial(_run_command, module))
    actions = commands.choices['fleet'].add_subparsers(
        title='actions', required=True, metavar='ACTION', dest='action')
    for name, declare in (('estimate', _fleet_estimate), ('show', _fleet_show),
                          ('dashboard', _fleet_dashboard)):
        _command(actions, name, declare)
    return parser


def _command(commands: Any, name: str, declare: Callable[[_Add], None]) -> argparse.ArgumentParser:
    """Add a command: the docstring of what declares its options is its description."""
    text = getdoc(declare) or ''
    summary = text.partition('\n')[0].rstrip('.')
    own: argparse.ArgumentParser = commands.add_parser(
        name, help=f'{summary[:1].lower()}{summary[1:]}', description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    declare(own.add_argument)
    return own


def _run_command(module: str, options: argparse.Namespace) -> int:
    return import_module(f'robocal_ros.cli.{module}').run(options)


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
    # SIGTERM unwinds the stack, so that child processes end too. What a script starts in the
    # background inherits that SIGINT is ignored; it must be able to cancel a motion all the same.
    before = [(number, signal.signal(number, handler)) for number, handler in (
        (signal.SIGTERM, lambda number, _: sys.exit(128 + number)),
        (signal.SIGINT, signal.default_int_handler))]
    try:
        return options.run(options)
    except RobocalError as error:
        print_line(str(error), 'bold red', ERRORS)
        return REFUSED
    except KeyboardInterrupt:
        ERRORS.print('Interrupted; everything that was started has been ended.')
        return INTERRUPTED
    finally:
        for number, handler in before:
            signal.signal(number, handler)


if __name__ == '__main__':
    sys.exit(main())
