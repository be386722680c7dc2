# SPDX-License-Identifier: Apache-2.0
"""Computations and imports beside a node's executor."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from rclpy.callback_groups import ReentrantCallbackGroup
from support.ros_rig import pair

from robocal_ros.arm import waiting

pytestmark = pytest.mark.usefixtures('ros')


def test_destroy_cancels_imports_that_have_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python joins the thread at exit: what it still imports delays the end of the process."""
    begun, go_on = threading.Event(), threading.Event()
    imported: list[str] = []

    def import_module(name: str) -> None:
        begun.set()
        assert go_on.wait(10.0)
        imported.append(name)

    monkeypatch.setattr(waiting, 'importlib', SimpleNamespace(import_module=import_module))
    node, talker = pair()
    try:
        waiter = waiting.Waiter(node, ReentrantCallbackGroup())
        waiter.load(['first', 'second', 'third'])
        assert begun.wait(10.0)
        assert waiter.loading
        waiter.destroy()
        go_on.set()
        waiter._threads.shutdown(wait=True)
        assert not waiter.loading
        assert imported == ['first']
    finally:
        node.destroy_node()
        talker.destroy_node()


def test_the_longest_turn_is_that_of_a_callback_and_not_a_wait() -> None:
    executor = waiting.TimedExecutor()
    node, talker = pair()
    waiter = waiting.Waiter(node, ReentrantCallbackGroup())
    timer = node.create_timer(0.05, lambda: time.sleep(0.2))
    executor.add_node(node)
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            executor.spin_once(timeout_sec=0.1)
        assert 0.2 <= waiter.take_longest_turn() < 0.3
        timer.cancel()
        executor.spin_once(timeout_sec=0.1)
        waiter.take_longest_turn()
        executor.spin_once(timeout_sec=0.4)
        assert waiter.take_longest_turn() < 0.1
    finally:
        executor.shutdown()
        node.destroy_node()
        talker.destroy_node()
