# SPDX-License-Identifier: Apache-2.0
"""External wrenches as a table of comma-separated values, one row for each link and instant."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from robocal_ros.errors import ConfigurationError
from robocal_ros.wrench.observation import Observation

COLUMNS = ('stamp', 'link', 'force_x', 'force_y', 'force_z', 'torque_x', 'torque_y', 'torque_z',
           'contact', 'contact_x', 'contact_y', 'contact_z', 'valid', 'reason')
"""Seconds, N, N·m and m, in the link's frame; flags are 0 or 1."""

_BLOCK = 4096
_NO_WRENCH = ('',) * 6
_NO_POINT = ('',) * 3


class WrenchSeries:
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

    def __enter__(self) -> WrenchSeries:
        """Do nothing."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
                int(observation.in_contact[index]),
                *(_NO_POINT if contact is None or contact.point is None
                  else contact.point.tolist()), int(not reason), reason))
        if len(self._block) >= _BLOCK:
            self._writer.writerows(self._block)
            self._block.clear()
