# SPDX-License-Identifier: Apache-2.0
"""Error classes; messages state what happened, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RobocalError(Exception):
    """Base of all errors shown to users."""


class ConfigurationError(RobocalError):
    """Parameter, name, frame or file given by the user that does not fit the robot."""


class ModelError(RobocalError):
    """Robot description from which the required model cannot be built."""


class DataError(RobocalError):
    """Samples that are missing, out of order, not finite, or inconsistent."""


class ExcitationError(RobocalError):
    """Data that leave a direction of the parameter space unobservable.

    Attributes:
        rank: Number of observable directions.
        needed: Number of directions that the method needs.
        condition: Condition number of the scaled information matrix.
        unobservable: Names of the unobservable parameters, or directions in words.

    """

    def __init__(
        self, message: str, *, rank: int = 0, needed: int = 0, condition: float = float('inf'),
        unobservable: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.needed = needed
        self.condition = condition
        self.unobservable = unobservable


class ConvergenceError(RobocalError):
    """Search or iteration that ended without a valid solution."""


class MotionError(RobocalError):
    """Motion that was refused, or that did not reach its goal."""


class CancelledError(RobocalError):
    """Procedure that was ended on request: cancel, deactivate or shutdown."""


class FileFormatError(RobocalError):
    """File of the wrong version, robot or content."""


def nearest_name(name: str, known: Iterable[str], similarity: float = 0.5) -> str:
    """Return the known name that was probably meant, to go on a sentence; empty if none is near.

    Args:
        name: The name that is not known.
        known: The known ones.
        similarity: The least similarity, from 0 to 1.

    """
    near = get_close_matches(name, list(known), 1, similarity)
    return f"; '{near[0]}' is the nearest name" if near else ''
