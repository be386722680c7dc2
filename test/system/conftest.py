# SPDX-License-Identifier: Apache-2.0
"""Order and client of the system tests, all of which talk to other processes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import rclpy
from support.live_graph import Client

HERE = Path(__file__).parent
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the system tests, and put them first: they take longest."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker('system')
    items.sort(key=lambda item: not item.path.is_relative_to(HERE))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note failures, for fixtures that share processes between tests."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


def has_failed(item: pytest.Item) -> bool:
    """Return whether a test has failed in its setup or call."""
    return item.stash.get(FAILED, False)


@pytest.fixture(scope='module')
def ros() -> Iterator[None]:
    rclpy.init()
    yield
    rclpy.try_shutdown()


@pytest.fixture(scope='module')
def client(ros: None) -> Iterator[Client]:
    client = Client()
    yield client
    client.close()
