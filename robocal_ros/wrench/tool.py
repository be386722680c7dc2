# SPDX-License-Identifier: Apache-2.0
"""The wrench on the tool from external joint torques, and what a posture hides of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.wrench.chains import SensedArm

_NAMES = ('force x', 'force y', 'force z', 'moment x', 'moment y', 'moment z')
# A component is told when at most this share of it, squared, is blind.
_BLIND_SHARE = 1e-3


@dataclass(frozen=True)
class ToolWrench:
    """A wrench at the tool, as far as the posture shows it.

    Attributes:
        wrench: In tool axes about the tool's origin; NaN where blind, shape (6,) [N, N·m].
        smallest: Smallest singular value of the scaled Jacobian [m].
        blind: Directions that the joints don't feel, in words.

    """

    wrench: Array
    smallest: float
    blind: tuple[str, ...]


def tool_wrench(
    torque: Array, jacobian: Array, *, length: float, least: float, damping: float
) -> ToolWrench:
    """Return the tool wrench that explains external joint torques.

    τ = Jᵀ w, inverted by singular values with damping, σ / (σ² + λ²) (Nakamura and Hanafusa,
    J. Dyn. Syst. Meas. Control 108 (1986) 163, doi 10.1115/1.3143764). Directions whose
    singular value is below ``least`` are blind: what they would carry is not zero but unknown,
    and components of the wrench that they touch are NaN.

    Args:
        torque: External joint torques, shape (n,) [N·m].
        jacobian: Of the tool frame in tool axes, linear rows first, shape (6, n).
        length: Length that makes moments comparable with forces [m].
        least: Singular values below this are blind [m].
        damping: λ [m].

    """
    # A moment counts as the force that makes it on a lever of this length.
    scale = np.array([1.0, 1.0, 1.0, length, length, length])
    directions, values, joints = np.linalg.svd(scale[:, None] * jacobian)
    full = np.zeros(6)
    full[:len(values)] = values
    seen = full >= least
    count = int(seen.sum())
    gains = full[:count] / (full[:count]**2 + damping**2)
    wrench = scale * (directions[:, :count] @ (gains * (joints[:count] @ torque)))
    hidden = (directions[:, ~seen]**2).sum(axis=1)
    wrench = np.where(hidden > _BLIND_SHARE, np.nan, wrench)
    blind = tuple(_told(direction) for direction in directions[:, ~seen].T)
    return ToolWrench(wrench, float(full[-1]), blind)


def _told(direction: Array) -> str:
    """Name a direction by its largest components."""
    largest = np.flatnonzero(direction**2 > 0.1)
    order = largest[np.argsort(-np.abs(direction[largest]))]
    return ' and '.join(_NAMES[i] for i in order)


class ToolFrame:
    """The wrench on the tool, in tool axes about the tool frame's origin.

    Attributes:
        by_sensor: Whether an F/T sensor tells it, else joint torques do.

    """

    def __init__(
        self, arm: SensedArm, source: str, *, length: float, least: float, damping: float
    ) -> None:
        """Choose the source.

        Args:
            arm: The arm cut at its sensors.
            source: ``sensor``, ``torque``, or ``auto`` for the sensor where there is one.
            length: As of ``tool_wrench``.
            least: As of ``tool_wrench``.
            damping: As of ``tool_wrench``.

        Raises:
            ConfigurationError: If a sensor is asked for and none carries the tool frame.

        """
        self._arm = arm
        self._robot = arm.robot.copy()
        self._chain = arm.chain_of_frame(arm.robot.tool_frame)
        if source == 'sensor' and self._chain is None:
            raise ConfigurationError(
                f"tool_wrench_source is 'sensor', but no F/T sensor carries '"
                f"{arm.robot.tool_frame}'; name one that does, or use torque.")
        self.by_sensor = source != 'torque' and self._chain is not None
        self._length, self._least, self._damping = length, least, damping

    @property
    def link(self) -> int:
        """Index of the sub-chain that carries the tool frame, -1 if there is none."""
        return -1 if self._chain is None else self._chain.proximal

    def of_link(self, wrench: Array) -> Array:
        """Return a sub-chain's wrench as one on the tool, shape (6,) [N, N·m].

        Args:
            wrench: On the tool's sub-chain, in its frame about its origin, shape (6,).

        Raises:
            ConfigurationError: If no sensor carries the tool frame.

        """
        if self._chain is None:
            raise ConfigurationError('No F/T sensor carries the tool frame.')
        placement = self._arm.frame_in_chain(self._chain, self._robot.tool_frame)
        return np.asarray(placement.inverse().toDualActionMatrix() @ wrench)

    def of_torque(self, posture: Array, torque: Array) -> ToolWrench:
        """Return the tool wrench that explains external joint torques.

        Args:
            posture: Joint angles, shape (n,) [rad].
            torque: External joint torques, shape (n,) [N·m].

        """
        robot = self._robot
        jacobian = np.array(pin.computeFrameJacobian(
            robot.model, robot.data, posture, robot.frame_id(robot.tool_frame),
            pin.ReferenceFrame.LOCAL)).reshape(6, robot.n)
        return tool_wrench(torque, jacobian, length=self._length, least=self._least,
                           damping=self._damping)
