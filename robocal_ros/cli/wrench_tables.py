# SPDX-License-Identifier: Apache-2.0
"""What a series of external wrenches comes down to, as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from robocal_ros.cli.tables import table_of
from robocal_ros.core.arrays import Array
from robocal_ros.core.wrench.digest import Digest, Episode, TorqueDigest

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
