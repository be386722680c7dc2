# SPDX-License-Identifier: Apache-2.0
"""`robocal estimate`: the result of a capability from a bag, without a robot or ROS."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocal_ros import registry
from robocal_ros.cli.console import OUT, ProgressView, print_line, table_of
from robocal_ros.cli.show import show_result
from robocal_ros.errors import ConfigurationError
from robocal_ros.estimators import FileEstimator, Follower, estimator, file_estimator
from robocal_ros.messages import JOINT_STATE, Bag, Selection, description_in, stamp_of, to_seconds
from robocal_ros.offline import OfflineEstimation, read_parameters, results_for
from robocal_ros.results import CalibrationResult, Verdict, write_result
from robocal_ros.robot import make_robot, read_urdf

if TYPE_CHECKING:
    from robocal_ros.wrench import Digest

# Largest number of contacts shown: those with the largest forces.
_MAX_CONTACTS = 30


def run(options: argparse.Namespace) -> int:
    """Estimate; show and write the result.

    Returns:
        0 if the verdict is pass, 1 otherwise.

    Raises:
        RobocalError: If the bag, the parameters or the data are unsuitable.

    """
    of_files = options.capability in registry.file_estimators()
    chosen = (file_estimator if of_files else estimator)(options.capability)
    if (options.series is not None or options.covariances) and not isinstance(chosen, Follower):
        raise ConfigurationError(
            f'{chosen.name} has no series, which is an output of wrench only. Remove --series and '
            '--covariances.')
    if options.use and isinstance(chosen, Follower):
        raise ConfigurationError(
            'wrench does not support --use; give its results with --results-dir.')
    if len(options.files) > 1 and not of_files:
        raise ConfigurationError(
            f'{chosen.name} is estimated from one bag, got {len(options.files)} paths.')
    folder = {} if options.results_dir is None else {'results_dir': str(options.results_dir)}
    values = read_parameters(chosen.table, chosen.node, options.params_file,
                             {**dict(options.param), **folder}, options.namespace)
    urdf = values.robot_description if options.urdf is None else read_urdf(options.urdf)
    if isinstance(chosen, FileEstimator):
        return _from_files(chosen, values, urdf, options)
    with Bag(options.files[0]) as bag:
        selection = _selection(bag, options)
        urdf = urdf or description_in(bag, selection)
        if isinstance(chosen, Follower):
            return _follow(chosen, bag, values, urdf, selection, options)
        estimation = OfflineEstimation(chosen, bag, values, urdf, selection, options.use)
        with ProgressView(f'Reading {bag.name}') as view:
            outcome = estimation.run(
                lambda count: view.update(100.0 * count / max(estimation.messages, 1),
                                          f'{count} messages'),
                lambda: view.pulse('Estimating.'))
    return _present(outcome.result, options, outcome.remarks, chosen.summary, estimation.stored)


def _from_files(chosen: FileEstimator, values: Any, urdf: str, options: argparse.Namespace) -> int:
    if not urdf:
        raise ConfigurationError(f'{chosen.name} is estimated from files without a robot '
                                 'description; give --urdf.')
    robot = make_robot(urdf, values)
    store, current = results_for(robot, values, options.use)
    with ProgressView('geometry') as view:
        view.pulse('Estimating.')
        result = chosen.result(robot, options.files, values, current)
    return _present(result, options, (), chosen.summary, store.save)


def _follow(
    chosen: Follower[Any], bag: Bag, values: Any, urdf: str, selection: Selection,
    options: argparse.Namespace,
) -> int:
    series = options.series or _output(options).with_suffix('.mcap')
    following = chosen.follow(bag, values, urdf, selection)
    with ProgressView(f'Reading {bag.name}') as view:
        outcome = following.run(series, lambda count: view.update(
            100.0 * count / max(following.messages, 1), f'{count} messages'),
            covariances=options.covariances)
    code = 0 if outcome.tare is None else _present(outcome.tare, options)
    for remark in outcome.remarks:
        print_line(remark, 'yellow')
    _show_wrenches(outcome.digest, following.robot.joint_names)
    print_line(f'Series: {series}')
    return code


def _selection(bag: Bag, options: argparse.Namespace) -> Selection:
    selection = Selection(options.namespace, dict(options.remap), whole=options.whole)
    if (options.begin, options.end) == (selection.begin, selection.end):
        return selection
    first = next((to_seconds(stamp) for _, raw in bag.raw(
        selection.topic(bag, 'joint_states', JOINT_STATE))
        if (stamp := stamp_of(raw)) is not None), 0.0)
    if not options.begin < options.end:
        raise ConfigurationError(
            f'--from {options.begin} and --to {options.end} select nothing; expected seconds '
            'after the first joint state, --from below --to.')
    return replace(selection, begin=first + options.begin, end=first + options.end)


def _output(options: argparse.Namespace) -> Path:
    return options.output or Path(f'{options.files[0].resolve().stem}.{options.capability}.yaml')


def _present(
    result: CalibrationResult, options: argparse.Namespace, remarks: Sequence[str] = (),
    summary: Callable[[CalibrationResult], str] | None = None,
    store: Callable[[CalibrationResult], Path] | None = None,
) -> int:
    """Show, write and store a result; return the exit code."""
    passed, output = result.verdict is Verdict.PASS, _output(options)
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
    if store is not None and options.results_dir is not None:
        print_line(f'Stored: {store(result)}')
    return 0 if passed else 1


# ------------------------------------------------------------------------- wrenches


def _show_wrenches(digest: Digest, joint_names: Sequence[str]) -> None:
    """Show links, external joint torques of the arm's joints, and contacts."""
    OUT.print(table_of(
        (('link', False), ('instants', True), ('known', True), ('RMS [N]', True),
         ('largest [N]', True), ('at stamp [s]', True)),
        ((item.link, str(item.samples), f'{100.0 * item.share:.1f} %' if item.samples else '–',
          *((f'{item.rms:.3g}', f'{item.peak:.3g}', f'{item.peak_stamp:.3f}') if item.valid
            else ('–', '–', '–'))) for item in digest.links), 'External force on links'))
    for item in digest.links:
        for reason, count in item.reasons.most_common(3):
            print_line(f'{item.link}: unknown at {count} instants. {reason}', 'yellow')
    if digest.torque.count:
        torque = digest.torque
        OUT.print(table_of(
            (('joint', False), ('RMS [N·m]', True), ('largest [N·m]', True),
             ('collisions', True)),
            ((name, f'{rms:.3g}', f'{peak:.3g}', str(count)) for name, rms, peak, count in zip(
                joint_names, torque.rms, torque.peak, torque.collisions, strict=True)),
            'External joint torque'))
    episodes = sorted(sorted(digest.episodes, key=lambda item: -item.peak)[:_MAX_CONTACTS],
                      key=lambda item: item.begin)
    if digest.torque.count and not digest.torque.collisions.any():
        print_line('No collision by joint torques: external torques of up to '
                   f'{digest.torque.peak.max():.3g} N·m are within torque_thresholds and the '
                   'uncertainty of friction and model. A push of that size would not be found.')
    if not episodes:
        print_line('No contacts.' if digest.links else
                   'Contacts on links are not observed: no F/T sensor is in use.')
        return
    OUT.print(table_of(
        (('contact on', False), ('from stamp [s]', True), ('to [s]', True),
         ('largest [N]', True), ('place', False), ('at [mm]', True)),
        ((item.link, f'{item.begin:.3f}', f'{item.end:.3f}', f'{item.peak:.1f}',
          item.contact.place.value, '–' if item.contact.point is None else
          ' '.join(f'{1e3 * value:.0f}' for value in item.contact.point))
         for item in episodes), 'Contacts'))
    if len(digest.episodes) > _MAX_CONTACTS:
        OUT.print(f'The {_MAX_CONTACTS} of {len(digest.episodes)} contacts with the largest '
                  'forces are shown.')
