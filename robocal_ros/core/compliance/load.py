# SPDX-License-Identifier: Apache-2.0
"""The known load that makes the arm sag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robocal_ros.core.arrays import Array, frozen
from robocal_ros.core.payload.load import alternative_loads, carried_load
from robocal_ros.core.result import CalibrationResult
from robocal_ros.core.robot import RigidBodyInertia, Robot
from robocal_ros.errors import DataError


@dataclass(frozen=True)
class Load:
    """What is mounted between the two sets.

    Attributes:
        body: Mass, centre of mass and inertia in ``frame``.
        frame: Frame that it is fixed to.
        alternatives: Bodies one standard deviation off along independent directions, for the
            uncertainty; empty for a load that is known exactly.
        source: Where the numbers come from, in words.

    """

    body: RigidBodyInertia
    frame: str
    alternatives: tuple[RigidBodyInertia, ...] = ()
    source: str = 'given'

    def check(self) -> Load:
        """Return itself, or refuse numbers that cannot be a load's; raises DataError."""
        numbers = [self.body.mass, *self.body.com]
        if not np.isfinite(numbers).all():
            raise DataError(
                f'The load ({self.source}) has mass {self.body.mass} kg and centre '
                f'{np.asarray(self.body.com).tolist()} m; expected finite numbers.')
        if self.body.mass <= 0.0:
            raise DataError(
                f'The mass of the load ({self.source}) is {self.body.mass:g} kg; expected more '
                'than 0. Set load_mass and load_com, or identify the payload first.')
        return self

    def on(self, robot: Robot) -> Robot:
        """Return the arm with the load on it."""
        return robot.with_payload(self.body, self.frame)

    def others_on(self, robot: Robot) -> list[Robot]:
        """Return the arm with each of the loads that it may be instead."""
        return [robot.with_payload(body, self.frame) for body in self.alternatives]


def given_load(
    mass: float, com: Sequence[float], frame: str, *, mass_std: float = 0.0, com_std: float = 0.0
) -> Load:
    """Return a load of given mass and centre.

    Args:
        mass: Mass [kg].
        com: Centre of mass in ``frame``, shape (3,) [m].
        frame: Frame that it is fixed to.
        mass_std: Standard deviation of the mass [kg].
        com_std: Standard deviation of each coordinate of the centre [m].

    Raises:
        DataError: If the mass is not positive or a number is not finite.

    """
    centre: Array = frozen(com)
    point = np.zeros((3, 3))
    others = [RigidBodyInertia(mass + mass_std, centre, point)] if mass_std > 0.0 else []
    if com_std > 0.0:
        others += [RigidBodyInertia(mass, frozen(centre + com_std * axis), point)
                   for axis in np.eye(3)]
    return Load(RigidBodyInertia(mass, centre, point), frame, tuple(others)).check()


def identified_load(result: CalibrationResult) -> Load:
    """Return the load of a payload result, with what its uncertainty leaves open.

    Raises:
        DataError: If the result is not of a payload, lacks mass or centre, or is no load.

    """
    return Load(carried_load(result), result.frame, tuple(alternative_loads(result)),
                'payload result').check()
