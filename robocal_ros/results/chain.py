# SPDX-License-Identifier: Apache-2.0
"""Results that are built on other results: their inputs, staleness, and propagated covariance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.results.result import CalibrationResult, Check, Input, Parameter, State
from robocal_ros.results.store import ResultStore

DRIVE_GAINS = 'drive_gains'
"""Kind of the result of a calibration of drive gains."""

CHECK = 'inputs'
"""Name of the check that the inputs of a result are current."""

# Directions whose variance is below this share of the largest one of an input are negligible.
_NEGLIGIBLE = 1e-12

Load = Callable[[str], CalibrationResult | None]
"""Returns the newest result of a kind, None without one."""


class Inputs(ResultStore):
    """Stored results as the source of an estimation, which records those that were used.

    Attributes:
        used: Results that were used or looked at, by kind: the inputs of the estimate. None for
            a missing kind of ``units``.
        relied_on: Kinds of the results that were used.

    """

    def __init__(
        self, store: ResultStore, newer: Mapping[str, CalibrationResult | None] | None = None,
        units: Collection[str] = (),
    ) -> None:
        """Start with nothing used.

        Args:
            store: Stored results.
            newer: Results by kind that take precedence over stored ones; None ignores those.
            units: Kinds that change the units of the data: a result built without one is stale
                as soon as there is one.

        """
        super().__init__(store.directory, store.robot)
        self._newer = dict(newer or {})
        self._units = units
        self.used: dict[str, CalibrationResult | None] = {}
        self.relied_on: set[str] = set()

    def forget(self) -> None:
        """Begin a new estimate, of which nothing has been used yet."""
        self.used.clear()
        self.relied_on.clear()

    def current(self, kind: str) -> CalibrationResult | None:
        """Return the newest result of a kind without recording its use; errors as for ``load``."""
        return self._newer[kind] if kind in self._newer else super().load(kind)

    def load(self, kind: str) -> CalibrationResult | None:
        """Return the newest result of a kind and record its use; errors as for ``ResultStore``."""
        self.relied_on.add(kind)
        return self.look_at(kind)

    def look_at(self, kind: str) -> CalibrationResult | None:
        """Return the newest result of a kind, which is used only if it is loaded, too.

        It is listed as an input, because a newer one might be used. Errors as for ``load``.
        """
        found = self.current(kind)
        if found is not None or kind in self._units:
            self.used[kind] = found
        return found

    def stored(self, kind: str) -> CalibrationResult | None:
        """Return the stored result of a kind; errors as for ``ResultStore.load``."""
        return super().load(kind)

    def replaced(self, result: CalibrationResult) -> Inputs:
        """Return the same source with another result of one kind."""
        return Inputs(self, {**self._newer, result.kind: result}, self._units)

    def listed(self) -> tuple[Input, ...]:
        """Return the entries of the used results."""
        return tuple(Input(kind, 'none', '') if result is None else result.as_input()
                     for kind, result in sorted(self.used.items()))


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


def with_inputs(
    result: CalibrationResult, inputs: Inputs,
    estimate: Callable[[Inputs], CalibrationResult] | None = None,
    carried: Collection[str] = (),
) -> CalibrationResult:
    """Return a result with its inputs, their covariance, and a check that they are current.

    The covariance of an input with the standard deviations s_k along its principal directions
    d_k adds Σ_k s_k² (J d_k)(J d_k)ᵀ, where J d_k is the change of the result when the input is
    moved by s_k d_k (GUM, JCGM 100:2008, 5.1).

    Args:
        result: The result as estimated from ``inputs``.
        inputs: The source that it was estimated from.
        estimate: Returns the result of an estimation from another source; without it nothing is
            propagated.
        carried: Kinds whose covariance the estimator itself has propagated.

    """
    def values_of(other: CalibrationResult) -> Array:
        return np.array([other.parameter(name).value for name in names], dtype=float)

    used = {kind: item for kind, item in inputs.used.items()
            if item is not None and kind in inputs.relied_on}
    result = replace(result, inputs=inputs.listed())
    names = result.covariance_names
    moved_by = [kind for kind in used if kind not in carried and kind != result.kind]
    if estimate is not None and names and any(len(used[k].covariance) for k in moved_by):
        base = values_of(estimate(inputs))
        extra = np.zeros((len(names), len(names)))
        for kind in moved_by:
            for moved in alternatives(used[kind]):
                try:
                    change = values_of(estimate(inputs.replaced(moved))) - base
                except RobocalError as error:
                    raise type(error)(
                        f'The uncertainty of {kind} cannot be propagated: {error}') from error
                # A parameter at the edge of being identified may have no value once moved.
                change = np.where(np.isfinite(change), change, 0.0)
                extra += np.outer(change, change)
        result = widened(result, extra)
    # Gains replace earlier ones: with which of them an arm was identified does not matter here.
    ignored = DRIVE_GAINS if result.kind == DRIVE_GAINS else ''
    stale = [text for item in used.values()
             if (text := stale_text(item, inputs.current, apart_from=ignored))]
    if not used:
        return result
    names_used = ', '.join(
        f'{item.kind} ({item.name})' for item in result.inputs if item.kind in used)
    check = Check(CHECK, not stale, len(stale), 0.0, '1',
                  ' '.join(stale) or f'Built on current results: {names_used}.')
    return replace(result, checks=(*result.checks, check))


def alternatives(result: CalibrationResult) -> list[CalibrationResult]:
    """Return a result moved by one standard deviation along each of its principal directions.

    Parameters are scaled to unit standard deviation first, because their units differ.
    """
    std = np.sqrt(np.maximum(np.diag(result.covariance), 0.0))
    known = np.flatnonzero(std > 0.0)
    if not len(known):
        return []
    scale = std[known]
    variance, directions = np.linalg.eigh(
        result.covariance[np.ix_(known, known)] / np.outer(scale, scale))
    names = [result.covariance_names[i] for i in known]
    return [
        _moved(result, dict(zip(names, np.sqrt(size) * scale * direction, strict=True)))
        for size, direction in zip(variance, directions.T, strict=True)
        if size > _NEGLIGIBLE * variance[-1]]


def _moved(result: CalibrationResult, steps: Mapping[str, float]) -> CalibrationResult:
    return replace(result, parameters=tuple(
        p if p.value is None or p.name not in steps
        else replace(p, value=p.value + float(steps[p.name])) for p in result.parameters))


def widened(result: CalibrationResult, extra: Array) -> CalibrationResult:
    """Return a result whose covariance is increased.

    Args:
        result: The result.
        extra: Additional covariance in the order of ``covariance_names``, shape (p, p).

    """
    covariance = result.covariance + extra
    std = dict(zip(result.covariance_names, np.sqrt(np.diag(covariance)), strict=True))

    def wider(parameter: Parameter) -> Parameter:
        if parameter.name not in std or parameter.state is not State.IDENTIFIED:
            return parameter
        return replace(parameter, std=float(std[parameter.name]))

    return replace(result, covariance=covariance,
                   parameters=tuple(wider(parameter) for parameter in result.parameters))
