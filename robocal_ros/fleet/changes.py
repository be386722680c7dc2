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
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from robocal_ros.errors import DataError
from robocal_ros.fleet.histories import Course, History
from robocal_ros.fleet.scan import RATIOS, Evidence, Prior, Scan, normal_weights
from robocal_ros.fleet.statistics import log_sum, population
from robocal_ros.results import grouped, spread

# Smallest group whose scatter is pooled, the number of recordings of its members, and the largest
# number of members asked; widths of the logarithm of the scatter within a group.
_GROUP, _LONG, _ASKED = 6, 8, 24
_WIDTHS = (0.35, 0.5, 0.7, 1.0)
_BATCH = 1024
# Longest time between recordings of one session [s].
_SESSION = 0.5 * 86400.0


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
    recorded = histories
    histories = [_sessions(history) for history in recorded]
    priors: list[Prior | None] = [None] * len(histories)
    group_of: Sequence[Hashable] = groups or ()
    members = grouped(range(len(group_of)), group_of.__getitem__)
    asked = {}
    for group, indices in members.items():
        long = [i for i in indices if len(histories[i].time) >= _LONG]
        if len(long) >= _GROUP:
            asked[group] = [long[k] for k in spread(len(long), _ASKED)]
    chosen = [i for indices in asked.values() for i in indices]
    alone = dict(zip(chosen, _scanned(
        [histories[i] for i in chosen], [None] * len(chosen)), strict=True))
    for group, indices in asked.items():
        last = [(alone[i][0].segments[-1], alone[i][1]) for i in indices]
        prior = _pooled([evidence for segment, evidence in last
                         if not segment.rate and segment.count >= _LONG])
        for i in members[group]:
            priors[i] = prior
    return [course if len(history.time) == len(own.time) else _of_recordings(course, own)
            for (course, _), history, own in zip(
                _scanned(histories, priors), histories, recorded, strict=True)]


def _begins(history: History) -> npt.NDArray[np.intp]:
    """Return the first recording of each session."""
    return np.flatnonzero(np.diff(history.time, prepend=-np.inf) > _SESSION)


def _sessions(history: History) -> History:
    """Return one estimate for each session."""
    begins = _begins(history)
    if len(begins) == len(history.time):
        return history
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


def _of_recordings(course: Course, history: History) -> Course:
    """Return a course of sessions in terms of their recordings."""
    begins = [*_begins(history).tolist(), len(history.time)]
    warmth = np.nan_to_num(history.temperature - course.reference)
    return Course(
        tuple(replace(item, start=begins[item.start], stop=begins[item.stop])
              for item in course.segments),
        tuple(replace(item, index=begins[item.index], first=begins[item.first],
                      last=begins[item.last], alarm=begins[item.alarm + 1] - 1)
              for item in course.changes),
        tuple(replace(item, index=begins[item.index]) for item in course.outliers),
        course.reference, history.value - course.segments[-1].coefficient * warmth)


def _scanned(
    histories: Sequence[History], priors: Sequence[Prior | None]
) -> list[tuple[Course, Evidence]]:
    """Scan all series in batches of similar length."""
    found: dict[int, tuple[Course, Evidence]] = {}
    order = sorted(range(len(histories)), key=lambda i: len(histories[i].time))
    for begin in range(0, len(order), _BATCH):
        chosen = order[begin:begin + _BATCH]
        scan = Scan([histories[i] for i in chosen], [priors[i] for i in chosen])
        found.update(zip(chosen, scan.run(), strict=True))
    return [found[i] for i in range(len(histories))]


def _pooled(members: Sequence[Evidence]) -> Prior | None:
    """Estimate the distributions over a group; None if it is too small.

    The scatter by the largest integrated likelihood, the coefficient by random effects.
    """
    if len(members) < _GROUP:
        return None
    units = np.log([member.unit for member in members])
    likelihood = np.array([member.scatter for member in members])
    # Logarithms of the scatter itself, (members, grid).
    places = np.log(RATIOS) + units[:, None]
    best = (-np.inf, 0.0, 0.0)
    for width in _WIDTHS:
        for middle in np.arange(places.min(), places.max(), 0.1):
            total = float(log_sum(likelihood + normal_weights(places, middle, width)).sum())
            best = max(best, (total, float(middle), width))
    known = [member for member in members if np.isfinite(member.coefficient_std)]
    if len(known) < _GROUP:
        return Prior(best[1:], None)
    found = population(np.array([member.coefficient for member in known]),
                       np.array([member.coefficient_std for member in known]))
    return Prior(best[1:], (float(found.mean), float(np.hypot(found.std, found.between))))
