# SPDX-License-Identifier: Apache-2.0
"""Parameter files of nodes, read without ROS: the same files, the same checks.

What a series of external wrenches comes down to, as tables in the terminal.

`robocal estimate`: a capability's result from a bag, without a robot and without ROS.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table

from robocal_ros.arrays import Array
from robocal_ros.cli.catalogue import CAPABILITIES, capability
from robocal_ros.cli.console import OUT, ProgressView, table_of
from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.files import load, read_text
from robocal_ros.parameters import ParameterTable, checked, declarations
from robocal_ros.wrench.series import Digest, Episode, TorqueDigest

if TYPE_CHECKING:
    from robocal_ros.capability.capability import Capability, Follower
    from robocal_ros.capability.offline import Outcome
    from robocal_ros.messages.bag import Bag
    from robocal_ros.messages.selection import Selection
    from robocal_ros.results.result import CalibrationResult
    from robocal_ros.wrench.bag import WrenchFollowing


T = TypeVar('T', bound=ParameterTable)
_SECTION = 'ros__parameters'
_NUMBER = re.compile(r'[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+')


def read_parameters(
    table: type[T], node: str, files: Sequence[Path], overrides: Mapping[str, str] | None = None,
    namespace: str = '',
) -> T:
    """Return a node's parameters from its files, as the node itself would read them.

    Args:
        table: The node's parameter table.
        node: Its name.
        files: Parameter files; later ones win.
        overrides: Texts by parameter name, as given on a command line; they win over files.
        namespace: The node's namespace.

    Raises:
        FileFormatError: If a file is no parameter file.
        ConfigurationError: If a value has the wrong type, is out of range, or a name given on
            the command line is unknown.

    """
    values: dict[str, Any] = {}
    for file in files:
        values |= _of_node(_document(file), f'/{namespace.strip("/")}/{node}'.replace('//', '/'),
                           str(file))
    known = {item.name: item for item in declarations(table)}
    for name, text in (overrides or {}).items():
        if name not in known:
            raise ConfigurationError(
                f"'{name}' is no parameter of {node}; it has {', '.join(known)}.")
        is_text = known[name].element_type is str and not isinstance(known[name].default, list)
        values[name] = text if is_text else load(text, f'Parameter {name}')
    values = {name: _number(value) if name in known and known[name].element_type is float
              else value for name, value in values.items()}
    complaints = [
        f"Parameter '{name}' is {value!r}; it must be {known[name].type_text()}."
        for name, value in values.items() if name in known and not known[name].fits(value)]
    if complaints:
        raise ConfigurationError(' '.join(complaints))
    return checked(table, values)


def _number(value: Any) -> Any:
    """Return what ROS takes for a number and YAML 1.1 for a text, such as 5e-4, as a number."""
    if isinstance(value, list):
        return [_number(element) for element in value]
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    return value


def _document(file: Path) -> dict[Any, Any]:
    document = load(read_text(file, 'parameter file'), str(file))
    if not isinstance(document, dict):
        raise FileFormatError(
            f"'{file}' is no parameter file: expected '<node>:' and '{_SECTION}:' below it.")
    return document


def _of_node(document: Mapping[Any, Any], node: str, file: str, at: str = '') -> dict[str, Any]:
    """Collect what a file says for a node: names, wildcards and namespaces may be nested."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        if not isinstance(value, dict):
            raise FileFormatError(
                f"{file}, key '{key}': expected a mapping that leads to '{_SECTION}', got "
                f'{value!r}.')
        if key == _SECTION:
            if _matches(node, at):
                found |= _flat(value)
        else:
            found |= _of_node(value, node, file, f'{at}/{str(key).strip("/")}')
    return found


def _matches(node: str, pattern: str) -> bool:
    """Tell whether a node's full name fits; ``**`` stands for any namespaces, ``*`` for one."""
    names, parts = node.strip('/').split('/'), pattern.strip('/').split('/')

    def fits(names: Sequence[str], parts: Sequence[str]) -> bool:
        if not parts:
            return not names
        if parts[0] == '**':
            return any(fits(names[skip:], parts[1:]) for skip in range(len(names) + 1))
        return bool(names) and fnmatchcase(names[0], parts[0]) and fits(names[1:], parts[1:])

    return fits(names, parts)


def _flat(values: Mapping[Any, Any], prefix: str = '') -> dict[str, Any]:
    """Return nested parameters by their names with points."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f'{prefix}{key}.')
        else:
            found[f'{prefix}{key}'] = value
    return found


# Most contacts that are shown; the hardest ones, where there are more.
_MOST = 30


def show_wrenches(console: Console, digest: Digest, joint_names: Sequence[str]) -> None:
    """Show links, external joint torques and contacts.

    Args:
        console: Where.
        digest: What is to be shown.
        joint_names: Names of the arm's joints.

    """
    console.print(_link_table(digest))
    for item in digest.links:
        for reason, count in item.reasons.most_common(3):
            console.print(f'{item.link}: not known at {count} instants. {reason}', style='yellow',
                          soft_wrap=True, markup=False)
    if digest.torque.count:
        console.print(_torque_table(digest.torque, joint_names))
    episodes = sorted(sorted(digest.episodes, key=lambda item: -item.peak)[:_MOST],
                      key=lambda item: item.begin)
    if not episodes:
        console.print('No link was touched.')
        return
    console.print(_contact_table(episodes))
    if len(digest.episodes) > _MOST:
        console.print(f'The hardest {_MOST} of {len(digest.episodes)} contacts are shown.')


def _link_table(digest: Digest) -> Table:
    table = table_of((('link', False), ('instants', True), ('known', True), ('RMS [N]', True),
                      ('largest [N]', True), ('at stamp [s]', True)), 'External force on links')
    for item in digest.links:
        if item.valid:
            told = (f'{item.rms:.3g}', f'{item.peak:.3g}', f'{item.peak_stamp:.3f}')
        else:
            told = ('–', '–', '–')
        known = f'{100.0 * item.share:.1f} %' if item.samples else '–'
        table.add_row(item.link, str(item.samples), known, *told)
    return table


def _torque_table(torque: TorqueDigest, joint_names: Sequence[str]) -> Table:
    table = table_of((('joint', False), ('RMS [N·m]', True), ('largest [N·m]', True),
                      ('collisions', True)), 'External joint torque')
    for name, rms, peak, count in zip(joint_names, torque.rms, torque.peak, torque.collisions,
                                      strict=True):
        table.add_row(name, f'{rms:.3g}', f'{peak:.3g}', str(count))
    return table


def _contact_table(episodes: Sequence[Episode]) -> Table:
    table = table_of((('contact on', False), ('from stamp [s]', True), ('to [s]', True),
                      ('largest [N]', True), ('place', False), ('at [mm]', True)), 'Contacts')
    for item in episodes:
        table.add_row(item.link, f'{item.begin:.3f}', f'{item.end:.3f}', f'{item.peak:.1f}',
                      item.contact.place.value, _point(item.contact.point))
    return table


def _point(point: Array | None) -> str:
    return '–' if point is None else ' '.join(f'{1e3 * value:.0f}' for value in point)


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
    from robocal_ros.capability.capability import Follower
    from robocal_ros.messages.bag import Bag

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
    from robocal_ros.messages.selection import description_in
    from robocal_ros.robot.urdf import read_urdf

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
    from robocal_ros.capability.offline import OfflineEstimation

    estimation = OfflineEstimation(chosen, bag, *given)
    with ProgressView(f'Reading {bag.name}') as view:
        return estimation.run(lambda count: view.update(
            100.0 * count / max(estimation.messages, 1), f'{count} messages'))


def _follow(
    chosen: Follower[WrenchFollowing], bag: Bag, given: tuple[Any, str, Selection],
    options: argparse.Namespace,
) -> int:
    from robocal_ros.wrench.series import WrenchSeries

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
    show_wrenches(OUT, outcome.digest, following.robot.joint_names)
    OUT.print(f'Series: {series}', soft_wrap=True, markup=False)
    return code


def _selection(bag: Bag, options: argparse.Namespace) -> Selection:
    from robocal_ros.messages.layout import joint_states
    from robocal_ros.messages.selection import JOINT_STATE, Selection

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
    from robocal_ros.cli.console import show_result
    from robocal_ros.results.result import Verdict
    from robocal_ros.results.store import write_result

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
