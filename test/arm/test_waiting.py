# SPDX-License-Identifier: Apache-2.0
"""Computations and imports beside a node's executor."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rclpy.callback_groups import ReentrantCallbackGroup
from support.ros_rig import HandClock, pair

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


def test_the_longest_turn_is_that_of_a_callback_and_not_a_wait(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    monkeypatch.setattr(waiting, 'time', clock)

    class Idle(waiting.TimedExecutor):
        """An executor whose waits take a while."""

        def wait_for_ready_callbacks(self, *args: Any, **kwargs: Any) -> Any:
            clock.sleep(0.4)
            return super().wait_for_ready_callbacks(*args, **kwargs)

    executor, called = Idle(), threading.Event()
    node, talker = pair()
    waiter = waiting.Waiter(node, ReentrantCallbackGroup())

    def call() -> None:
        clock.sleep(0.2)
        called.set()

    timer = node.create_timer(0.05, call)
    executor.add_node(node)
    try:
        while not called.is_set():
            executor.spin_once(timeout_sec=0.1)
        assert waiter.take_longest_turn() == pytest.approx(0.2)
        timer.cancel()
        for _ in range(3):
            executor.spin_once(timeout_sec=0.05)
        assert waiter.take_longest_turn() == 0.0
    finally:
        executor.shutdown()
        node.destroy_node()
        talker.destroy_node()
