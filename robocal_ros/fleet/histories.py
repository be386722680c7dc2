# SPDX-License-Identifier: Apache-2.0
"""Series of estimates and their courses: segments, changes and outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.results import Z95


@dataclass(frozen=True)
class History:
    """Estimates of one parameter of one robot, in the order of time.

    Attributes:
        time: Times [s], strictly increasing, shape (n,).
        value: Estimates, shape (n,).
        std: Stated standard deviations, positive, shape (n,).
        freedom: Degrees of freedom of ``std``, ∞ if it is known, shape (n,).
        temperature: Temperatures [°C], NaN where unknown, shape (n,).
        sensitivity: Prior standard deviation of the temperature coefficient [unit of the value/K].

    """

    time: Array
    value: Array
    std: Array
    freedom: Array
    temperature: Array
    sensitivity: float = 0.0

    def __post_init__(self) -> None:
        """Check the arrays; raises DataError."""
        shapes = {array.shape for array in (
            self.time, self.value, self.std, self.freedom, self.temperature)}
        if len(shapes) != 1 or self.time.ndim != 1:
            raise DataError(f'The arrays of a history have the shapes {sorted(shapes)}; expected '
                            'one number per recording in each.')
        if not (np.isfinite(self.value).all() and np.isfinite(self.time).all()
                and (self.std > 0.0).all() and np.isfinite(self.std).all()
                and (self.freedom > 0.0).all()):
            raise DataError('A history has values, deviations or degrees of freedom that are not '
                            'finite or not positive; leave those recordings out.')
        if (np.diff(self.time) <= 0.0).any():
            raise DataError('The times of a history do not increase; sort the recordings, and '
                            'keep one of each time.')


@dataclass(frozen=True)
class Change:
    """A step or a trend.

    Attributes:
        kind: ``step`` or ``trend``.
        index: First recording after the step, or at which the trend is likely to begin.
        first: Earliest such recording, with 95 % probability for `first` to `last`.
        last: Latest such recording.
        alarm: Recording at which it was found.
        size: Size of the step, or rate of the trend per year.
        std: Standard deviation of `size`.
        log_evidence: Logarithm of the evidence at the alarm; the probability that it is ever as
            large in a series without change is at most exp(−log_evidence).

    """

    kind: str
    index: int
    first: int
    last: int
    alarm: int
    size: float
    std: float
    log_evidence: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the size."""
        return self.size - Z95 * self.std, self.size + Z95 * self.std


@dataclass(frozen=True)
class Outlier:
    """A single recording that deviates.

    Attributes:
        index: Recording.
        deviation: Value minus prediction from the recordings before.
        std: Standard deviation of `deviation`.
        probability: Probability of a deviation as large without a cause.

    """

    index: int
    deviation: float
    std: float
    probability: float


@dataclass(frozen=True)
class Segment:
    """Recordings between two changes.

    Attributes:
        start: First recording.
        stop: One more than the last.
        level: Value at the reference temperature, at the last recording if there is a trend.
        std: Its standard deviation.
        rate: Trend per year; 0 without one.
        rate_std: Its standard deviation.
        scatter: Standard deviation between recordings beyond the stated one (posterior mean).
        coefficient: Temperature coefficient [unit/K].
        coefficient_std: Its standard deviation.

    """

    start: int
    stop: int
    level: float
    std: float
    rate: float
    rate_std: float
    scatter: float
    coefficient: float
    coefficient_std: float

    @property
    def count(self) -> int:
        """Number of recordings."""
        return self.stop - self.start


@dataclass(frozen=True)
class Course:
    """Course of one series: segments, the changes between them, and outliers.

    Attributes:
        segments: At least one.
        changes: In the order of time; one fewer than the segments.
        outliers: Recordings that deviate by themselves.
        reference: Reference temperature [°C]; NaN if no temperature is known.
        corrected: Values at the reference temperature, shape (n,).

    """

    segments: tuple[Segment, ...]
    changes: tuple[Change, ...]
    outliers: tuple[Outlier, ...]
    reference: float
    corrected: Array
