# SPDX-License-Identifier: Apache-2.0
"""Findings of `robocal doctor`; this module needs no library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial


class Grade(str, Enum):
    """Severity of a finding, and its mark."""

    GOOD = '[green]✓[/]'
    WARNING = '[yellow]![/]'
    BAD = '[red]✗[/]'


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


good, doubtful, bad = (partial(Finding, grade) for grade in Grade)
"""Make a finding that needs no action, may spoil results, or must be remedied."""
