# SPDX-License-Identifier: Apache-2.0
"""One ROS context for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import rclpy


@pytest.fixture(scope='module', autouse=True)
def ros() -> Iterator[None]:
    rclpy.init()
    yield
    rclpy.try_shutdown()
