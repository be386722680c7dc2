# SPDX-License-Identifier: Apache-2.0
"""The base of every node: guarded transitions, one release, parameters from one table.

rclpy swallows exceptions of transitions and does not clean up after a failed configure; here
every refusal is logged as a sentence and answered with FAILURE, every defect with its
traceback and ERROR, and ``_release`` is called in each of these cases.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from lifecycle_msgs.msg import State
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter

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

    def stop(self, reason: str) -> None:
        """Have a motion stopped."""
        self.stop_motion(reason)

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self.moving
