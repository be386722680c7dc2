# SPDX-License-Identifier: Apache-2.0
"""What the tests of the launch files share: their arguments, as a user leaves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest

from robocal_ros.launching import robot_file
from robocal_ros.launching.arguments import BRINGUP, REPLAY, BringupArguments, ReplayArguments


@pytest.fixture
def bringup_arguments() -> Callable[..., BringupArguments]:
    """Makes the arguments of the bringup from what differs from the defaults."""
    def make(**texts: str) -> BringupArguments:
        return BringupArguments.of({**{item.name: item.default for item in BRINGUP}, **texts})

    return make


@pytest.fixture
def replay_arguments() -> Callable[..., ReplayArguments]:
    """Makes the arguments of the replay from what differs from the defaults."""
    def make(**texts: str) -> ReplayArguments:
        return ReplayArguments.of({**{item.name: item.default for item in REPLAY}, **texts})

    return make


@pytest.fixture(scope='session', autouse=True)
def known_robots() -> Iterator[None]:
    """Expands a xacro file once for each set of arguments, which takes a while."""
    expand = cache(lambda file, pairs: robot_file_text(file, dict(pairs)))
    robot_file_text = robot_file.urdf_text

    def remembered(file: str, arguments: Mapping[str, str]) -> str:
        return expand(file, tuple(sorted(arguments.items())))

    robot_file.urdf_text = remembered
    yield
    robot_file.urdf_text = robot_file_text
