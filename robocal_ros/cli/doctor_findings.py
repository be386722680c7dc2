# SPDX-License-Identifier: Apache-2.0
"""Findings of `robocal doctor`; this module needs no library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Grade(str, Enum):
    """Severity of a finding."""

    GOOD = 'good'
    WARNING = 'warning'
    BAD = 'bad'


@dataclass(frozen=True)
class Finding:
    """Outcome of one check.

    Attributes:
        grade: Severity.
        what: Object of the check.
        message: A sentence.
        remedy: What to do, empty for nothing.

    """

    grade: Grade
    what: str
    message: str
    remedy: str = ''


def good(what: str, message: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(Grade.GOOD, what, message)


def doubtful(what: str, message: str, remedy: str) -> Finding:
    """Return a finding that may spoil results."""
    return Finding(Grade.WARNING, what, message, remedy)


def bad(what: str, message: str, remedy: str = '') -> Finding:
    """Return a finding that must be remedied."""
    return Finding(Grade.BAD, what, message, remedy)
