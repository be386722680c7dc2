# SPDX-License-Identifier: Apache-2.0
"""Process of one node: start it, spin it, and hold the arm before the process ends."""

from __future__ import annotations

import gc
import sys
import time
import traceback
from itertools import pairwise
from pathlib import Path

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.signals import SignalHandlerOptions

from robocal_ros.arm import TimedExecutor
from robocal_ros.node.calibration_node import DELIVERY_TIME, CalibrationNode
from robocal_ros.node.executables import StopRequest

# Longest wait for the end of a motion [s].
_STOP_TIMEOUT = 5.0


def spin(kind: type[CalibrationNode], stop_request: StopRequest | None = None) -> int:
    """Run a node until its process receives a stop signal.

    Args:
        kind: Class of the node, which gets the name of its capability.
        stop_request: Stop request to the process; a new one by default.

    Returns:
        Exit code: 0 after a stop signal, 1 after an unexpected exception or without parameters.

    """
    stop_request = stop_request or StopRequest()
    for option, value in pairwise(sys.argv):
        # rclpy would wait for a named pipe for ever, signals or not.
        if option == '--params-file' and Path(value).exists() and not Path(value).is_file():
            sys.stderr.write(f"'{value}' is no parameter file: expected a regular file, as in "
                             'config/<node>.yaml.\n')
            return 1
    # rclpy's own handler would tear the context down before a motion can be cancelled.
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    executor = TimedExecutor()
    stop_request.wake = executor.wake
    node = kind(kind.capability)
    executor.add_node(node)
    try:
        if node.get_parameter('autostart').value:
            node.start_itself()
        # What exists by now stays; a search through it takes 40 ms, in which samples wait.
        gc.collect()
        gc.freeze()
        while rclpy.ok() and not stop_request.received:
            executor.spin_once(timeout_sec=1.0)
        _hold(node, executor, 'The node was asked to shut down.')
    except ExternalShutdownException:
        pass
    except Exception:  # noqa: BLE001
        # The arm must not keep moving after a defect in a callback.
        node.get_logger().fatal(f'Defect in a callback; the node ends:\n{traceback.format_exc()}')
        _hold(node, executor, 'The node ends after a defect.')
        return 1
    finally:
        node.release()
        stop_request.wake = lambda: None
        executor.shutdown(timeout_sec=0.0)
        node.destroy_node()
        rclpy.try_shutdown()
        # Otherwise the bindings of OMPL report their frozen objects as leaked.
        gc.unfreeze()
    return 0


def _hold(node: CalibrationNode, executor: TimedExecutor, reason: str) -> None:
    """Stop a running motion and wait until the arm is at rest."""
    if not node.busy:
        return
    node.stop_procedure(reason)
    end = time.monotonic() + _STOP_TIMEOUT
    while node.busy and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
    # Messages sent just before the process ends can be lost.
    end = time.monotonic() + DELIVERY_TIME
    while time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
