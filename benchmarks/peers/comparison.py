# SPDX-License-Identifier: Apache-2.0
"""Rows of a comparison of methods, its tables, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.benchmark import Table
from benchmarks.figures import Figure
from benchmarks.peers.process import Run
from robocal_ros.arrays import Array
from robocal_ros.results import rms

Z999 = 3.290527
NO_VERDICT = 'no verdict'
COLUMNS = ('errors are given as the median over the cases, and the worst one in parentheses; z is '
           'the RMS of errors over the standard deviations that a method states; a result is '
           'silently wrong if the method does not doubt it and an error that matters is outside '
           'its 99.9 % interval, or it states none.')
"""Explanation of the columns."""


@dataclass(frozen=True)
class Row:
    """A method on one set of samples.

    Attributes:
        case: Kind of the samples.
        method: Name of the method.
        seed: Seed of the samples; 0 for a recording.
        errors: Errors by quantity with unit.
        z: RMS of errors over standard deviations; None without a claim or a truth.
        verdict: What the method says of its own result.
        silent: Whether it is wrong without a word.
        seconds: Processor time [s].
        memory: Peak memory of its process [MiB].
        reason: Reason why there is no result.
        note: Settings.

    """

    case: str
    method: str
    seed: int = 0
    errors: Mapping[str, float] = field(default_factory=dict)
    z: float | None = None
    verdict: str = ''
    silent: bool = False
    seconds: float = np.nan
    memory: float = np.nan
    reason: str = ''
    note: str = ''

    @property
    def trusted(self) -> bool:
        """Whether the method does not doubt its result."""
        return self.verdict in ('pass', NO_VERDICT)


def judged(
    row: Row, done: Run, error: Array, std: Array | None, half: Array | None, matters: Array
) -> Row:
    """Return a row with claims compared with errors.

    Args:
        row: The row with errors and verdict.
        done: Run of the method.
        error: Errors, shape (k,).
        std: Their standard deviations; None without a claim.
        half: Half of their 99.9 % intervals, by default those of a normal distribution.
        matters: Errors that matter, shape (k,).

    """
    if half is None:
        half = np.zeros(len(error)) if std is None else Z999 * std
    outside = np.abs(error) > np.maximum(matters, np.nan_to_num(half))
    return Row(row.case, row.method, row.seed, row.errors,
               None if std is None else rms((error / std)[np.isfinite(error / std)]),
               row.verdict, row.trusted and bool(outside.any()), done.seconds, done.memory,
               note=row.note)


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Yield a table for each case."""
    for case in dict.fromkeys(row.case for row in rows):
        own = [row for row in rows if row.case == case]
        quantities = list(dict.fromkeys(name for row in own for name in row.errors))
        yield Table(case, (
            'method', *quantities, 'z', 'not doubted', 'silently wrong', 'processor time [ms]',
            'peak memory [MiB]', 'remark'),
            [_cells([row for row in own if row.method == method], quantities)
             for method in dict.fromkeys(row.method for row in own)])


def _cells(rows: Sequence[Row], quantities: Sequence[str]) -> list[str | float | None]:
    done = [row for row in rows if row.errors]
    claims = [row.z for row in done if row.z is not None]
    reasons = dict.fromkeys(row.reason or row.note for row in rows)
    return [
        rows[0].method, *(_spread([row.errors[name] for row in done if name in row.errors])
                          for name in quantities),
        float(np.median(claims)) if claims else 'no claim' if done else None,
        f'{sum(row.trusted for row in done)} of {len(rows)}' if done else None,
        f'{sum(row.silent for row in done)} of {len(rows)}' if done else None,
        1e3 * float(np.median([row.seconds for row in done])) if done else None,
        float(np.median([row.memory for row in done])) if done else None,
        '; '.join(reason for reason in reasons if reason)]


def _spread(values: Sequence[float]) -> str | float | None:
    if not values:
        return None
    if len(values) == 1:
        return values[0]
    return f'{np.median(values):.3g} ({np.max(values):.3g})'


def limits(
    rows: Sequence[Row], against: Mapping[str, Sequence[str]], reason: str
) -> Iterator[Figure]:
    """Yield the limits of the product's methods: never silent, and no worse than the best other.

    Args:
        rows: All rows.
        against: Other methods that compete with each of the product's.
        reason: Why limits are missed.

    """
    for case in dict.fromkeys(row.case for row in rows):
        for mine, others in against.items():
            own = [row for row in rows if (row.case, row.method) == (case, mine) and row.errors]
            if not own:
                continue
            silent = sum(row.silent for row in own)
            yield Figure(f'{case}: {mine}', f'silently wrong, of {len(own)}', '1', silent, silent,
                         0.0)
            for name in own[0].errors:
                best = min((float(np.median(found)) for other in others if (found := [
                    row.errors[name] for row in rows
                    if (row.case, row.method) == (case, other) and name in row.errors])),
                    default=np.nan)
                if np.isfinite(best):
                    ratio = float(np.median([row.errors[name] for row in own])) / best
                    yield Figure(f'{case}: {mine}', f'{name}, median ÷ that of the best other',
                                 '1', ratio, ratio, 1.0, reason=reason)
