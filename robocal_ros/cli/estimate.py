# SPDX-License-Identifier: Apache-2.0
"""`robocal estimate`: the result of a capability from a bag, without a robot or ROS."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from robocal_ros.capability import Capability, Follower
from robocal_ros.cli.arguments import CAPABILITIES
from robocal_ros.cli.console import ProgressView, print_line
from robocal_ros.cli.offline import OfflineEstimation
from robocal_ros.cli.show import show_result
from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.files import load, read_text
from robocal_ros.messages.bag import JOINT_STATE, Bag, Selection, description_in
from robocal_ros.messages.decode import stamp_of
from robocal_ros.messages.stamps import to_seconds
from robocal_ros.parameters import ParameterTable, checked, declarations
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import write_result
from robocal_ros.robot.urdf import read_urdf

T = TypeVar('T', bound=ParameterTable)

_SECTION = 'ros__parameters'
_NUMBER = re.compile(r'[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+')


def run(options: argparse.Namespace) -> int:
    """Estimate; show and write the result.

    Returns:
        0 if the verdict is pass, 1 otherwise.

    Raises:
        RobocalError: If the bag, the parameters or the data are unsuitable.

    """
    chosen = capability(options.capability)
    if (options.series is not None or options.covariances) and not isinstance(chosen, Follower):
        raise ConfigurationError(
            f'{chosen.name} has no series, which is an output of wrench only. Remove --series and '
            '--covariances.')
    if options.use and isinstance(chosen, Follower):
        raise ConfigurationError(
            'wrench does not support --use; give its results with --results-dir.')
    overrides = dict(options.param)
    if options.results_dir is not None:
        overrides['results_dir'] = str(options.results_dir)
    with Bag(options.bag) as bag:
        values = read_parameters(
            chosen.table, chosen.node, options.params_file, overrides, options.namespace)
        selection = _selection(bag, options)
        urdf = (read_urdf(options.urdf) if options.urdf is not None
                else values.robot_description or description_in(bag, selection))
        if isinstance(chosen, Follower):
            return _follow(chosen, bag, values, urdf, selection, options)
        estimation = OfflineEstimation(chosen, bag, values, urdf, selection, options.use)
        with ProgressView(f'Reading {bag.name}') as view:
            outcome = estimation.run(
                lambda count: view.update(100.0 * count / max(estimation.messages, 1),
                                          f'{count} messages'),
                lambda: view.pulse('Estimating.'))
    code = _present(outcome.result, outcome.remarks, _output(options), chosen.summary)
    if options.results_dir is not None:
        stored = estimation.stored(outcome.result)
        print_line(f'Stored: {stored}')
    return code


def capability(name: str) -> Capability | Follower[Any]:
    """Return a capability by name; raises ConfigurationError for an unknown one.

    Only its own modules are imported, to start sooner.
    """
    if name not in CAPABILITIES:
        raise ConfigurationError(
            f"'{name}' is not a capability that estimates from bags; expected one of "
            f'{", ".join(CAPABILITIES)}.')
    module, _, item = CAPABILITIES[name].partition(':')
    found: Capability | Follower[Any] = getattr(
        import_module(f'robocal_ros.{module}'), item)
    return found


def _follow(
    chosen: Follower[Any], bag: Bag, values: Any, urdf: str, selection: Selection,
    options: argparse.Namespace,
) -> int:
    # Other capabilities save the tenth of a second that the observer's modules take.
    from robocal_ros.cli.estimate_wrench import follow, show_wrenches

    output = _output(options)
    series = options.series or output.with_suffix('.mcap')
    following = chosen.follow(bag, values, urdf, selection)
    outcome = follow(following, bag.name, series, covariances=options.covariances)
    code = 0 if outcome.tare is None else _present(outcome.tare, (), output)
    for remark in outcome.remarks:
        print_line(remark, 'yellow')
    show_wrenches(outcome.digest, following.robot.joint_names)
    print_line(f'Series: {series}')
    return code


def _selection(bag: Bag, options: argparse.Namespace) -> Selection:
    remapped = dict(options.remap)
    whole = Selection(options.namespace, remapped, whole=options.whole)
    if options.begin is None and options.end is None:
        return whole
    topic = bag.find(remapped.get('joint_states', 'joint_states'), JOINT_STATE, options.namespace)
    first = next((to_seconds(stamp) for _, raw in bag.raw(topic)
                  if (stamp := stamp_of(raw)) is not None), 0.0)
    begin = float('-inf') if options.begin is None else first + options.begin
    end = float('inf') if options.end is None else first + options.end
    if not begin < end:
        raise ConfigurationError(
            f'--from {options.begin} and --to {options.end} select nothing; expected seconds '
            'after the first joint state, --from below --to.')
    return Selection(options.namespace, remapped, begin, end, options.whole)


def _output(options: argparse.Namespace) -> Path:
    if options.output is not None:
        return Path(options.output)
    return Path(f'{options.bag.resolve().stem}.{options.capability}.yaml')


def _present(
    result: CalibrationResult, remarks: Sequence[str], output: Path,
    summary: Callable[[CalibrationResult], str] | None = None,
) -> int:
    """Show and write a result; return the exit code."""
    passed = result.verdict is Verdict.PASS
    if not passed and output.exists():
        # A failed estimation never replaces a good one.
        output = output.with_suffix('.failed.yaml')
    write_result(result, output)
    show_result(result)
    for remark in remarks:
        print_line(remark, 'yellow')
    if passed and summary is not None:
        print_line(summary(result))
    print_line(f'Result: {output}')
    return 0 if passed else 1


# ---------------------------------------------------------------------- parameters


def read_parameters(
    table: type[T], node: str, files: Sequence[Path], overrides: Mapping[str, str] | None = None,
    namespace: str = '',
) -> T:
    """Return a node's parameters from its files, as the node itself would read them.

    Args:
        table: The node's parameter table.
        node: Its name.
        files: Parameter files; later ones override earlier ones.
        overrides: Texts by parameter name, as on a command line; they override files.
        namespace: The node's namespace.

    Raises:
        FileFormatError: If a file is not a parameter file.
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
                f"'{name}' is not a parameter of {node}; expected one of {', '.join(known)}.")
        is_text = known[name].element_type is str and not isinstance(known[name].default, list)
        values[name] = text if is_text else load(text, f'Parameter {name}')
    values = {name: _number(value) if name in known and known[name].element_type is float
              else value for name, value in values.items()}
    problems = [
        f"Parameter '{name}' is {value!r}; it must be {known[name].type_text()}."
        for name, value in values.items() if name in known and not known[name].fits(value)]
    if problems:
        raise ConfigurationError(' '.join(problems))
    return checked(table, values)


def _number(value: Any) -> Any:
    """Return texts such as 5e-4, which are numbers for ROS and not for YAML 1.1, as numbers."""
    if isinstance(value, list):
        return [_number(element) for element in value]
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    return value


def _document(file: Path) -> dict[Any, Any]:
    document = load(read_text(file, 'parameter file'), str(file))
    if not isinstance(document, dict):
        raise FileFormatError(
            f"'{file}' is not a parameter file: expected '<node>:' and '{_SECTION}:' below it.")
    return document


def _of_node(document: Mapping[Any, Any], node: str, file: str, at: str = '') -> dict[str, Any]:
    """Return a file's parameters of a node; names, wildcards and namespaces may be nested."""
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
    """Return whether a node's full name matches; ``**`` is any namespaces, ``*`` is one."""
    names, parts = node.strip('/').split('/'), pattern.strip('/').split('/')

    def fits(names: Sequence[str], parts: Sequence[str]) -> bool:
        if not parts:
            return not names
        if parts[0] == '**':
            return any(fits(names[skip:], parts[1:]) for skip in range(len(names) + 1))
        return bool(names) and fnmatchcase(names[0], parts[0]) and fits(names[1:], parts[1:])

    return fits(names, parts)


def _flat(values: Mapping[Any, Any], prefix: str = '') -> dict[str, Any]:
    """Return nested parameters by names with dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f'{prefix}{key}.')
        else:
            found[f'{prefix}{key}'] = value
    return found
