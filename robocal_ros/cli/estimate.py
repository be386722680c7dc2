# SPDX-License-Identifier: Apache-2.0
"""`robocal estimate`: a capability's result from a bag, without a robot and without ROS."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocal_ros.capabilities.catalogue import CAPABILITIES, capability
from robocal_ros.cli.console import OUT, ProgressView
from robocal_ros.errors import ConfigurationError

if TYPE_CHECKING:
    from robocal_ros.capabilities.capability import Capability, Follower
    from robocal_ros.capabilities.offline import Outcome
    from robocal_ros.capabilities.selection import Selection
    from robocal_ros.capabilities.wrench_bag import WrenchFollowing
    from robocal_ros.core.result import CalibrationResult
    from robocal_ros.io.bags import Bag

NAME = 'estimate'
SUMMARY = 'estimate from a bag, as the node would after replaying it'
_DESCRIPTION = """\
Estimate from a bag of rosbag2, as the node would after replaying it; no robot and no ROS needed.

payload, drive_gains, friction, compliance: one result, from the samples of the last run that the
bag tells of, or of the whole bag.

wrench: tares, then follows the bag sample by sample. Shows each link (how long its wrench was
known, RMS and largest force) and each contact (when, how hard, where). Writes the tare as the
result file, and the wrench on every link at every instant as a CSV file beside it. The tare is,
in this order: the stored one with -p keep_tare:=true; the one that the bag's marks tell of, from
the same samples; the one that the node published; that of the first rest in the bag."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument('capability', choices=CAPABILITIES, help='what to estimate')
    parser.add_argument('bag', type=Path, metavar='BAG',
                        help='a folder of rosbag2, or a .db3 or .mcap file')
    parser.add_argument('--urdf', type=Path, metavar='FILE',
                        help='URDF of the robot (default: robot_description in the bag)')
    parser.add_argument('--params-file', type=Path, action='append', default=[], metavar='FILE',
                        help="parameter file of the capability's node; may be given repeatedly")
    parser.add_argument('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
                        help='one parameter, e.g. method:=static_poses; wins over files')
    parser.add_argument('--results-dir', type=Path, metavar='FOLDER',
                        help='results of the same robot to build on, such as friction for '
                             'payload, or payload for compliance')
    parser.add_argument('--namespace', default='', metavar='NS',
                        help="namespace of the robot's topics in the bag")
    parser.add_argument('--remap', action='append', default=[], metavar='NAME:=TOPIC',
                        help='where in the bag a topic is, e.g. joint_states:=/left/joint_states')
    parser.add_argument('--from', dest='begin', type=float, metavar='SECONDS',
                        help='leave out what is earlier after the first joint state')
    parser.add_argument('--to', dest='end', type=float, metavar='SECONDS',
                        help='leave out what is later after the first joint state')
    parser.add_argument('--whole', action='store_true',
                        help='take the whole bag, not only the last run that it tells of')
    parser.add_argument('-o', '--output', type=Path, metavar='FILE',
                        help='the result file (default: <bag>.<capability>.yaml)')
    parser.add_argument('--series', type=Path, metavar='FILE',
                        help='wrench: the wrenches as CSV (default: beside the result, .csv)')


def run(options: argparse.Namespace) -> int:
    """Estimate, show the result and write it.

    Returns:
        0 if the verdict is pass, 1 if it is not.

    Raises:
        RobocalError: If the bag, the parameters or the data do not allow it.

    """
    from robocal_ros.capabilities.capability import Follower
    from robocal_ros.io.bags import Bag

    chosen = capability(options.capability)
    if options.series is not None and not isinstance(chosen, Follower):
        raise ConfigurationError(
            f'--series is for what follows a bag sample by sample; {chosen.name} has no series.')
    with Bag(options.bag) as bag:
        given = _given(chosen, bag, options)
        if isinstance(chosen, Follower):
            return _follow(chosen, bag, given, options)
        outcome = _estimated(chosen, bag, given)
    return _tell(outcome.result, outcome.remarks, _output(options), chosen.summary)


def _given(
    chosen: Capability | Follower[WrenchFollowing], bag: Bag, options: argparse.Namespace
) -> tuple[Any, str, Selection]:
    """Return parameters, URDF text, and which messages count."""
    from robocal_ros.capabilities.selection import description_in
    from robocal_ros.io.parameter_file import read_parameters
    from robocal_ros.io.urdf import read_urdf

    overrides = _pairs(options.param, '--param')
    if options.results_dir is not None:
        overrides['results_dir'] = str(options.results_dir)
    values: Any = read_parameters(
        chosen.table, chosen.node, options.params_file, overrides, options.namespace)
    selection = _selection(bag, options)
    urdf = (read_urdf(options.urdf) if options.urdf is not None
            else values.robot_description or description_in(bag, selection))
    return values, urdf, selection


def _estimated(chosen: Capability, bag: Bag, given: tuple[Any, str, Selection]) -> Outcome:
    from robocal_ros.capabilities.offline import OfflineEstimation

    estimation = OfflineEstimation(chosen, bag, *given)
    with ProgressView(f'Reading {bag.name}') as view:
        return estimation.run(lambda count: view.update(
            100.0 * count / max(estimation.messages, 1), f'{count} messages'))


def _follow(
    chosen: Follower[WrenchFollowing], bag: Bag, given: tuple[Any, str, Selection],
    options: argparse.Namespace,
) -> int:
    from robocal_ros.cli.wrench_tables import show_wrenches
    from robocal_ros.io.wrench_series import WrenchSeries

    output = _output(options)
    series = options.series or output.with_suffix('.csv')
    following = chosen.follow(bag, *given)
    with (
        ProgressView(f'Reading {bag.name}') as view,
        WrenchSeries(series, following.links) as writer,
    ):
        outcome = following.run(writer, lambda count: view.update(
            100.0 * count / max(following.messages, 1), f'{count} messages'))
    code = 0
    if outcome.tare is not None:
        code = _tell(outcome.tare, (), output)
    for remark in outcome.remarks:
        OUT.print(remark, style='yellow', soft_wrap=True, markup=False)
    show_wrenches(OUT, outcome.digest, outcome.joint_names)
    OUT.print(f'Series: {series}', soft_wrap=True, markup=False)
    return code


def _selection(bag: Bag, options: argparse.Namespace) -> Selection:
    from robocal_ros.capabilities.selection import JOINT_STATE, Selection
    from robocal_ros.io.bag_cdr import joint_states

    remapped = _pairs(options.remap, '--remap')
    whole = Selection(options.namespace, remapped, whole=options.whole)
    if options.begin is None and options.end is None:
        return whole
    topic = bag.find(remapped.get('joint_states', 'joint_states'), JOINT_STATE, options.namespace)
    first = next((float(joint_states([raw]).time[0]) for _, raw in bag.raw(topic)), 0.0)
    begin = float('-inf') if options.begin is None else first + options.begin
    end = float('inf') if options.end is None else first + options.end
    if not begin < end:
        raise ConfigurationError(
            f'--from {options.begin} and --to {options.end} leave nothing; expected seconds after '
            'the first joint state, the first before the second.')
    return Selection(options.namespace, remapped, begin, end, options.whole)


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, sign, value = text.partition(':=')
        if not sign or not name:
            raise ConfigurationError(f"{option} '{text}' is not of the form NAME:=VALUE.")
        pairs[name.strip()] = value
    return pairs


def _output(options: argparse.Namespace) -> Path:
    if options.output is not None:
        return Path(options.output)
    return Path(f'{options.bag.resolve().stem}.{options.capability}.yaml')


def _tell(
    result: CalibrationResult, remarks: Sequence[str], output: Path,
    summary: Callable[[CalibrationResult], str] | None = None,
) -> int:
    """Show and write a result; return the exit code."""
    from robocal_ros.cli.tables import show_result
    from robocal_ros.core.result import Verdict
    from robocal_ros.io.result_yaml import write_result

    passed = result.verdict is Verdict.PASS
    if not passed and output.exists():
        # A failed estimation never replaces a good one.
        output = output.with_suffix('.failed.yaml')
    write_result(result, output)
    show_result(OUT, result)
    for remark in remarks:
        OUT.print(remark, style='yellow', soft_wrap=True, markup=False)
    if passed and summary is not None:
        OUT.print(summary(result), soft_wrap=True, markup=False)
    OUT.print(f'Result: {output}', soft_wrap=True, markup=False)
    return 0 if passed else 1
