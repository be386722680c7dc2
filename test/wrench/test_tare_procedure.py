# SPDX-License-Identifier: Apache-2.0
"""The tare as a procedure: what it collects, hands over and refuses, without ROS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.wrench_arm import ObservedArm

from robocal_ros.errors import CancelledError, DataError
from robocal_ros.wrench.observer import bias_names
from robocal_ros.wrench.tare_procedure import TareOutcome, TareProcedure

STEP = 0.01


class Bench:
    """An observed arm whose time passes while the procedure waits."""

    def __init__(self, **options: object) -> None:
        self.arm = ObservedArm(1, tare_duration=0.3, **options)
        self.arm.carry_tool()
        self.arm.run(0.2)
        self.procedure = TareProcedure(
            self.arm.observer, self.until_stopped, lambda: 'The reason.')
        self.stop_after = np.inf

    async def until_stopped(self, condition: Callable[[], bool], timeout: float) -> bool:
        waited = 0.0
        while not condition():
            if waited > timeout:
                return False
            if waited > self.stop_after:
                raise CancelledError('Enough.')
            self.arm.run(STEP)
            waited += STEP
        return True

    def tare(self) -> TareOutcome:
        return asyncio.run(self.procedure.run(self.arm.values))

    def spoil(self, text: str) -> None:
        from robocal_sim.faults import parse_faults

        self.arm.simulator.set_faults(parse_faults(
            text, self.arm.robot.joint_names, self.arm.frames))


def test_the_result_holds_the_biases_that_are_compensated() -> None:
    bench = Bench()
    observer = bench.arm.observer
    assert not observer.tared
    began = bench.arm.now
    outcome = bench.tare()
    assert observer.tared
    assert observer.recorder is None
    assert '5 sensors tared over 0.3 s' in outcome.message
    np.testing.assert_array_equal(
        outcome.result.values(bias_names(bench.arm.frames)), observer.bias.ravel())
    first, last = outcome.span
    assert began - 0.01 < 1e-9 * first < began + 0.01
    assert 1e-9 * (last - first) == pytest.approx(0.3, abs=0.01)
    assert np.abs(bench.arm.run(0.2)[-1].wrench[:, :3]).max() < 1.0


def test_links_with_imus_without_joint_states() -> None:
    bench = Bench(imus={'ft_link_2_proximal': 'imu_link_2'})
    bench.spoil('joint_states_silent')
    bench.arm.run(0.1)
    outcome = bench.tare()
    assert outcome.result is None
    assert 'only links with IMUs were tared, each as a whole: ft_link_2_proximal' in \
        outcome.message
    told = bench.arm.run(0.2)[-1]
    assert told.links == (0,)
    assert np.abs(told.wrench[0, :3]).max() < 1.0
    assert bench.arm.observer.tared


def test_a_cancelled_or_silent_one_leaves_all_as_it_was() -> None:
    bench = Bench()
    bench.stop_after = 0.1
    with pytest.raises(CancelledError, match='Enough'):
        bench.tare()
    bench.stop_after = np.inf
    bench.spoil('joint_states_silent')
    bench.arm.run(0.1)
    with pytest.raises(DataError, match='The reason. Nothing was tared'):
        bench.tare()
    observer = bench.arm.observer
    assert not observer.tared
    assert observer.recorder is None
    np.testing.assert_array_equal(observer.bias, 0.0)


def test_other_limits_serve_without_new_samples() -> None:
    bench = Bench()
    strict, values = replace(bench.arm.values, tare_force_limit=0.1), bench.arm.values
    with pytest.raises(DataError, match='No samples at rest are recorded'):
        bench.procedure.estimate(values)
    with pytest.raises(DataError, match='expected at most 0.1 N'):
        asyncio.run(bench.procedure.run(strict))
    assert not bench.arm.observer.tared
    assert '5 sensors tared' in bench.procedure.estimate(values).message
    assert bench.arm.observer.tared
    assert bench.procedure.clear() == pytest.approx(0.3 * 500, abs=6)
    with pytest.raises(DataError, match='No samples at rest are recorded'):
        bench.procedure.estimate(values)
