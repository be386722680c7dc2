# SPDX-License-Identifier: Apache-2.0
"""Results that are built on other results: their inputs and staleness."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from robocal_ros.results.result import CalibrationResult, Check, Input

DRIVE_GAINS = 'drive_gains'
"""Kind of the result of a calibration of drive gains."""

CHECK = 'inputs'
"""Name of the check that the inputs of a result are current."""

FAILED = '.failed'
"""Suffix of a kind, of which the newest result that did not pass is asked for."""

Load = Callable[[str], CalibrationResult | None]
"""Returns the newest result of a kind, None without one."""


def absence(load: Load, kind: str) -> str:
    """Return the verdict on the last result of a kind that is not stored, empty without one."""
    failed = load(kind + FAILED)
    return '' if failed is None else (
        f' The last one ({failed.method}, {failed.source}) did not pass: '
        f'{" ".join(failed.reasons)}')


@dataclass(frozen=True)
class Inputs:
    """Results that an estimate builds on, chosen before it by ``choose``.

    Attributes:
        used: The results by kind.
        listed: Entries for the estimate's list of inputs: the used results, and those of the kinds
            that set the unit of efforts, because a newer one of these would be used.
        gains: The used result whose drive gains convert the efforts, None without one.
        stale: Sentences on used results that are not built on current inputs themselves.
        absent: Sentences on results that did not pass, by kinds of which none is stored.
        beside: Results that the estimate is only compared with, by kind.

    """

    used: Mapping[str, CalibrationResult] = field(default_factory=dict)
    listed: tuple[Input, ...] = ()
    gains: CalibrationResult | None = None
    stale: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, CalibrationResult] = field(default_factory=dict)

    def get(self, kind: str) -> CalibrationResult | None:
        """Return the used result of a kind, None without one."""
        return self.used.get(kind)

    def with_gains(self, gains: CalibrationResult) -> Inputs:
        """Return the inputs that are left once drive gains are calibrated, and these."""
        used = {kind: item for kind, item in self.used.items() if item is not self.gains
                and DRIVE_GAINS not in {own.kind for own in item.inputs}}
        listed = (item for item in self.listed if item.kind != gains.kind)
        return replace(self, used={**used, gains.kind: gains}, gains=gains, stale=(),
                       listed=(*listed, gains.as_input()))


def choose(
    load: Load, kinds: Collection[str], units: Collection[str] = (), apart_from: str = '',
    usable: Callable[[CalibrationResult], bool] = lambda result: True,
    beside: Collection[str] = (), priors: Collection[str] = (),
) -> Inputs:
    """Choose the inputs of an estimate from the current results.

    Args:
        load: Returns the current results.
        kinds: Kinds that the estimate uses where there is a result.
        units: Kinds that set the unit of efforts, of which the later result is used.
        apart_from: Kind of inputs of the inputs that may be outdated, empty for none.
        usable: Whether a result may set the unit of efforts.
        beside: Kinds that the estimate is only compared with.
        priors: Kinds that improve the estimate and are not needed: a stale result is left out.

    Raises:
        RobocalError: If a result cannot be read.

    """
    setting = {kind: load(kind) for kind in units}
    gains = later([item for item in setting.values() if item is not None and usable(item)])
    found = [gains, *(load(kind) for kind in kinds), *(
        result for kind in priors if (result := load(kind)) is not None
        and not stale_text(result, load, apart_from=apart_from))]
    used = {result.kind: result for result in found if result is not None}
    return Inputs(
        used, tuple(Input(kind, 'none', '') if result is None else result.as_input()
                    for kind, result in sorted({**setting, **used}.items())),
        gains, tuple(text for item in used.values()
                     if (text := stale_text(item, load, apart_from=apart_from))),
        {kind: absence(load, kind) for kind in kinds if kind not in used},
        {kind: result for kind in beside if (result := load(kind)) is not None})


def later(results: Sequence[CalibrationResult]) -> CalibrationResult | None:
    """Return the later one of two results that replace each other, None for none.

    It is the one that was estimated with the other; if neither was, that of newer samples. An
    estimate from an old bag may be later than a result of newer samples.
    """
    for result in results:
        listed = {item.sha256 for item in result.inputs if item.sha256}
        if any(other.sha256 in listed for other in results):
            return result
    return max(results, key=lambda result: result.time, default=None)


def stale_inputs(
    result: CalibrationResult, load: Load, *, apart_from: str = ''
) -> tuple[str, ...]:
    """Return a sentence for each input that is not the current result of its kind.

    An input that was replaced by a result built on this very result is not stale: two results may
    be estimated from each other in turns. Nor is an earlier result of the same kind. Drive gains
    are an exception: other ones change the unit of the efforts behind this result.

    Args:
        result: The result.
        load: Returns the current results.
        apart_from: Kind of inputs that do not matter, empty for none.

    """
    sentences, own = [], result.sha256
    for item in result.inputs:
        if item.kind in (result.kind, apart_from):
            continue
        current = load(item.kind)
        if current is None:
            if item.sha256:
                sentences.append(f'Its input {item.kind} ({item.name}) is no longer stored.')
        elif not item.sha256:
            sentences.append(f'It was estimated before {item.kind} was identified.')
        elif current.sha256 != item.sha256 and (
                item.kind == DRIVE_GAINS or own not in {i.sha256 for i in current.inputs}):
            sentences.append(
                f'Its input {item.kind} ({item.name}, {item.sha256[:12]}…) was replaced by '
                f'{current.method}, {current.source} ({current.sha256[:12]}…).')
    return tuple(sentences)


def stale_text(result: CalibrationResult, load: Load, *, apart_from: str = '') -> str:
    """Return a warning about a stale result, empty if its inputs are current."""
    reasons = stale_inputs(result, load, apart_from=apart_from)
    return '' if not reasons else (
        f'The {result.kind.replace("_", " ")} result is stale. {" ".join(reasons)} Estimate it '
        'again from its recording (~/estimate, or robocal estimate with its bag), or measure '
        'again.')


def with_inputs(result: CalibrationResult, inputs: Inputs) -> CalibrationResult:
    """Return a result with its inputs, and a check that they are current.

    The estimator has propagated their covariance.
    """
    used, result = inputs.used, replace(result, inputs=inputs.listed)
    if not used:
        return result
    names_used = ', '.join(
        f'{item.kind} ({item.name})' for item in result.inputs if item.kind in used)
    check = Check(CHECK, not inputs.stale, len(inputs.stale), 0.0, '1',
                  ' '.join(inputs.stale) or f'Built on current results: {names_used}.')
    return replace(result, checks=(*result.checks, check))
