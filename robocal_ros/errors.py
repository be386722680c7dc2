# SPDX-License-Identifier: Apache-2.0
"""The one tree of errors: what went wrong, what was expected, what was got, and the cure."""

from __future__ import annotations


class RobocalError(Exception):
    """Base of every error that a user can meet; its text is a sentence with the cure."""


class ConfigurationError(RobocalError):
    """A parameter, name, frame or file that the user gave does not fit the robot."""


class ModelError(RobocalError):
    """The robot description cannot be turned into the model that is needed."""


class DataError(RobocalError):
    """Samples that are missing, out of order, not finite, or not what they claim to be."""


class ExcitationError(RobocalError):
    """The data leave a direction of the parameter space unobservable.

    Attributes:
        rank: Number of observable directions.
        needed: Number of directions that the method needs.
        condition: Condition number of the scaled information matrix.
        unobservable: Names of the unobservable parameters, or directions in words.

    """

    def __init__(
        self,
        message: str,
        *,
        rank: int = 0,
        needed: int = 0,
        condition: float = float('inf'),
        unobservable: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.needed = needed
        self.condition = condition
        self.unobservable = unobservable


class ConvergenceError(RobocalError):
    """A search or an iteration ended without an answer that can be vouched for."""


class MotionError(RobocalError):
    """A motion that was refused before it began, or that did not end where it should."""


class CancelledError(RobocalError):
    """A procedure that was ended on request: cancel, deactivate or shutdown."""


class FileFormatError(RobocalError):
    """A file that is not what it should be: version, robot, or content."""
