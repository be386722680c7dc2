# SPDX-License-Identifier: Apache-2.0
"""The process of one node: autostart, spin, and on a signal hold the arm before it ends."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from robocal_ros.node.calibration_node import SUCCESS, CalibrationNode
from robocal_ros.node.executables import Ending

_SHUTDOWN_PATIENCE = 5.0
_FAREWELL = 0.5


def spin(make_node: Callable[[], CalibrationNode], ending: Ending) -> int:
    """Run a node until its process is asked to end.

    Args:
        make_node: Makes the node.
        ending: Says when the process is asked to end.

    Returns:
        Exit code: 0 when asked to end, 1 after a defect.

    """
    # rclpy's own handler would tear the context down before a motion can be cancelled.
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    ending.wake = executor.wake
    node = make_node()
    executor.add_node(node)
    code = 0
    try:
        if node.get_parameter('autostart').value:
            started = node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
            if not started:
                node.get_logger().error('autostart failed; the node stays for another try.')
        while rclpy.ok() and not ending.asked:
            executor.spin_once(timeout_sec=0.5)
        _hold(node, executor, 'The node was asked to shut down.')
    except ExternalShutdownException:
        code = 0
    except Exception:  # noqa: BLE001
        # A defect in a callback must not leave an arm in motion behind.
        node.get_logger().fatal(f'Defect in a callback; the node ends:\n{traceback.format_exc()}')
        code = 1
        _hold(node, executor, 'The node met a defect and ends.')
    finally:
        node.release()
        ending.wake = lambda: None
        executor.shutdown(timeout_sec=0.0)
        node.destroy_node()
        rclpy.try_shutdown()
    return code


def _hold(node: CalibrationNode, executor: SingleThreadedExecutor, reason: str) -> None:
    """Stop a motion, if there is one, and see the arm come to rest."""
    if not node.busy:
        return
    node.stop(reason)
    end = time.monotonic() + _SHUTDOWN_PATIENCE
    while node.busy and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
    # What the process sends just before it ends can be lost: let the answers arrive.
    end = time.monotonic() + _FAREWELL
    while time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
