# SPDX-License-Identifier: Apache-2.0
"""Series of observations as MCAP or CSV file, and their summary."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import ConfigurationError
from robocal_ros.files import PartFile
from robocal_ros.messages import (
    JOINT_STATE,
    POINT,
    STRING,
    WRENCH,
    McapWriter,
    Stamps,
    serialized,
    to_seconds,
)
from robocal_ros.wrench.contact import Contact
from robocal_ros.wrench.fusion import Fused, Fusion
from robocal_ros.wrench.observer import FILLING, NUMBERS
from robocal_ros.wrench.offline_observer import Block
from robocal_ros.wrench.parameters import CHANNELS, NODE

COLUMNS = ('stamp', 'link', *CHANNELS, 'contact', 'contact_x', 'contact_y', 'contact_z', 'valid',
           'reason')
"""Seconds, N, N·m and m, in the link's frame; flags are 0 or 1."""

_SOURCE = 'tool_wrench/source'
_BOOL = 'std_msgs/msg/Bool'


def series_file(
    path: Path, links: Sequence[str], joints: Sequence[str], fusion: Fusion | None
) -> WrenchSeries:
    """Return the file of a series: CSV if the path ends with .csv, else MCAP.

    Args:
        path: Path of the file.
        links: Names of the sub-chains.
        joints: Names of the joints.
        fusion: The source of tool wrench and covariances, to write them; None for neither.

    Raises:
        ConfigurationError: If it cannot be written.

    """
    if path.suffix != '.csv':
        return McapSeries(path, links, joints, '' if fusion is None else fusion.frame)
    if fusion is not None:
        raise ConfigurationError(
            f"'{path}' cannot hold covariances; name a file with --series that ends with .mcap.")
    return CsvSeries(path, links)


class McapSeries(McapWriter):
    """Series as an MCAP file with the node's topics."""

    def __init__(
        self, path: Path, links: Sequence[str], joints: Sequence[str], tool_frame: str
    ) -> None:
        """Create the file, with tool wrench and covariances if their frame is not empty."""
        self._links, self._joints, self._tool_frame = tuple(links), tuple(joints), tool_frame
        self._covariances = (
            'tool_wrench_covariance', *(f'links/{link}/wrench_covariance' for link in links),
            'external_torque_covariance')
        super().__init__(path)

    def _begin(self) -> None:
        super()._begin()
        self._topics: dict[str, tuple[int, str, bytes]] = {}
        self._said: dict[str, object] = {}
        for link in self._links:
            self._announce(f'links/{link}/wrench', WRENCH, header={'frame_id': link})
            self._announce(f'links/{link}/contact', POINT, header={'frame_id': link})
            self._announce(f'links/{link}/force_lower_bound', 'std_msgs/msg/Float64')
            self._announce(f'links/{link}/in_contact', _BOOL)
            self._announce(f'links/{link}/reason', STRING)
        count = len(self._joints)
        self._announce(
            'external_torque', JOINT_STATE, name=list(self._joints), effort=np.zeros(count))
        for joint in self._joints:
            self._announce(f'joints/{joint}/in_contact', _BOOL)
        if self._tool_frame:
            self._announce('tool_wrench', WRENCH, header={'frame_id': self._tool_frame})
            self._announce(_SOURCE, 'diagnostic_msgs/msg/DiagnosticStatus', values=[])
            for name in self._covariances:
                size = count if name == self._covariances[-1] else 6
                self._announce(name, 'std_msgs/msg/Float64MultiArray', data=np.zeros(size * size),
                               layout={'dim': [
                                   {'label': 'row', 'size': size, 'stride': size * size},
                                   {'label': 'column', 'size': size, 'stride': size}]})

    def _announce(self, name: str, kind: str, /, **fields: Any) -> None:
        self._topics[name] = (
            self.add_topic(f'/{NODE}/{name}', kind), kind, serialized(kind, **fields))

    def add(self, stamps: Stamps, block: Block) -> None:
        """Write observations with the stamps of their publication [ns]."""
        for index, link in enumerate(self._links):
            valid = block.valid[:, index]
            self._write(f'links/{link}/wrench', stamps[valid], block.wrench[valid, index])
            found = {row: contacts[index] for row, contacts in block.contacts.items()
                     if index in contacts}
            touched = np.zeros(len(block), bool)
            touched[list(found)] = True
            points = {row: contact.point for row, contact in found.items()
                      if contact.point is not None}
            self._write(f'links/{link}/contact', stamps[list(points)],
                        np.reshape(list(points.values()), (-1, 3)))
            bounds = {row: contact.least for row, contact in found.items() if contact.least}
            self._write(f'links/{link}/force_lower_bound', stamps[list(bounds)],
                        np.reshape(list(bounds.values()), (-1, 1)), stamped=False)
            seen = block.observed[:, index]
            self._write_flag(f'links/{link}/in_contact', stamps[seen], touched[seen])
            self._write_reasons(index, stamps, block)
        known = block.known
        if self._joints:
            self._write('external_torque', stamps[known], block.external[known])
        for column, name in enumerate(self._joints):
            self._write_flag(f'joints/{name}/in_contact', stamps[known],
                             block.colliding[known, column])
        if block.fused is not None:
            self._write_fused(stamps, block.fused)
        self.flush()

    def _write_fused(self, stamps: Stamps, fused: Fused) -> None:
        told = ~np.isnan(fused.tool_covariance[:, 0])
        self._write('tool_wrench', stamps[told], fused.tool[told])
        for row, (source, problem) in enumerate(fused.sources):
            if source or problem:
                self._note(
                    _SOURCE, stamps, row, (source, NUMBERS.sub('', problem)),
                    level=bool(problem) if source else 2, name='tool wrench',
                    hardware_id=self._tool_frame, message=problem or f'Valid, from {source}.',
                    values=[{'key': 'source', 'value': source or 'none'}])
        for name, rows in zip(self._covariances, (
                fused.tool_covariance, *fused.links.swapaxes(0, 1), fused.torque), strict=True):
            told = ~np.isnan(rows[:, 0])
            self._write(name, stamps[told], rows[told], stamped=False)

    def _write(self, name: str, stamps: Stamps, values: Array, *, stamped: bool = True) -> None:
        topic, _, template = self._topics[name]
        self.write(topic, stamps, template, values, stamped=stamped)

    def _note(self, name: str, stamps: Stamps, row: int, said: object, /, **fields: Any) -> None:
        """Write a message at a row if it says anything else than the one before."""
        if said != self._said.get(name, ''):
            self._said[name] = said
            topic, kind, _ = self._topics[name]
            self.write(topic, stamps[row:row + 1], serialized(kind, **fields), stamped=False)

    def _write_flag(self, name: str, stamps: Stamps, flags: Flags) -> None:
        """Write the changes of a flag."""
        for row in np.flatnonzero(np.diff(flags, prepend=~flags[:1])).tolist():
            self._note(name, stamps, row, bool(flags[row]), data=bool(flags[row]))

    def _write_reasons(self, index: int, stamps: Stamps, block: Block) -> None:
        """Write the changes of the reason of invalid wrenches; empty for valid ones."""
        changes = {row: reasons[index] for row, reasons in block.reasons.items()
                   if block.observed[row, index]}
        begun = np.diff(block.valid[:, index].astype(int), prepend=0) > 0
        changes.update(dict.fromkeys(np.flatnonzero(begun).tolist(), ''))
        for row in sorted(changes):
            self._note(f'links/{self._links[index]}/reason', stamps, row, changes[row],
                       data=changes[row])


class CsvSeries(PartFile):
    """Series as a CSV file, one row for each link and instant.

    Numbers are written with all bits; unknown ones are empty.
    """

    def __init__(self, path: Path, links: Sequence[str]) -> None:
        """Create the file."""
        self._links = tuple(links)
        super().__init__(path)

    def _begin(self) -> None:
        self._write([COLUMNS])

    def _write(self, rows: Iterable[Sequence[object]]) -> None:
        text = StringIO()
        csv.writer(text, lineterminator='\n').writerows(rows)
        self.file.write(text.getvalue().encode())

    def add(self, stamps: Stamps, block: Block) -> None:
        """Write observations with the stamps of their publication [ns]."""
        wrenches, rows = block.wrench.tolist(), []
        observed, valid = block.observed.tolist(), block.valid.tolist()
        for row, stamp in enumerate(to_seconds(stamps).tolist()):
            reasons, contacts = block.reasons.get(row), block.contacts.get(row, {})
            for index, link in enumerate(self._links):
                if not observed[row][index]:
                    continue
                good, contact = valid[row][index], contacts.get(index)
                rows.append((
                    f'{stamp:.9f}', link, *(wrenches[row][index] if good else ('',) * 6),
                    int(contact is not None),
                    *(('',) * 3 if contact is None or contact.point is None
                      else contact.point.tolist()),
                    int(good), '' if good or reasons is None else reasons[index]))
        self._write(rows)


WrenchSeries = McapSeries | CsvSeries
"""File of observations."""


# ----------------------------------------------------------------------------- digest

@dataclass
class Episode:
    """One contact from start to end.

    Attributes:
        link: Name of the sub-chain.
        begin: Stamp of its first instant [s].
        end: Stamp of its last instant [s].
        peak: Largest force [N].
        contact: The contact at the largest force.

    """

    link: str
    begin: float
    end: float
    peak: float
    contact: Contact


@dataclass
class LinkDigest:
    """Summary of one sub-chain.

    Attributes:
        link: Its name.
        samples: Number of instants.
        valid: Number of instants with a valid wrench.
        peak: Largest force [N].
        peak_stamp: Stamp of the largest force [s].
        reasons: Counts of the reasons of invalid wrenches, without filling windows.

    """

    link: str
    samples: int = 0
    valid: int = 0
    peak: float = 0.0
    peak_stamp: float = np.nan
    reasons: Counter[str] = field(default_factory=Counter)
    _square: float = 0.0
    _kinds: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of instants with a valid wrench, NaN without instants."""
        return self.valid / self.samples if self.samples else np.nan

    @property
    def rms(self) -> float:
        """RMS of the force's magnitude, NaN if it was never valid [N]."""
        return float(np.sqrt(self._square / self.valid)) if self.valid else np.nan

    def add(self, stamps: Stamps, forces: Array) -> None:
        """Add instants with valid forces [N], shape (m,) each."""
        self.valid += len(forces)
        self._square += float(forces @ forces)
        if forces.max(initial=0.0) > self.peak:
            self.peak = float(forces.max())
            self.peak_stamp = to_seconds(int(stamps[np.argmax(forces)]))

    def miss(self, reason: str) -> None:
        """Add an instant with an invalid wrench."""
        if not reason.startswith(FILLING):
            # Reasons that differ in numbers only are counted under the first one.
            kind = NUMBERS.sub('', reason)
            self.reasons[self._kinds.setdefault(kind, reason)] += 1


class TorqueDigest:
    """Summary of the external joint torques.

    Attributes:
        count: Number of instants with known torques.
        peak: Largest magnitudes, shape (n,) [N·m].
        collisions: Number of times that each joint's torque exceeded its threshold, shape (n,).

    """

    def __init__(self, count: int) -> None:
        """Start empty for ``count`` joints."""
        self.count = 0
        self.peak = np.zeros(count)
        self.collisions: npt.NDArray[np.int_] = np.zeros(count, dtype=int)
        self._square = np.zeros(count)
        self._colliding: Flags = np.zeros(count, dtype=bool)

    @property
    def rms(self) -> Array:
        """RMS, NaN without instants, shape (n,) [N·m]."""
        return np.sqrt(self._square / self.count) if self.count else np.full_like(
            self._square, np.nan)

    def add(self, external: Array, colliding: Flags) -> None:
        """Add instants: external torques [N·m] and flags, shape (m, n) each."""
        self.count += len(external)
        self._square += (external * external).sum(axis=0)
        self.peak = np.maximum(self.peak, np.abs(external).max(axis=0, initial=0.0))
        every = np.vstack((self._colliding, colliding))
        self.collisions += (every[1:] & ~every[:-1]).sum(axis=0)
        self._colliding = every[-1]


class Digest:
    """Summary of a series of observations.

    Attributes:
        links: Summaries of the sub-chains.
        torque: Summary of the external joint torques.
        episodes: Contacts in the order of their start.

    """

    def __init__(self, links: Sequence[str], joints: int) -> None:
        """Start empty.

        Args:
            links: Names of the sub-chains.
            joints: Number of joints.

        """
        self.links = [LinkDigest(link) for link in links]
        self.torque = TorqueDigest(joints)
        self.episodes: list[Episode] = []
        # Episode and its newest instant, by sub-chain with a contact.
        self._open: dict[int, tuple[Episode, int]] = {}

    def add(self, stamps: Stamps, block: Block) -> None:
        """Add observations with the stamps of their publication [ns]."""
        force = block.force
        numbers = np.cumsum(block.observed, axis=0)
        before = [item.samples for item in self.links]
        for index, item in enumerate(self.links):
            valid = block.valid[:, index]
            item.samples += int(block.observed[:, index].sum())
            item.add(stamps[valid], force[valid, index])
        for row, reasons in block.reasons.items():
            for index in np.flatnonzero(block.observed[row] & ~block.valid[row]).tolist():
                self.links[index].miss(reasons[index])
        for row in sorted(block.contacts):
            stamp = to_seconds(int(stamps[row]))
            for index, contact in block.contacts[row].items():
                size = contact.least or float(force[row, index])
                number = before[index] + int(numbers[row, index])
                episode, newest = self._open.get(index, (None, -1))
                if episode is None or number != newest + 1:
                    episode = Episode(self.links[index].link, stamp, stamp, size, contact)
                    self.episodes.append(episode)
                self._open[index] = episode, number
                episode.end = stamp
                if size > episode.peak:
                    episode.peak, episode.contact = size, contact
        self.torque.add(block.external[block.known], block.colliding[block.known])
