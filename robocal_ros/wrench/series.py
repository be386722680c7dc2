# SPDX-License-Identifier: Apache-2.0
"""Series of observations: a table of them as CSV, and what they come down to."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.wrench.contact import Contact
from robocal_ros.wrench.observer import FILLING, Observation

COLUMNS = ('stamp', 'link', 'force_x', 'force_y', 'force_z', 'torque_x', 'torque_y', 'torque_z',
           'contact', 'contact_x', 'contact_y', 'contact_z', 'valid', 'reason')
"""Seconds, N, N·m and m, in the link's frame; flags are 0 or 1."""

_BLOCK = 4096
_NO_WRENCH = ('',) * 6
_NO_POINT = ('',) * 3


class WrenchSeries(AbstractContextManager['WrenchSeries']):
    """A file that is being written; a context manager. It is there once it is complete.

    Numbers are written such that they are read back to the last bit; what is not known is empty.

    Attributes:
        path: Where it will be.

    """

    def __init__(self, path: Path, links: Sequence[str]) -> None:
        """Begin the file beside its place.

        Args:
            path: Its place.
            links: Names of the sub-chains.

        Raises:
            ConfigurationError: If it cannot be written.

        """
        self.path = path
        self._links = tuple(links)
        self._block: list[Sequence[Any]] = []
        self._part = path.with_name(f'{path.name}.part')
        try:
            self._file = self._part.open('w', encoding='utf-8', newline='')
        except OSError as error:
            raise ConfigurationError(
                f"The series cannot be written to '{path}': {error}. Name a file in a folder "
                'where you may write.') from error
        self._writer = csv.writer(self._file, lineterminator='\n')
        self._writer.writerow(COLUMNS)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Put the file in its place, or take it away if it is not complete."""
        with self._file:
            self._writer.writerows(self._block)
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink()

    def add(self, stamp: float, observation: Observation) -> None:
        """Write an observation.

        Args:
            stamp: The stamp under which it is told [s].
            observation: The observation.

        """
        told = f'{stamp:.9f}'
        wrenches = observation.wrench.tolist()
        for index in observation.links:
            reason = observation.reasons[index]
            contact = observation.contacts.get(index)
            self._block.append((
                told, self._links[index], *(_NO_WRENCH if reason else wrenches[index]),
                int(contact is not None),
                *(_NO_POINT if contact is None or contact.point is None
                  else contact.point.tolist()), int(not reason), reason))
        if len(self._block) >= _BLOCK:
            self._writer.writerows(self._block)
            self._block.clear()


# ----------------------------------------------------------------------------- digest

_NUMBERS = re.compile(r'[0-9.]+')


@dataclass
class Episode:
    """A contact from its begin to its end.

    Attributes:
        link: Name of the pushed sub-chain.
        begin: Stamp of its first instant [s].
        end: Stamp of its last instant [s].
        peak: Largest force [N].
        contact: What is known of where, at the largest force.

    """

    link: str
    begin: float
    end: float
    peak: float
    contact: Contact


@dataclass
class LinkDigest:
    """One sub-chain throughout.

    Attributes:
        link: Its name.
        samples: At how many instants it was looked at.
        valid: At how many of them its wrench was known.
        peak: Largest force [N].
        peak_stamp: When that was [s].
        reasons: Why its wrench was not known, and how often; windows that fill are left out.

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
        """Share of the instants at which its wrench was known, NaN without any."""
        return self.valid / self.samples if self.samples else np.nan

    @property
    def rms(self) -> float:
        """RMS of the force's size, NaN if it was never known [N]."""
        return float(np.sqrt(self._square / self.valid)) if self.valid else np.nan

    def add(self, stamp: float, force: float) -> None:
        """Count an instant with a known force [N]."""
        self.samples += 1
        self.valid += 1
        self._square += force * force
        if force > self.peak:
            self.peak, self.peak_stamp = force, stamp

    def miss(self, reason: str) -> None:
        """Count an instant without."""
        self.samples += 1
        if not reason.startswith(FILLING):
            # Reasons that differ in their numbers are one; it is told by its first wording.
            kind = _NUMBERS.sub('', reason)
            self.reasons[self._kinds.setdefault(kind, reason)] += 1


class TorqueDigest:
    """External joint torques throughout.

    Attributes:
        count: At how many instants they were known.
        peak: Largest magnitudes, shape (n,) [N·m].
        collisions: How often each joint's torque began to exceed what friction explains, (n,).

    """

    def __init__(self, count: int) -> None:
        """Start with nothing for ``count`` joints."""
        self.count = 0
        self.peak = np.zeros(count)
        self.collisions: npt.NDArray[np.int_] = np.zeros(count, dtype=int)
        self._square = np.zeros(count)
        self._colliding: npt.NDArray[np.bool_] = np.zeros(count, dtype=bool)

    @property
    def rms(self) -> Array:
        """RMS, NaN without any instant, shape (n,) [N·m]."""
        return np.sqrt(self._square / self.count) if self.count else np.full_like(
            self._square, np.nan)

    def add(self, external: Array, colliding: npt.NDArray[np.bool_]) -> None:
        """Count an instant: external torques [N·m] and flags, shape (n,) each."""
        self.count += 1
        self._square += external * external
        np.maximum(self.peak, np.abs(external), out=self.peak)
        if colliding is not self._colliding:
            self.collisions += colliding & ~self._colliding
            self._colliding = colliding


class Digest:
    """Follows a series of observations.

    Attributes:
        links: The sub-chains.
        torque: External joint torques.
        episodes: Contacts, in the order in which they began.

    """

    def __init__(self, links: Sequence[str], joints: int) -> None:
        """Start with nothing.

        Args:
            links: Names of the sub-chains.
            joints: Number of joints.

        """
        self.links = [LinkDigest(link) for link in links]
        self.torque = TorqueDigest(joints)
        self.episodes: list[Episode] = []
        self._open: dict[int, Episode] = {}

    def add(self, stamp: float, observation: Observation) -> None:
        """Take an observation.

        Args:
            stamp: The stamp under which it is told [s].
            observation: The observation.

        """
        force = observation.wrench[:, :3]
        forces = np.sqrt(np.einsum('ij,ij->i', force, force)).tolist()
        for index in observation.links:
            reason = observation.reasons[index]
            if reason:
                self.links[index].miss(reason)
            else:
                self.links[index].add(stamp, forces[index])
            contact = observation.contacts.get(index)
            if contact is not None:
                self._touch(index, stamp, forces[index], contact)
            elif index in self._open:
                del self._open[index]
        if observation.external is not None and observation.colliding is not None:
            self.torque.add(observation.external, observation.colliding)

    def _touch(self, index: int, stamp: float, force: float, contact: Contact) -> None:
        episode = self._open.get(index)
        if episode is None:
            episode = Episode(self.links[index].link, stamp, stamp, force, contact)
            self._open[index] = episode
            self.episodes.append(episode)
        episode.end = stamp
        if force > episode.peak:
            episode.peak, episode.contact = force, contact
