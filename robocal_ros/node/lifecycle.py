# SPDX-License-Identifier: Apache-2.0
"""The base of every node: guarded transitions, one release, parameters from one table.

rclpy swallows exceptions of transitions and does not clean up after a failed configure; here
every refusal is logged as a sentence and answered with FAILURE, every defect with its
traceback and ERROR, and ``_release`` is called in each of these cases.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import rclpy
from lifecycle_msgs.msg import State
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.node import parameters

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR


class RobocalNode(LifecycleNode):
    """A lifecycle node; subclasses fill in what the transitions do.

    The constructor declares parameters and nothing else.
    """

    parameter_table: type[Any]

    def __init__(self, name: str, **kwargs: Any) -> None:
        """Declare the parameters.

        Args:
            name: Name of the node.
            **kwargs: Passed on to rclpy.

        """
        self.group = ReentrantCallbackGroup()
        super().__init__(name, **kwargs)
        self._parameter_complaints = parameters.declare(self, self.parameter_table)
        self.add_post_set_parameters_callback(self._forget_complaints)
        self.values: Any = None

    @property
    def is_active(self) -> bool:
        """Whether the node is in its active state."""
        return bool(self._state_machine.current_state[0] == State.PRIMARY_STATE_ACTIVE)

    def _forget_complaints(self, changed: list[Parameter[Any]]) -> None:
        """Forget what was wrong with parameters that have been set since."""
        for item in changed:
            self._parameter_complaints.pop(item.name, None)

    # ------------------------------------------------- what subclasses fill in

    def _configure(self) -> None:
        """Check parameters, create publishers, subscriptions, services."""

    def _activate(self) -> None:
        """Start."""

    def _deactivate(self) -> None:
        """Stop, keep what was recorded."""

    def _release(self) -> None:
        """Undo ``_configure``; called also when half of it was done, and twice."""

    def _may_release(self) -> None:
        """Raise a RobocalError while something must not be torn down yet."""

    def _let_go(self) -> None:
        """Release now, or as soon as what must not be torn down has ended."""
        self._release()

    # ------------------------------------------------------------- transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and configure; FAILURE with a sentence if they don't fit."""
        def configure() -> None:
            if self._parameter_complaints:
                names = ' and '.join(self._parameter_complaints)
                raise ConfigurationError(
                    f'{" ".join(self._parameter_complaints.values())} Set {names} '
                    "('ros2 param set') and configure again, or restart the node with it "
                    'corrected.')
            self.values = parameters.read(self, self.parameter_table)
            self._configure()

        outcome = self._guarded('configure', self._may_release)
        if outcome != SUCCESS:
            return outcome
        return self._guarded('configure', configure, release_on_failure=True)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Activate."""
        outcome = self._guarded('activate', self._activate)
        if outcome != SUCCESS:
            return outcome
        self.get_logger().info('Active.')
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Deactivate: stop the motion, keep samples."""
        outcome = self._guarded('deactivate', self._deactivate)
        return super().on_deactivate(state) if outcome == SUCCESS else outcome

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forget everything."""
        def cleanup() -> None:
            self._may_release()
            self._release()

        return self._guarded('cleanup', cleanup)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the motion and let everything go."""
        def shutdown() -> None:
            self._deactivate()
            self._let_go()

        return self._guarded('shutdown', shutdown)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let everything go after a defect, so that the node can be configured again."""
        return self._guarded('error handling', self._let_go)

    def _guarded(
        self, what: str, step: Callable[[], None], *, release_on_failure: bool = False
    ) -> TransitionCallbackReturn:
        try:
            step()
        except RobocalError as refusal:
            self.get_logger().error(f'Cannot {what}: {refusal}')
            if release_on_failure:
                self._release()
            return FAILURE
        except Exception:  # noqa: BLE001
            # A defect, not the user's doing: it must not vanish inside rclpy.
            self.get_logger().fatal(f'Defect in {what}:\n{traceback.format_exc()}')
            if release_on_failure:
                self._release()
            return ERROR
        return SUCCESS

    # ---------------------------------------------------------------- shutting down

    def release(self) -> None:
        """Let everything go before the process ends."""
        self._release()

    def stop_motion(self, reason: str) -> None:
        """Have a motion, if there is one, stopped; returns at once."""

    @property
    def moving(self) -> bool:
        """Whether something is under way that must end before the process does."""
        return False


_SHUTDOWN_PATIENCE = 5.0
_FAREWELL = 0.5


def _hold(node: RobocalNode, executor: SingleThreadedExecutor, reason: str) -> None:
    """Stop a motion, if there is one, and see the arm come to rest."""
    if not node.moving:
        return
    node.stop_motion(reason)
    end = time.monotonic() + _SHUTDOWN_PATIENCE
    while node.moving and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
    # What the process sends just before it ends can be lost: let the answers arrive.
    end = time.monotonic() + _FAREWELL
    while time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)


def spin(make_node: Callable[[], RobocalNode], args: list[str] | None = None) -> int:
    """Run a node's process: autostart, spin, and on a signal hold the arm before leaving.

    Args:
        make_node: Makes the node.
        args: Command line; the process's by default.

    Returns:
        Exit code: 0 when asked to end, 1 after a defect.

    """
    # rclpy's own handler would tear the context down before a motion can be cancelled.
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        executor.wake()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    node = make_node()
    executor.add_node(node)
    code = 0
    try:
        if node.get_parameter('autostart').value:
            started = node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
            if not started:
                node.get_logger().error('autostart failed; the node stays for another try.')
        while rclpy.ok() and not asked:
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
        executor.shutdown(timeout_sec=0.0)
        node.destroy_node()
        rclpy.try_shutdown()
    return code
