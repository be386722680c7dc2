# SPDX-License-Identifier: Apache-2.0
"""Scan of many series at once, recording by recording; the method is described in `changes`.

Shapes are (series, hypotheses, grid of the scatter, recordings).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special

from robocal_ros.arrays import Array, Flags
from robocal_ros.fleet.histories import Change, Course, History, Outlier, Segment
from robocal_ros.fleet.statistics import Fit, Problem, fit, log_sum

FALSE_ALARMS = 1e-3
"""Largest probability that a series of `HORIZON` recordings without change has any finding."""
HORIZON = 52
BASELINE = 4
"""Number of recordings of a segment before which no change is looked for."""
CONFIRMATION = 3
"""Number of recordings after a step before which it is no finding."""

# Share of the false alarms for outliers.
_OUTLIER_ALARMS = 0.3 * FALSE_ALARMS
# Largest degrees of freedom of a recording's deviation, and those of the test of outliers.
_FREEDOM, _OUTLIER_FREEDOM = 20.0, 5.0
RATIOS = np.geomspace(0.1, 1000.0, 17)
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
# Logarithm of the evidence of an alarm, by simulation (see above).
_THRESHOLD = -np.log(3.5e-3)
# Logarithm of the evidence below the alarm, and probability of a deviation, by least squares, at
# which Student's distribution is used.
_MARGIN, _DEVIATING = 5.0, 0.01
# Share of robots whose scatter differs from that of their group.
_STRANGER = 0.05
# Largest share of the evidence that one recording may have.
_SHARE = 2.0 / 3.0


class Evidence(NamedTuple):
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


class Prior(NamedTuple):
    """Distributions over a group: of the logarithm of the scatter, and of the coefficient."""

    scatter: tuple[float, float]
    coefficient: tuple[float, float] | None


def normal_weights(places: Array, middle: float, width: float) -> Array:
    """Return logarithms of normalised weights of a grid along the last axis."""
    return np.asarray(scipy.special.log_softmax(
        -0.5 * ((places - middle) / width)**2, axis=-1))


def _shares(logarithms: Array) -> Array:
    """Return weights along the last axis, of sum 1, from their logarithms."""
    return np.asarray(scipy.special.softmax(logarithms, axis=-1))


Index = npt.NDArray[np.intp]
_WHOLE = np.arange(len(RATIOS))[None]


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


class Scan:
    """A batch of series, scanned in lockstep; values in units of the stated deviation."""

    def __init__(self, histories: Sequence[History], priors: Sequence[Prior | None]) -> None:
        self.histories = histories
        self.count = np.array([len(history.time) for history in histories])
        size, longest = len(histories), int(self.count.max())
        self.unit, self.centre, self.reference, self.warm_precision = (
            np.empty(size) for _ in range(4))
        self.value, self.warmth, self.time = (np.zeros((size, longest)) for _ in range(3))
        self.std, self.freedom = (np.ones((size, longest)) for _ in range(2))
        for row, history in enumerate(histories):
            n, early = self.count[row], slice(0, BASELINE)
            # Of the first recordings alone: a prior must not depend on later ones.
            self.unit[row] = unit = float(np.median(history.std[early]))
            self.centre[row] = centre = float(np.median(history.value[early]))
            known = np.isfinite(history.temperature)
            self.reference[row] = reference = (
                float(history.temperature[known].mean()) if known.any() else np.nan)
            spread = float(history.temperature[known].std()) if known.any() else 0.0
            sensitivity = history.sensitivity / unit if known.any() else 0.0
            self.value[row, :n] = (history.value - centre) / unit
            self.warmth[row, :n] = np.where(
                known & (sensitivity > 0.0), history.temperature - reference, 0.0)
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
        wide = normal_weights(np.log(RATIOS), np.log(_RATIO), _RATIO_WIDTH)
        self.weight = np.tile(wide, (size, 1))
        for row, prior in enumerate(priors):
            if prior is None:
                continue
            own = normal_weights(np.log(RATIOS * self.unit[row]), *prior.scatter)
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
        scatter = RATIOS[grid]
        deviation = np.hypot(self.std[rows, None, :stop], scatter[..., None])
        # The width of a trend's prior grows with the scatter; without a trend it is of no effect.
        precision = np.stack(np.broadcast_arrays(0.0, self.warm_precision[rows, None], np.where(
            self.trend[rows, None], (_TREND * np.hypot(1.0, scatter))**-2.0, 1.0)), axis=-1)
        return Problem(self._columns(rows, stop)[:, None], value[:, None], deviation,
                       self.freedom[rows, None, :stop], used[:, None], precision)

    def _null(self, rows: Index, stop: int, *, tails: bool = True) -> Fit:
        """Fit without change, over the whole grid; without tails by least squares."""
        problem = self._problem(rows, stop)
        if not tails:
            return fit(problem)
        value, used = problem.value[:, 0], problem.used[:, 0] > 0.0
        middle = np.nanmedian(np.where(used, value, np.nan), axis=1)
        return fit(problem, (value - middle[:, None])[:, None])

    def _changed(
        self, rows: Index, stop: int, tried: _Hypotheses, grid: Index = _WHOLE, *,
        tails: bool = True,
    ) -> tuple[Fit, Array]:
        """Fit with one change each; without tails by least squares.

        Args:
            rows: Series, shape (s,).
            stop: Number of recordings.
            tried: Changes, (s, h).
            grid: Indices of the grid, shape (s, g) or (1, g).
            tails: Whether deviations follow Student's distribution.

        Returns:
            The fit, shapes (s, h, g, …), and the logarithms of evidence and prior, (s, h, g).

        """
        problem = self._problem(rows, stop, grid)
        before = np.maximum(tried.onset - 1, self.start[rows, None])
        since = self.time[rows, None, :stop] - np.take_along_axis(
            self.time[rows], before, axis=1)[..., None]
        after = np.arange(stop) >= tried.onset[..., None]
        column = np.where(tried.trend[..., None], np.maximum(since, 0.0), after)
        width = np.where(tried.trend, _TREND, _STEP)[..., None] * np.hypot(
            1.0, RATIOS[grid])[:, None]
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
                    np.zeros_like(value) if tails else None)
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

    def run(self) -> list[tuple[Course, Evidence]]:
        """Return the courses, and what their last segments say of scatter and temperature."""
        found: dict[int, tuple[Course, Evidence]] = {}
        with np.errstate(invalid='ignore', divide='ignore'):
            for stop in range(BASELINE, self.value.shape[1] + 1):
                self._look(stop)
            for count in np.unique(self.count).tolist():
                rows = np.flatnonzero(self.count == count)
                for row, segment, own in zip(
                        rows.tolist(), *self._segments(rows, count), strict=True):
                    found[row] = self._course(row, segment), self._own(row, segment, own)
        return [found[row] for row in range(len(self.histories))]

    def _look(self, stop: int) -> None:
        """Add the recording before ``stop``."""
        rows = np.flatnonzero((self.count >= stop) & (stop - self.start >= BASELINE))
        if not len(rows):
            return
        plain = self._null(rows, stop, tails=False)
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
        variance = spread + self.std[rows, stop, None]**2 + RATIOS**2
        deviation = (value[:, None] - predicted) / np.sqrt(variance)
        freedom = np.minimum(self.freedom[rows, stop], _OUTLIER_FREEDOM)
        tails = 2.0 * scipy.special.stdtr(freedom[:, None], -np.abs(deviation))
        return value, variance, predicted, weight, (weight * tails).sum(axis=1)

    def _hypotheses(self, rows: Index, stop: int) -> _Hypotheses:
        """Return the changes that may have happened; the last is a trend of the whole segment."""
        begin = self.start[rows]
        steps, ramps = ([stop - m for m in sizes if stop - m >= BASELINE]
                        for sizes in (_STEPS, _RAMPS))
        onset = np.column_stack((np.tile(np.array(steps + ramps, int), (len(rows), 1)), begin))
        trend = np.broadcast_to(np.arange(onset.shape[1]) >= len(steps), onset.shape)
        prior = np.log(np.where(trend, 0.25, 0.5) / HORIZON)
        prior[:, -1] = np.where(
            self.trend[rows] | (stop - begin < BASELINE + CONFIRMATION), -np.inf, np.log(0.25))
        prior[:, :-1][onset[:, :-1] < begin[:, None] + BASELINE] = -np.inf
        return _Hypotheses(onset, trend, prior)

    def _screened(self, rows: Index, stop: int, plain: Fit, tried: _Hypotheses) -> Array:
        """Return nearly the logarithm of the mixture, by least squares."""
        weight = plain.evidence + self.weight[rows]
        best = weight.argmax(axis=1)
        # A change inflates the scatter of the fit without it.
        few = np.stack((best, np.maximum(best - 2, 0)), axis=1)
        few[few[:, 0] == few[:, 1], 1] = 1
        _, changed = self._changed(rows, stop, tried, few, tails=False)
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
        variance = self.std[rows, :stop]**2 + RATIOS[size][:, None]**2
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
        variance = np.einsum(
            'ski,sgij,skj->sgk', wanted, np.linalg.inv(null.information), wanted)
        std = np.sqrt(np.einsum('sg,sgk->sk', weight, variance + (means - mean[:, None])**2))
        unit = self.unit[rows]
        mean[:, 2] += self.warm[rows]
        mean, std = unit[:, None] * mean, unit[:, None] * std
        mean[:, 0] += self.centre[rows]
        for k, unknown in ((1, ~self.trend[rows]), (2, ~self.warmth[rows].any(axis=1))):
            mean[unknown, k] = std[unknown, k] = 0.0
        scatter = unit * np.sqrt(weight @ RATIOS**2)
        return [Segment(int(self.start[row]), stop, level, level_std, rate, rate_std, own,
                        coefficient, coefficient_std)
                for row, (level, rate, coefficient), (level_std, rate_std, coefficient_std), own
                in zip(rows, mean.tolist(), std.tolist(), scatter.tolist(), strict=True)
                ], null.evidence

    def _own(self, row: int, last: Segment, evidence: Array) -> Evidence:
        """Return what a segment says of scatter and temperature."""
        unit, level = float(self.unit[row]), abs(float(self.centre[row]))
        # Without the prior, which all robots of a group share.
        precision = float(self.warm_precision[row])
        own = last.coefficient_std and (last.coefficient_std / unit)**-2.0 - precision
        if level <= 0.0 or own <= 0.1 * precision:
            return Evidence(unit, evidence, np.nan, np.nan)
        expected = float(self.warm[row]) * unit
        alone = expected + (last.coefficient - expected) * (1.0 + precision / own)
        return Evidence(unit, evidence, alone / level, unit / level / np.sqrt(own))

    def _course(self, row: int, last: Segment) -> Course:
        history, changes = self.histories[row], self.changes[row]
        # An outlier that others followed was the first of a step.
        outliers = tuple(item for item in self.outliers[row] if not any(
            change.first <= item.index <= change.alarm for change in changes))
        warmth = np.where(np.isfinite(history.temperature),
                          history.temperature - self.reference[row], 0.0)
        return Course((*self.segments[row], last), tuple(changes), outliers,
                      float(self.reference[row]), history.value - last.coefficient * warmth)
