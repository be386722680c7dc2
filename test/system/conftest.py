# SPDX-License-Identifier: Apache-2.0
"""Every system test talks to processes; one client serves a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import rclpy
from support.live_graph import Client

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker('system')


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
