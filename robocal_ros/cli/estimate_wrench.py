# SPDX-License-Identifier: Apache-2.0
"""`robocal estimate wrench`: observe a bag sample by sample, and show the observations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT, ProgressView, print_line, table_of
from robocal_ros.wrench import (
    Digest,
    Episode,
    TorqueDigest,
    WrenchFollowing,
    WrenchOutcome,
    series_file,
)

# Largest number of contacts shown: those with the largest forces.
_MAX_CONTACTS = 30


def follow(
    following: WrenchFollowing, name: str, series: Path, *, covariances: bool
) -> WrenchOutcome:
    """Observe a bag, show the progress, and write the series to a file."""
    tool_frame = following.tool_frame if covariances else ''
    with (
        ProgressView(f'Reading {name}') as view,
        series_file(
            series, following.links, following.robot.joint_names, tool_frame) as writer,
    ):
        return following.run(writer, lambda count: view.update(
            100.0 * count / max(following.messages, 1), f'{count} messages'), fused=covariances)


def show_wrenches(digest: Digest, joint_names: Sequence[str]) -> None:
    """Show links, external joint torques of the arm's joints, and contacts."""
    OUT.print(_link_table(digest))
    for item in digest.links:
        for reason, count in item.reasons.most_common(3):
            print_line(f'{item.link}: unknown at {count} instants. {reason}', 'yellow')
    if digest.torque.count:
        OUT.print(_torque_table(digest.torque, joint_names))
    episodes = sorted(sorted(digest.episodes, key=lambda item: -item.peak)[:_MAX_CONTACTS],
                      key=lambda item: item.begin)
    if not episodes:
        OUT.print('No contacts.')
        return
    OUT.print(_contact_table(episodes))
    if len(digest.episodes) > _MAX_CONTACTS:
        OUT.print(f'The {_MAX_CONTACTS} of {len(digest.episodes)} contacts with the largest '
                  'forces are shown.')


def _link_table(digest: Digest) -> Table:
    table = table_of((('link', False), ('instants', True), ('known', True), ('RMS [N]', True),
                      ('largest [N]', True), ('at stamp [s]', True)), 'External force on links')
    for item in digest.links:
        if item.valid:
            figures = (f'{item.rms:.3g}', f'{item.peak:.3g}', f'{item.peak_stamp:.3f}')
        else:
            figures = ('–', '–', '–')
        known = f'{100.0 * item.share:.1f} %' if item.samples else '–'
        table.add_row(item.link, str(item.samples), known, *figures)
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
