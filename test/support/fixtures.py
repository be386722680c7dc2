# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rclpy
from hypothesis import settings

from robocal_ros.cli.main import main
from robocal_ros.robot.model import Robot
from support.arms import arm
from support.browser import CHROMIUM, opened

Call = Callable[..., str]

# Examples are drawn from a fixed seed: a red run is red again.
settings.register_profile('robocal', deadline=None, max_examples=60, derandomize=True)
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'robocal'))


def pytest_collection_finish() -> None:
    """Spare later garbage collections the modules and thousands of collected tests."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter collect everything at its end; bindings complain of leaks otherwise."""
    gc.unfreeze()


@pytest.fixture(scope='session')
def robocal() -> Robot:
    return arm('robocal').robot()


@pytest.fixture(scope='session')
def panda() -> Robot:
    return arm('panda').robot()


@pytest.fixture(scope='session')
def kinova() -> Robot:
    return arm('kinova').robot()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `robocal` with arguments; checks its exit code, and returns what it prints."""
    def call(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        try:
            ended: Any = main([str(argument) for argument in arguments])
        except SystemExit as error:
            ended = error.code
        output = capsys.readouterr()
        assert ended == code, output.out + output.err
        # What is refused or interrupted is told there.
        return output.err if code in (2, 130) else output.out + output.err

    return call


@pytest.fixture(scope='module')
def browser() -> Iterator[Any]:
    """Chromium without a window; skip the test without it."""
    for module in ('playwright.sync_api', 'axe_playwright_python'):
        pytest.importorskip(module)
    if CHROMIUM is None:
        pytest.skip('Chromium is not installed.')
    with opened() as made:
        yield made


@pytest.fixture(scope='module')
def ros() -> Iterator[None]:
    """One ROS context for each module."""
    rclpy.init()
    yield
    rclpy.try_shutdown()
