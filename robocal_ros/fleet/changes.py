# SPDX-License-Identifier: Apache-2.0
"""Changes in series of estimates: steps, trends and single outliers, one recording at a time.

Model of one series of recordings i, in a segment without changes:

    y_i = level + c (T_i − T_0) + e_i,   e_i ~ Student(min(ν_i, 20)) · √(s_i² + τ²)

with the stated standard deviation s_i and its degrees of freedom ν_i, the temperature T_i, an
unknown temperature coefficient c with a physical prior width, and an unknown scatter τ between
recordings. Stated deviations are often smaller than what differs from recording to recording, and
few recordings say little about τ, so that τ is integrated over a grid with a wide prior, or with
one that siblings share (empirical Bayes).

After every recording, the evidence of all changes that may have happened is compared with that of
none: steps, and trends that begin at some recording, each with a prior of its size and time. The
statistic is the mixture of likelihood ratios

    E_n = Σ_k π_k p(y_1 … y_n | change at k) / p(y_1 … y_n | no change),   Σ π_k ≤ 1

which is a nonnegative martingale of mean 1 without a change, so that it ever exceeds 1/α with a
probability of at most α, at whatever number of recordings (Ville's inequality; Robbins,
Statistical Methods Related to the Law of the Iterated Logarithm, Ann. Math. Stat. 41 (1970) 1397,
doi 10.1214/aoms/1177696786; for unknown scatter Lai, On Confidence Sequences, Ann. Stat. 4 (1976)
265, doi 10.1214/aos/1176343406). With equal π_k it is the Shiryaev-Roberts statistic of change
detection (Shin, Ramdas, Rinaldo, E-detectors, New Engl. J. Stat. Data Sci. 2 (2024) 229,
doi 10.51387/23-NEJSDS51). The bound is not tight: statistics overshoot it, only some k are
looked at, and a step counts with its third recording. The threshold therefore is below 1/α, so
that the rate of false alarms measured by `benchmarks/fleet_changes.py` meets `FALSE_ALARMS`.

Recordings of one session, less than half a day apart, share what differs from session to session:
they count as one, their weighted mean, whose scatter is that between sessions. The rate holds for
sessions that are independent otherwise, and for temperatures that are recorded or do not follow
the seasons.

A single recording must not carry the evidence of a change; one that deviates by more than
Student's distribution with five degrees of freedom explains is an outlier of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError
from robocal_ros.fleet.statistics import Fit, Problem, fit, log_sum, population
from robocal_ros.results import Z95, grouped, spread

FALSE_ALARMS = 1e-3
"""Largest probability that a series of `HORIZON` recordings without change has any finding."""
HORIZON = 52
CONFIDENCE = (
    f'At most {1000 * FALSE_ALARMS:.0f} of 1000 series of {HORIZON} recordings without change has '
    'any finding, if days of recordings are independent and temperatures are recorded or do not '
    'follow the seasons')
_BASELINE = 4
"""Number of recordings of a segment before which no change is looked for."""
CONFIRMATION = 3
"""Number of recordings after a step before which it is no finding."""

# Share of the false alarms for outliers.
_OUTLIER_ALARMS = 0.3 * FALSE_ALARMS
# Largest degrees of freedom of a recording's deviation, and those of the test of outliers.
_FREEDOM, _OUTLIER_FREEDOM = 20.0, 5.0
_RATIOS = np.geomspace(0.1, 1000.0, 17)
"""Grid of the scatter over the stated standard deviation. Drivers that zero their sensors before
each recording make the biases scatter by hundreds."""
# Median and width of its prior, which is normal in the logarithm.
_RATIO, _RATIO_WIDTH = 0.8, 1.0
# Prior width of steps, and of trends per half year, over the deviation of a recording.
_STEP, _TREND = 5.0, 12.0
_HALF_YEAR = 0.5 * 365.25 * 86400.0
# Numbers of recordings after a change that are looked at; neighbours share their evidence.
_STEPS = (3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 46)
_RAMPS = (6, 9, 13, 19, 28, 40)
# Further recordings after an alarm before kind and time of the change are decided.
_SETTLING = 4
# Logarithm of the evidence of an alarm, by simulation.
_THRESHOLD = -np.log(3.5e-3)
# Logarithm of the evidence below the alarm, and probability of a deviation, by least squares, at
# which Student's distribution is used.
_MARGIN, _DEVIATING = 5.0, 0.01
# Share of robots whose scatter differs from that of their group.
_STRANGER = 0.05
# Largest share of the evidence that one recording may have.
_SHARE = 2.0 / 3.0
# Smallest group whose scatter is pooled, the number of recordings of its members, and the largest
# number of members asked; widths of the logarithm of the scatter within a group.
_GROUP, _LONG, _ASKED = 6, 8, 24
_WIDTHS = (0.35, 0.5, 0.7, 1.0)
_BATCH = 1024
# Longest time between recordings of one session [s].
_SESSION = 0.5 * 86400.0

_WHOLE = np.arange(len(_RATIOS))[None]

Index = npt.NDArray[np.intp]


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


# ------------------------------------------------------------------------------ series


class _Evidence(NamedTuple):
    """What a series without change says of scatter and temperature.

    Attributes:
        unit: Stated standard deviation.
        scatter: Logarithm of the likelihood of each scatter of the grid, (g,).
        coefficient: Temperature coefficient over the level [1/K]; NaN if unknown.
        coefficient_std: Its standard deviation, apart from the prior.

    """

    unit: float
    scatter: Array
    coefficient: float
    coefficient_std: float


class _Prior(NamedTuple):
    """Distributions over a group: of the logarithm of the scatter, and of the coefficient."""

    scatter: tuple[float, float]
    coefficient: tuple[float, float] | None


def _normal_weights(places: Array, middle: float, width: float) -> Array:
    """Return logarithms of normalised weights of a grid along the last axis."""
    return np.asarray(scipy.special.log_softmax(-0.5 * ((places - middle) / width)**2, axis=-1))


_shares = partial(scipy.special.softmax, axis=-1)
"""Weights along the last axis, of sum 1, from their logarithms."""


def courses(
    histories: Sequence[History], groups: Sequence[Hashable] | None = None
) -> list[Course]:
    """Find the changes of each series, as they would have been found recording by recording.

    Args:
        histories: Series of one recording or more, of any lengths.
        groups: Group of each series, such as one parameter of robots of one model: the scatter and
            the temperature coefficient are expected to be alike in a group, which reveals
            changes earlier. None if every series stands for itself.

    Raises:
        DataError: A series is empty.

    """
    if any(not len(history.time) for history in histories):
        raise DataError('A history has no recording; leave it out.')
    priors: list[_Prior | None] = [None] * len(histories)
    groups = groups or ()
    members = grouped(range(len(groups)), groups.__getitem__)
    long = {group: [i for i in indices if len(_begins(histories[i])) >= _LONG]
            for group, indices in members.items()}
    asked = {group: [indices[k] for k in spread(len(indices), _ASKED)]
             for group, indices in long.items() if len(indices) >= _GROUP}
    chosen = [i for indices in asked.values() for i in indices]
    alone = dict(zip(chosen, _scanned(
        [histories[i] for i in chosen], [None] * len(chosen)), strict=True))
    for group, indices in asked.items():
        prior = _pooled([own for i in indices if (own := alone[i][1]) is not None])
        for i in members[group]:
            priors[i] = prior
    return [course for course, _ in _scanned(histories, priors)]


def _begins(history: History) -> Index:
    """Return the first recording of each session."""
    return np.flatnonzero(np.diff(history.time, prepend=-np.inf) > _SESSION)


def _sessions(history: History) -> History:
    """Return one estimate for each session."""
    begins = _begins(history)
    weight = history.std**-2.0
    total = np.add.reduceat(weight, begins)
    # Of the recordings with a known temperature.
    known = weight * np.isfinite(history.temperature)
    with np.errstate(invalid='ignore'):
        warm = np.add.reduceat(known * np.nan_to_num(history.temperature), begins) / (
            np.add.reduceat(known, begins))
    return History(
        history.time[begins], np.add.reduceat(weight * history.value, begins) / total,
        total**-0.5, np.minimum.reduceat(history.freedom, begins), warm, history.sensitivity)


def _scanned(
    histories: Sequence[History], priors: Sequence[_Prior | None]
) -> list[tuple[Course, _Evidence | None]]:
    """Scan all series in batches of similar length."""
    found: dict[int, tuple[Course, _Evidence | None]] = {}
    order = sorted(range(len(histories)), key=lambda i: len(_begins(histories[i])))
    for begin in range(0, len(order), _BATCH):
        chosen = order[begin:begin + _BATCH]
        scan = _Scan([histories[i] for i in chosen], [priors[i] for i in chosen])
        found.update(zip(chosen, scan.run(), strict=True))
    return [found[i] for i in range(len(histories))]


def _pooled(members: Sequence[_Evidence]) -> _Prior | None:
    """Estimate the distributions over a group; None if it is too small.

    The scatter by the largest integrated likelihood, the coefficient by random effects.
    """
    if len(members) < _GROUP:
        return None
    units = np.log([member.unit for member in members])
    likelihood = np.array([member.scatter for member in members])
    # Logarithms of the scatter itself, (members, grid).
    places = np.log(_RATIOS) + units[:, None]
    best = (-np.inf, 0.0, 0.0)
    for width in _WIDTHS:
        for middle in np.arange(places.min(), places.max(), 0.1):
            total = float(log_sum(likelihood + _normal_weights(places, middle, width)).sum())
            best = max(best, (total, float(middle), width))
    known = [member for member in members if np.isfinite(member.coefficient_std)]
    if len(known) < _GROUP:
        return _Prior(best[1:], None)
    found = population(np.array([member.coefficient for member in known]),
                       np.array([member.coefficient_std for member in known]))
    return _Prior(best[1:], (float(found.mean), float(np.hypot(found.std, found.between))))


# -------------------------------------------------------------------------------- scan


class _Hypotheses(NamedTuple):
    """Changes that may have happened.

    Attributes:
        onset: First changed recordings, shape (s, h).
        trend: True for a trend, False for a step, shape (s, h).
        prior: Logarithms of prior probabilities, shape (s, h).

    """

    onset: Index
    trend: Flags
    prior: Array


class _Scan:
    """A batch of series, scanned in lockstep; values in units of the stated deviation.

    Indices are those of sessions; courses have those of recordings.
    """

    def __init__(self, recorded: Sequence[History], priors: Sequence[_Prior | None]) -> None:
        """Set the series, by rising number of sessions, and their priors."""
        self.recorded, histories = recorded, [_sessions(history) for history in recorded]
        self.count = np.array([len(history.time) for history in histories])
        size, longest = len(histories), int(self.count.max())
        self.unit, self.centre, self.reference, self.warm_precision = (
            np.empty(size) for _ in range(4))
        self.value, self.warmth, self.time = (np.zeros((size, longest)) for _ in range(3))
        self.std, self.freedom = (np.ones((size, longest)) for _ in range(2))
        for row, history in enumerate(histories):
            n, early = self.count[row], slice(0, _BASELINE)
            # Of the first recordings alone: a prior must not depend on later ones.
            self.unit[row] = unit = float(np.median(history.std[early]))
            self.centre[row] = centre = float(np.median(history.value[early]))
            known = np.isfinite(history.temperature)
            warm = history.temperature[known]
            self.reference[row], spread, sensitivity = (
                (warm.mean(), warm.std(), history.sensitivity / unit) if len(warm)
                else (np.nan, 0.0, 0.0))
            self.value[row, :n] = (history.value - centre) / unit
            self.warmth[row, :n] = np.where(
                known & (sensitivity > 0.0), history.temperature - self.reference[row], 0.0)
            # A recording without temperature, among others with one, may be as warm as any.
            missing = np.where(known, 0.0, sensitivity * max(spread, 1.0))
            self.std[row, :n] = np.hypot(history.std / unit, missing)
            self.freedom[row, :n] = np.minimum(history.freedom, _FREEDOM)
            self.time[row, :n] = (history.time - history.time[0]) / _HALF_YEAR
            self.warm_precision[row] = sensitivity**-2 if sensitivity > 0.0 else 1.0
        self.rejected = np.zeros((size, longest), dtype=bool)
        self.start = np.zeros(size, dtype=int)
        self.trend = np.zeros(size, dtype=bool)
        self.warm = np.zeros(size)
        wide = _normal_weights(np.log(_RATIOS), np.log(_RATIO), _RATIO_WIDTH)
        self.weight = np.tile(wide, (size, 1))
        for row, prior in enumerate(priors):
            if prior is None:
                continue
            own = _normal_weights(np.log(_RATIOS * self.unit[row]), *prior.scatter)
            # A robot may differ from its group.
            self.weight[row] = np.logaddexp(own + np.log(1.0 - _STRANGER),
                                            wide + np.log(_STRANGER))
            if prior.coefficient is not None and self.warmth[row].any():
                level = abs(self.centre[row]) / self.unit[row]
                self.warm[row] = prior.coefficient[0] * level
                self.warm_precision[row] = max(
                    (prior.coefficient[1] * level)**-2.0, self.warm_precision[row])
        self.changes: list[list[Change]] = [[] for _ in histories]
        self.segments: list[list[Segment]] = [[] for _ in histories]
        self.outliers: list[list[Outlier]] = [[] for _ in histories]
        self.alarm = np.full(size, -1)
        self.strength = np.zeros(size)

    # ------------------------------------------------------------------------ one segment

    def _columns(self, rows: Index, stop: int) -> Array:
        """Return level, temperature and trend of the segments, shape (s, stop, 3)."""
        since = self.time[rows, :stop] - self.time[rows, self.start[rows]][:, None]
        return np.stack((np.ones_like(since), self.warmth[rows, :stop],
                         np.where(self.trend[rows, None], since, 0.0)), axis=-1)

    def _problem(self, rows: Index, stop: int, grid: Index = _WHOLE) -> Problem:
        """Return the regression without change, for indices of the grid, (s, g) or (1, g)."""
        index = np.arange(stop)
        # Outliers count until it is clear that no step began with them.
        used = ((index >= self.start[rows, None]) & ~(
            self.rejected[rows, :stop] & (index < stop - _SETTLING))).astype(float)
        value = self.value[rows, :stop] - self.warm[rows, None] * self.warmth[rows, :stop]
        scatter = _RATIOS[grid]
        deviation = np.hypot(self.std[rows, None, :stop], scatter[..., None])
        # The width of a trend's prior grows with the scatter; without a trend it is of no effect.
        precision = np.stack(np.broadcast_arrays(0.0, self.warm_precision[rows, None], np.where(
            self.trend[rows, None], (_TREND * np.hypot(1.0, scatter))**-2.0, 1.0)), axis=-1)
        return Problem(self._columns(rows, stop)[:, None], value[:, None], deviation,
                       self.freedom[rows, None, :stop], used[:, None], precision)

    def _null(self, rows: Index, stop: int) -> Fit:
        """Fit without change, over the whole grid."""
        problem = self._problem(rows, stop)
        value, used = problem.value[:, 0], problem.used[:, 0] > 0.0
        middle = np.nanmedian(np.where(used, value, np.nan), axis=1)
        return fit(problem, (value - middle[:, None])[:, None])

    def _changed(
        self, rows: Index, stop: int, tried: _Hypotheses, few: Index | None = None
    ) -> tuple[Fit, Array]:
        """Fit with one change each, over the whole grid, or by least squares over a few places.

        Args:
            rows: Series, shape (s,).
            stop: Number of recordings.
            tried: Changes, (s, h).
            few: Indices of the grid, shape (s, g); None for the whole grid and deviations that
                follow Student's distribution.

        Returns:
            The fit, shapes (s, h, g, …), and the logarithms of evidence and prior, (s, h, g).

        """
        grid = _WHOLE if few is None else few
        problem = self._problem(rows, stop, grid)
        before = np.maximum(tried.onset - 1, self.start[rows, None])
        since = self.time[rows, None, :stop] - np.take_along_axis(
            self.time[rows], before, axis=1)[..., None]
        after = np.arange(stop) >= tried.onset[..., None]
        column = np.where(tried.trend[..., None], np.maximum(since, 0.0), after)
        width = np.where(tried.trend, _TREND, _STEP)[..., None] * np.hypot(
            1.0, _RATIOS[grid])[:, None]
        # Tails of 1/size², as of Cauchy's distribution: large changes are not less clear.
        apparent = np.maximum(width, self._apparent(
            problem.value[:, 0], problem.used[:, 0], column, tried.onset)[..., None])
        shape = tried.onset.shape
        wide = np.concatenate((np.broadcast_to(problem.columns[:, None], (*shape, 1, stop, 3)),
                               column[:, :, None, :, None]), axis=-1)
        prior = np.concatenate((np.broadcast_to(
            problem.precision[:, None], (*shape, grid.shape[1], 3)),
            apparent[..., None]**-2.0), axis=-1)
        value = problem.value[:, None]
        found = fit(Problem(wide, value, problem.deviation[:, None], problem.freedom[:, None],
                            problem.used[:, None], prior),
                    np.zeros_like(value) if few is None else None)
        weight = np.take_along_axis(self.weight[rows], grid, axis=1)[:, None]
        return found, found.evidence + weight + np.log(width / apparent)

    def _apparent(self, value: Array, used: Array, column: Array, onset: Index) -> Array:
        """Return roughly the size of each change, shape (s, h): means after less those before."""
        after = (np.arange(value.shape[1]) >= onset[..., None]) & (used[:, None] > 0.0)
        before = (used[:, None] > 0.0) & ~after
        level = [(part * value[:, None]).sum(axis=-1) / np.maximum(part.sum(axis=-1), 1)
                 for part in (before, after)]
        mean = (after * column).sum(axis=-1) / np.maximum(after.sum(axis=-1), 1)
        size = np.abs(level[1] - level[0]) / np.maximum(mean, 1e-9)
        return np.asarray(np.where(before.any(axis=-1) & (mean > 0.0), size, 0.0))

    # ------------------------------------------------------------------------ the scan

    def run(self) -> list[tuple[Course, _Evidence | None]]:
        """Return the courses, and what their last segments say of scatter and temperature."""
        found = []
        with np.errstate(invalid='ignore', divide='ignore'):
            for stop in range(_BASELINE, self.value.shape[1] + 1):
                self._look(stop)
            # The shortest come first.
            for count in np.unique(self.count).tolist():
                rows = np.flatnonzero(self.count == count)
                for row, segment, own in zip(
                        rows.tolist(), *self._segments(rows, count), strict=True):
                    found.append((self._course(row, segment), self._own(row, segment, own)))
        return found

    def _look(self, stop: int) -> None:
        """Add the recording before ``stop``."""
        rows = np.flatnonzero((self.count >= stop) & (stop - self.start >= _BASELINE))
        plain = fit(self._problem(rows, stop))
        waiting = self.alarm[rows] >= 0
        new = np.zeros(len(rows), dtype=bool)
        tried = self._hypotheses(rows, stop)
        near = np.flatnonzero(~waiting & (
            self._screened(rows, stop, plain, tried) >= _THRESHOLD - _MARGIN))
        if len(near):
            evidence = self._evidence(rows[near], stop, _Hypotheses(
                tried.onset[near], tried.trend[near], tried.prior[near]))
            new[near] = evidence >= _THRESHOLD
            self.strength[rows[near]] = evidence
        self.alarm[rows[new]] = stop - 1
        # The newest outliers may be the first recordings of the change.
        self.rejected[rows[new], max(stop - 2 * _SETTLING, 0):] = False
        self._check_next(rows, stop, plain, ~waiting & ~new & (self.count[rows] > stop))
        for row in rows[waiting | new]:
            if stop == self.count[row] or stop > self.alarm[row] + _SETTLING:
                self._settle(int(row), stop)

    def _check_next(self, rows: Index, stop: int, plain: Fit, chosen: Flags) -> None:
        """Compare the next recording of the chosen series with its prediction."""
        if not chosen.any():
            return
        # Student's distribution only for the few that deviate at all.
        rows, plain = rows[chosen], Fit(*(part[chosen] for part in plain))
        rows = rows[self._predicted(rows, stop, plain)[-1] < _DEVIATING]
        if not len(rows):
            return
        value, variance, predicted, weight, probability = self._predicted(
            rows, stop, self._null(rows, stop))
        for i in np.flatnonzero(probability < _OUTLIER_ALARMS / HORIZON):
            unit = self.unit[rows[i]]
            self.rejected[rows[i], stop] = True
            self.outliers[rows[i]].append(Outlier(
                stop, float(unit * (value[i] - weight[i] @ predicted[i])),
                float(unit * np.sqrt(weight[i] @ variance[i])), float(probability[i])))

    def _predicted(self, rows: Index, stop: int, known: Fit) -> tuple[Array, ...]:
        """Return the next recordings and what a fit expects of them.

        Returns:
            Values, shape (s,); variances and predictions, (s, g); weights of the grid, (s, g);
            probabilities of deviations as large, (s,).

        """
        weight = _shares(known.evidence + self.weight[rows])
        column = self._columns(rows, stop + 1)[:, -1]
        predicted = (known.parameters * column[:, None]).sum(axis=-1)
        spread = np.einsum('si,sgij,sj->sg', column, np.linalg.inv(known.information), column)
        value = self.value[rows, stop] - self.warm[rows] * self.warmth[rows, stop]
        variance = spread + self.std[rows, stop, None]**2 + _RATIOS**2
        deviation = (value[:, None] - predicted) / np.sqrt(variance)
        freedom = np.minimum(self.freedom[rows, stop], _OUTLIER_FREEDOM)
        tails = 2.0 * scipy.special.stdtr(freedom[:, None], -np.abs(deviation))
        return value, variance, predicted, weight, (weight * tails).sum(axis=1)

    def _hypotheses(self, rows: Index, stop: int) -> _Hypotheses:
        """Return the changes that may have happened; the last is a trend of the whole segment."""
        begin = self.start[rows]
        steps, ramps = ([stop - m for m in sizes if stop - m >= _BASELINE]
                        for sizes in (_STEPS, _RAMPS))
        onset = np.column_stack((np.tile(np.array(steps + ramps, int), (len(rows), 1)), begin))
        trend = np.broadcast_to(np.arange(onset.shape[1]) >= len(steps), onset.shape)
        prior = np.log(np.where(trend, 0.25, 0.5) / HORIZON)
        prior[:, -1] = np.where(
            self.trend[rows] | (stop - begin < _BASELINE + CONFIRMATION), -np.inf, np.log(0.25))
        prior[:, :-1][onset[:, :-1] < begin[:, None] + _BASELINE] = -np.inf
        return _Hypotheses(onset, trend, prior)

    def _screened(self, rows: Index, stop: int, plain: Fit, tried: _Hypotheses) -> Array:
        """Return nearly the logarithm of the mixture, by least squares."""
        weight = plain.evidence + self.weight[rows]
        best = weight.argmax(axis=1)
        # A change inflates the scatter of the fit without it.
        few = np.stack((best, np.maximum(best - 2, 0)), axis=1)
        few[few[:, 0] == few[:, 1], 1] = 1
        _, changed = self._changed(rows, stop, tried, few)
        return log_sum(log_sum(changed) + tried.prior) - log_sum(weight)

    def _evidence(self, rows: Index, stop: int, tried: _Hypotheses) -> Array:
        """Return the logarithm of the mixture of likelihood ratios of each series."""
        null = self._null(rows, stop)
        changed, whole = self._changed(rows, stop, tried)
        joint = log_sum(whole) + tried.prior
        found = log_sum(joint) - log_sum(null.evidence + self.weight[rows])
        each, best = np.arange(len(rows)), joint.argmax(axis=1)
        size = whole[each, best].argmax(axis=1)
        before, after = null.residual[each, size], changed.residual[each, best, size]
        variance = self.std[rows, :stop]**2 + _RATIOS[size][:, None]**2
        freedom = self.freedom[rows, :stop]
        # What each recording adds to the logarithm of the likelihood, shape (s, stop).
        gain = (np.arange(stop) >= self.start[rows, None]) * 0.5 * (freedom + 1.0) * (
            np.log1p(before**2 / variance / freedom) - np.log1p(after**2 / variance / freedom))
        found[gain.max(axis=1) > _SHARE * gain.sum(axis=1)] = -np.inf
        return found

    # ------------------------------------------------------------------------ after an alarm

    def _settle(self, row: int, stop: int) -> None:
        """Decide kind and time of a change, and begin a new segment."""
        begin = int(self.start[row])
        onsets = np.arange(begin + 2, stop - 1)
        onset = np.concatenate((onsets, [begin], onsets))[None]
        trend = np.arange(onset.size)[None] >= len(onsets)
        rows, tried = np.array([row]), _Hypotheses(onset, trend, np.zeros(onset.shape))
        changed, evidence = self._changed(rows, stop, tried)
        found = log_sum(evidence)[0]
        prior = np.full(found.shape, -np.log(max(len(onsets), 1)))
        prior[trend[0]] -= np.log(2.0)
        prior[len(onsets)] = -np.log(2.0) if not self.trend[row] else -np.inf
        mass = _shares(found + prior)
        is_trend = bool(mass[trend[0]].sum() > 0.5)
        own = np.where(trend[0] == is_trend, mass, 0.0)
        own /= own.sum()
        best = int(own.argmax())
        index = int(onset[0, best])
        first, last = onset[0][np.searchsorted(np.cumsum(own), (0.025, 0.975))].tolist()
        self.segments[row] += self._segments(rows, max(index, begin + 1))[0]
        # Mean and variance of the parameters, over the grid of the scatter.
        weight, means = _shares(evidence[0, best]), changed.parameters[0, best]
        mean = weight @ means
        covariance = np.linalg.inv(changed.information[0, best])
        variance = weight @ (covariance.diagonal(axis1=1, axis2=2) + (means - mean)**2)
        # Trends are per half year.
        factor = float(self.unit[row]) * (2.0 if is_trend else 1.0)
        self.changes[row].append(Change(
            'trend' if is_trend else 'step', index, first, last, int(self.alarm[row]),
            factor * float(mean[3]), factor * float(np.sqrt(variance[3])),
            float(self.strength[row])))
        # Of temperature and scatter, half of the information is kept: some recordings are used
        # again in the new segment.
        if self.warmth[row].any():
            self.warm[row] += mean[1]
            self.warm_precision[row] = max(0.5 / variance[1], self.warm_precision[row])
        self.weight[row] = scipy.special.log_softmax(0.5 * (self.weight[row] + evidence[0, best]))
        self.start[row], self.trend[row], self.alarm[row] = index, is_trend, -1

    # ------------------------------------------------------------------------ the outcome

    def _segments(self, rows: Index, stop: int) -> tuple[list[Segment], Array]:
        """Describe the segments that end before ``stop``; return the evidence of each scatter."""
        null = self._null(rows, stop)
        weight = _shares(null.evidence + self.weight[rows])
        wanted = np.zeros((len(rows), 3, 3))
        wanted[:, 0, 0] = wanted[:, 2, 1] = 1.0
        wanted[:, 0, 2] = self.trend[rows] * (
            self.time[rows, stop - 1] - self.time[rows, self.start[rows]])
        # Trends are per half year.
        wanted[:, 1, 2] = 2.0
        means = np.einsum('ski,sgi->sgk', wanted, null.parameters)
        mean = np.einsum('sg,sgk->sk', weight, means)
        variance = np.einsum('ski,sgij,skj->sgk', wanted, np.linalg.inv(null.information), wanted)
        std = np.sqrt(np.einsum('sg,sgk->sk', weight, variance + (means - mean[:, None])**2))
        unit = self.unit[rows]
        mean[:, 2] += self.warm[rows]
        mean, std = unit[:, None] * mean, unit[:, None] * std
        mean[:, 0] += self.centre[rows]
        for k, unknown in ((1, ~self.trend[rows]), (2, ~self.warmth[rows].any(axis=1))):
            mean[unknown, k] = std[unknown, k] = 0.0
        scatter = unit * np.sqrt(weight @ _RATIOS**2)
        figures = np.column_stack((mean[:, 0], std[:, 0], mean[:, 1], std[:, 1], scatter,
                                   mean[:, 2], std[:, 2]))
        return [Segment(begin, stop, *own) for begin, own in zip(
            self.start[rows].tolist(), figures.tolist(), strict=True)], null.evidence

    def _own(self, row: int, last: Segment, evidence: Array) -> _Evidence | None:
        """Return what a segment says of scatter and temperature; None if it is short or drifts."""
        if last.rate or last.count < _LONG:
            return None
        unit, level = float(self.unit[row]), abs(float(self.centre[row]))
        # Without the prior, which all robots of a group share.
        precision = float(self.warm_precision[row])
        own = last.coefficient_std and (last.coefficient_std / unit)**-2.0 - precision
        if level <= 0.0 or own <= 0.1 * precision:
            return _Evidence(unit, evidence, np.nan, np.nan)
        expected = float(self.warm[row]) * unit
        alone = expected + (last.coefficient - expected) * (1.0 + precision / own)
        return _Evidence(unit, evidence, alone / level, unit / level / np.sqrt(own))

    def _course(self, row: int, last: Segment) -> Course:
        history, changes = self.recorded[row], self.changes[row]
        begins = [*_begins(history).tolist(), len(history.time)]
        # An outlier that others followed was the first of a step.
        outliers = (item for item in self.outliers[row] if not any(
            change.first <= item.index <= change.alarm for change in changes))
        reference = float(self.reference[row])
        warmth = np.nan_to_num(history.temperature - reference)
        return Course(
            tuple(replace(item, start=begins[item.start], stop=begins[item.stop])
                  for item in (*self.segments[row], last)),
            tuple(replace(item, index=begins[item.index], first=begins[item.first],
                          last=begins[item.last], alarm=begins[item.alarm + 1] - 1)
                  for item in changes),
            tuple(replace(item, index=begins[item.index]) for item in outliers),
            reference, history.value - last.coefficient * warmth)
