# SPDX-License-Identifier: Apache-2.0
"""Computations and imports beside a node's executor."""

from __future__ import annotations

import threading
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
