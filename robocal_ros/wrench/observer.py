# SPDX-License-Identifier: Apache-2.0
"""Samples in, external wrenches and contacts out: what is needed of it at every instant.

All sub-chains whose motion comes from joint states are computed together, at the instants of
the joint states. A link with an IMU is computed for itself, at the instants of its proximal
sensor, and needs no joint states. In both cases readings are interpolated to the instant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.robot.model import RigidBodyInertia
from robocal_ros.wrench.alignment import Feed
from robocal_ros.wrench.chains import SensedArm
from robocal_ros.wrench.contact import ContactJudge
from robocal_ros.wrench.groups import ImuGroup, ImuLink, JointGroup
from robocal_ros.wrench.momentum import MomentumObserver
from robocal_ros.wrench.observation import Observation, ObserverSettings
from robocal_ros.wrench.surface import Surface
from robocal_ros.wrench.tare import TareRecord


class WrenchObserver:
    """Follows all sub-chains of an arm.

    Attributes:
        arm: The arm cut at its sensors.
        feeds: Readings of its F/T sensors.
        imu_feeds: Readings of IMUs, by sub-chain.
        bias: Bias of each sensor, in its measurement frame, shape (k, 6) [N, N·m].
        link_bias: Bias of whole links with IMUs that were tared without joint states, by
            sub-chain, shape (6,) each.
        momentum: The momentum observer; None where torques are not used.
        judges: By sub-chain, whether it is pushed and where.
        recorder: Takes what a tare needs while one is under way, else None.

    """

    def __init__(
        self,
        arm: SensedArm,
        feeds: Sequence[Feed],
        settings: ObserverSettings,
        *,
        surface: Surface | None = None,
        imus: Mapping[int, tuple[str, Feed]] | None = None,
        momentum: MomentumObserver | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            arm: The arm cut at its sensors.
            feeds: Readings of its sensors, in their order.
            settings: How samples become wrenches.
            surface: Its geometry; without, no contact points are told.
            imus: By sub-chain whose motion an IMU measures: its frame and its readings
                (specific force [m/s²], then angular velocity [rad/s]).
            momentum: Follows external joint torques.

        Raises:
            ConfigurationError: If an IMU's sub-chain is not rigid, or its frame not on it.

        """
        self.arm = arm
        self.feeds = tuple(feeds)
        self.momentum = momentum
        self.bias = np.zeros((len(feeds), 6))
        self.recorder: TareRecord | None = None
        self.link_bias: dict[int, Array] = {}
        self._settings = settings
        self.judges = [ContactJudge(chain, settings.gates, surface) for chain in arm.chains]
        self._forces = [0.0] * len(feeds)
        imus = imus or {}
        self.imu_feeds = {index: feed for index, (_, feed) in imus.items()}
        self._imu_groups = {
            index: ImuGroup(self, ImuLink(arm, arm.chains[index], frame), feed, settings)
            for index, (frame, feed) in imus.items()
        }
        self._joint_group = JointGroup(
            self, tuple(i for i in range(len(feeds)) if i not in imus), settings)

    # ------------------------------------------------------------------------ input

    def add_joint_state(
        self, stamp: float, q: Array, v: Array | None, effort: Array | None
    ) -> None:
        """Take a joint state.

        Args:
            stamp: Its stamp, newer than the newest [s].
            q: Joint angles, shape (n,) [rad].
            v: Joint velocities, None where there are none, shape (n,) [rad/s].
            effort: Drive torques, None where there are none, shape (n,) [N·m].

        """
        self._joint_group.add(stamp, q, v, effort)

    def refuse_joint_state(self, complaint: str) -> None:
        """Note a joint state that is not usable, and why."""
        self._joint_group.complaint = complaint

    def add_reading(self, index: int, stamp: float, values: tuple[float, ...]) -> None:
        """Take a reading of an F/T sensor.

        Args:
            index: Which sensor.
            stamp: Its stamp, newer than the newest [s].
            values: Force [N], then moment [N·m].

        """
        self.feeds[index].add(stamp, values)
        group = self._imu_groups.get(index)
        if group is not None and self.feeds[index].newest == stamp:
            group.instants.add(stamp, np.array(values))

    def clear(self) -> None:
        """Forget all samples, as after a jump of the clock; biases stay."""
        for feed in (*self.feeds, *self.imu_feeds.values()):
            feed.clear()
        self._joint_group.clear()
        for group in self._imu_groups.values():
            group.clear()
        for judge in self.judges:
            judge.clear()

    def settle(self) -> None:
        """Begin contacts anew, as when biases have changed."""
        for judge in self.judges:
            judge.clear()

    def in_contact(self, index: int) -> bool:
        """Tell whether a sub-chain is pushed."""
        return self.judges[index].in_contact

    def contact_duration(self, index: int) -> float:
        """Return how long a sub-chain has been pushed [s]."""
        return self.judges[index].duration

    @property
    def levels(self) -> list[float]:
        """Mean force on each sub-chain while it was not pushed [N]."""
        return [judge.level for judge in self.judges]

    def carry(self, payload: RigidBodyInertia | None, frame: str = '') -> None:
        """Count what the arm carries from now on; arguments as of ``SensedArm.carry``."""
        self.arm.carry(payload, frame)
        for judge, chain in zip(self.judges, self.arm.chains, strict=True):
            judge.use(chain)
        for index, group in self._imu_groups.items():
            group.link.use(self.arm.chains[index])
        if self.momentum is not None:
            robot = self.arm.robot
            self.momentum.use(robot if payload is None else robot.with_payload(
                payload, frame or None))

    # ----------------------------------------------------------------------- output

    def take(self) -> Observation | None:
        """Return the next observation, None when more samples are needed first."""
        observation = self._joint_group.take()
        if observation is not None:
            return observation
        for group in self._imu_groups.values():
            observation = group.take()
            if observation is not None:
                return observation
        return None

    @property
    def joint_complaint(self) -> str:
        """What is wrong with the newest joint state, empty if nothing is."""
        return self._joint_group.complaint

    def why_late(self, feed: Feed, lag: float) -> str:
        """Return in a sentence why a sensor's readings are missing.

        Args:
            feed: Its readings.
            lag: How far its newest reading lies behind [s].

        """
        if feed.complaint:
            return feed.complaint
        if not np.isfinite(feed.newest):
            return f"No readings come from sensor '{feed.name}'; check its topic and driver."
        if lag > 1.0:
            return f"Sensor '{feed.name}' has been silent for {lag:.1f} s; check its driver."
        if lag > self._settings.max_delay:
            return (f"Readings of sensor '{feed.name}' come {1e3 * lag:.0f} ms late, more than "
                    f'max_delay ({1e3 * self._settings.max_delay:.0f} ms).')
        return f"Readings of sensor '{feed.name}' are missing."

    def judge(
        self, observation: Observation, stamp: float, scatter: Callable[[int], float]
    ) -> None:
        """Fill in the contacts of an observation whose wrenches are known.

        Args:
            observation: The observation.
            stamp: The instant that it describes [s].
            scatter: Returns how much a sub-chain's force varied within the window [N].

        """
        wrench = observation.wrench
        force = wrench[:, :3]
        forces = np.sqrt(np.einsum('ij,ij->i', force, force)).tolist()
        for index in observation.links:
            self._forces[index] = 0.0 if observation.reasons[index] else forces[index]
        strongest = max(self._forces)
        for index in observation.links:
            judge = self.judges[index]
            if observation.reasons[index]:
                judge.clear()
                continue
            contact = judge.update(
                stamp, wrench[index], forces[index], strongest, partial(scatter, index))
            if contact is not None:
                observation.contacts[index] = contact
                observation.in_contact[index] = True
