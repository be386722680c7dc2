# SPDX-License-Identifier: Apache-2.0
"""Results of one recording by two paths: of a node, and of its bag."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robocal_ros.estimators import estimator
from robocal_ros.messages import Bag, Selection
from robocal_ros.offline import OfflineEstimation
from robocal_ros.parameters import checked
from robocal_ros.results import CalibrationResult


class Computed(Exception):
    """Carries the result that a node computed, before it is filed."""


def result_of(action: Callable[[], Coroutine[Any, Any, Any]]) -> CalibrationResult:
    """Return what a node's coroutine computes."""
    async def compute(function: Callable[[], CalibrationResult]) -> CalibrationResult:
        raise Computed(function())

    action.__self__.compute = compute
    with pytest.raises(Computed) as computed:
        asyncio.run(action())
    result: CalibrationResult = computed.value.args[0]
    return result


def offline(
    name: str, urdf: str, bag: Path, results: Path, selection: Selection | None = None,
    **values: Any,
) -> CalibrationResult:
    """Return what a capability estimates from a bag."""
    chosen = estimator(name)
    parameters = checked(chosen.table, {**values, 'results_dir': str(results)})
    with Bag(bag) as opened:
        return OfflineEstimation(
            chosen, opened, parameters, urdf, selection or Selection()).run().result


def assert_same_result(one: CalibrationResult, other: CalibrationResult) -> None:
    """Check that all estimated values are equal to 1e-12."""
    assert (one.kind, one.method, one.verdict) == (other.kind, other.method, other.verdict)
    assert one.covariance_names == other.covariance_names
    assert [(p.name, p.state) for p in one.parameters] == [
        (p.name, p.state) for p in other.parameters]
    for mine, theirs in zip(one.parameters, other.parameters, strict=True):
        for value, twin in ((mine.value, theirs.value), (mine.std, theirs.std)):
            assert (value is None) == (twin is None)
            if value is not None:
                np.testing.assert_allclose(value, twin, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-12, atol=1e-30)
    for mine, theirs in zip((*one.fit, *one.validation), (*other.fit, *other.validation),
                            strict=True):
        assert (mine.what, mine.count) == (theirs.what, theirs.count)
        np.testing.assert_allclose((mine.before, mine.after), (theirs.before, theirs.after),
                                   rtol=1e-12)
    for mine, theirs in zip(one.checks, other.checks, strict=True):
        assert (mine.name, mine.passed) == (theirs.name, theirs.passed)
        np.testing.assert_allclose(mine.value, theirs.value, rtol=1e-9)
    counted = 'readings' if one.kind == 'compliance' else 'samples'
    assert one.counts[counted] == other.counts[counted]
    assert one.time == other.time
