# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the core's tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from robocal_ros.robot.model import Robot

from .arms import arm

# Examples are drawn from a fixed seed: a red run is red again.
settings.register_profile('robocal', deadline=None, max_examples=60, derandomize=True)
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'robocal'))


@pytest.fixture(scope='session')
def robocal() -> Robot:
    return arm('robocal').robot()


@pytest.fixture(scope='session')
def panda() -> Robot:
    return arm('panda').robot()


@pytest.fixture(scope='session')
def kinova() -> Robot:
    return arm('kinova').robot()
