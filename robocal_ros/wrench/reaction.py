# SPDX-License-Identifier: Apache-2.0
"""Holding the arm when a contact begins, by the controller that moves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robocal_ros.arm import ControllerGoals
from robocal_ros.node import CalibrationNode
from robocal_ros.wrench.observer import Observation


class ContactReaction:
    """Cancels all goals of the controller at the begin of a contact; it then holds the arm.

    This is not a safety function: it runs without redundancy and without guaranteed latency, and
    commands nothing to an arm that something else than a goal of this controller moves.

    Attributes:
        outcome: Sentence on the last contact, empty before the first one.

    """

    def __init__(self, node: CalibrationNode, links: Sequence[str]) -> None:
        """Create the client of the controller's action.

        Args:
            node: The node, with the parameters.
            links: Names of the sub-chains.

        """
        self._node, self._links = node, links
        self._action = f'{node.values.controller}/follow_joint_trajectory'
        self._goals = ControllerGoals(node.waiter, self._action)
        self._held: dict[tuple[int, ...], bool] = {}
        self.outcome = ''

    def destroy(self) -> None:
        """Remove the client."""
        self._goals.destroy()

    @property
    def problem(self) -> str:
        """Why the arm could not be held now, empty if it could."""
        return '' if self._goals.cancelling.service_is_ready() else (
            f"Controller '{self._action}' is not available, so a contact does not hold the arm. "
            'Start it, or correct the parameter controller.')

    def note(self, observation: Observation) -> None:
        """Hold the arm if a contact begins; one that lasts does not hold it again."""
        what, held = self._contact(observation), self._held.get(observation.links, False)
        # What is held stays so until the contact ends.
        self._held[observation.links] = bool(what) or (held and bool(observation.contacts))
        if what and not held:
            self._hold(what)

    def _contact(self, observation: Observation) -> str:
        """Return which contact is strong enough, empty for none."""
        for index, contact in observation.contacts.items():
            force = contact.least or float(np.linalg.norm(observation.wrench[index, :3]))
            if force >= self._node.values.hold_force:
                return f'{force:.0f} N on {self._links[index]}'
        if observation.colliding is None or not observation.colliding.any():
            return ''
        return 'torque on ' + ', '.join(
            np.array(self._node.robot.joint_names)[observation.colliding])

    def _hold(self, what: str) -> None:
        self.outcome = self.problem or (
            f'Contact ({what}): the controller was told to hold the arm.')
        if self.problem:
            self._node.get_logger().error(self.outcome)
            return
        self._goals.cancel_all().add_done_callback(self._answered)
        self._node.get_logger().warning(self.outcome)

    def _answered(self, answer: Any) -> None:
        response = answer.result()
        if response is None or not response.goals_canceling:
            self.outcome += ' It had no goal to cancel, so what moves the arm goes on.'
            self._node.get_logger().error(self.outcome)
