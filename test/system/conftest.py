# SPDX-License-Identifier: Apache-2.0
"""Order and client of the system tests, all of which talk to other processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.live_graph import Client

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the system tests, and put them first: they take longest.

    Other processes may come too late on a busy machine: a test that waited in vain is tried once
    more, and the summary lists it (RERUN). One whose assertion fails is not.
    """
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker('system')
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=['TimeoutError']))
    items.sort(key=lambda item: not item.path.is_relative_to(HERE))


@pytest.fixture(scope='module')
def client(ros: None) -> Iterator[Client]:
    client = Client()
    yield client
    client.close()
