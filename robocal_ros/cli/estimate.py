# SPDX-License-Identifier: Apache-2.0
"""`robocal estimate`: the result of a capability from a bag, without a robot or ROS."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robocal_ros.cli.console import ProgressView, print_line
from robocal_ros.cli.show import show_result
from robocal_ros.errors import ConfigurationError
from robocal_ros.estimators import Follower, estimator
from robocal_ros.messages import JOINT_STATE, Bag, Selection, description_in, stamp_of, to_seconds
from robocal_ros.offline import OfflineEstimation, read_parameters
from robocal_ros.results import CalibrationResult, Verdict, write_result
from robocal_ros.robot import read_urdf


def run(options: argparse.Namespace) -> int:
    """Estimate; show and write the result.

    Returns:
        0 if the verdict is pass, 1 otherwise.

    Raises:
        RobocalError: If the bag, the parameters or the data are unsuitable.

    """
    chosen = estimator(options.capability)
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
