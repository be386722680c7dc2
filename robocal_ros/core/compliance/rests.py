# SPDX-License-Identifier: Apache-2.0
"""Rests that a procedure marked: which end positions they are, and what for."""

from __future__ import annotations

from collections.abc import Sequence

from robocal_ros.core.compliance.positions import EndPosition, end_position
from robocal_ros.core.compliance.tracker import TrackerSamples
from robocal_ros.core.marks import Rest
from robocal_ros.core.samples import JointSamples
from robocal_ros.errors import DataError

UNLOADED, LOADED, REGISTRATION = 'unloaded', 'loaded', 'registration'
PURPOSES = (UNLOADED, LOADED, REGISTRATION)
"""What an end position is for: one of the two sets, or to place the tracker."""


def rest_of(position: EndPosition, purpose: str, posture: int) -> Rest:
    """Return when an end position was measured, and what for."""
    return Rest(position.begin, position.end, purpose, posture)


def measured(
    joints: JointSamples, readings: TrackerSamples, rests: Sequence[Rest]
) -> dict[str, list[EndPosition]]:
    """Return the end positions of marked rests.

    Args:
        joints: Joint states, or their averages over each rest.
        readings: Readings of the tracker.
        rests: Rests, in the order of measuring.

    Returns:
        End positions by purpose, in the order of measuring.

    Raises:
        DataError: If the record lacks what was measured in a rest.

    """
    found: dict[str, list[EndPosition]] = {purpose: [] for purpose in PURPOSES}
    for rest in rests:
        if rest.purpose not in found:
            continue
        try:
            found[rest.purpose].append(end_position(joints, readings, rest.begin, rest.end))
        except DataError as error:
            raise DataError(
                f'The marks tell of a rest in posture {rest.posture + 1} ({rest.purpose}) from '
                f'{rest.begin:.3f} s to {rest.end:.3f} s, which is not in the record: {error} '
                'Record joint states and tracker from the beginning, or leave the marks aside '
                'with --whole.') from error
    return found
