# SPDX-License-Identifier: Apache-2.0
"""Quality of service of every topic, in one place; that of streams is overridden by parameter.

Overrides are ROS 2's own, e.g. ``qos_overrides./joint_states.subscription.reliability``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy


def profile(depth: int, *, reliable: bool = True, latched: bool = False) -> QoSProfile:
    """Return a quality of service.

    Args:
        depth: Number of messages kept.
        reliable: Whether lost messages are sent again.
        latched: Whether late subscribers receive earlier messages (transient local).

    """
    return QoSProfile(
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE)


def offered_by_all(publishers: Iterable[QoSProfile], depth: int) -> QoSProfile:
    """Return the best quality of service that is compatible with each of some publishers."""
    offered = list(publishers)
    return profile(
        depth,
        reliable=all(item.reliability == ReliabilityPolicy.RELIABLE for item in offered),
        latched=all(item.durability == DurabilityPolicy.TRANSIENT_LOCAL for item in offered))


# At least 1 s of a 1 kHz stream. Best effort matches reliable and best-effort publishers.
SENSOR = profile(2000, reliable=False)

# Outputs at the rate of the inputs: reliable, so that every tool can subscribe.
STREAM = profile(SENSOR.depth)

# The newest value, also for late subscribers.
LATCHED = profile(1, latched=True)

# Constant transforms, each publisher's newest ones, also for late subscribers.
TRANSFORMS = profile(100, latched=True)

# The others: the newest ones of all publishers.
MOVING_TRANSFORMS = profile(100, reliable=False)

RELIABLE = profile(10)

# Of action servers; the depth covers short motions.
ACTION_STATUS = profile(10, latched=True)

# A run has a thousand marks at most, each is needed, and a recorder may subscribe after the
# first.
MARKS = profile(2000, latched=True)
