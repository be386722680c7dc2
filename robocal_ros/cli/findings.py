# SPDX-License-Identifier: Apache-2.0
"""Findings of the doctor; nothing here needs a library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Grade(str, Enum):
    """How serious a finding is."""

    GOOD = 'good'
    WARNING = 'warning'
    BAD = 'bad'


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        grade: How serious it is.
        what: What was looked at.
        message: What was found, as a sentence.
        remedy: What to do about it, empty where nothing is to be done.

    """

    grade: Grade
    what: str
    message: str
    remedy: str = ''


def good(what: str, message: str) -> Finding:
    """Return a finding without a remedy."""
    return Finding(Grade.GOOD, what, message)
