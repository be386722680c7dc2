# SPDX-License-Identifier: Apache-2.0
"""Quality of service of every topic, in one place; that of streams is overridden by parameter.

Overrides are ROS 2's own, e.g. ``qos_overrides./joint_states.subscription.reliability``.
"""

from __future__ import annotations

from rclpy.qos import (
    QoSDurabilityPolicy,
    QoSHistoryPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
)
from rclpy.qos_overriding_options import QoSOverridingOptions

# At least 1 s of a 1 kHz stream. Best effort matches reliable and best-effort publishers.
SENSOR = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=2000,
    reliability=QoSReliabilityPolicy.BEST_EFFORT,
    durability=QoSDurabilityPolicy.VOLATILE,
)

# Outputs at the rate of the inputs: reliable, so that every tool can subscribe.
STREAM = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=SENSOR.depth,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.VOLATILE,
)

# The newest value, also for late subscribers.
LATCHED = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.TRANSIENT_LOCAL,
)

# Constant transforms, each publisher's newest ones, also for late subscribers.
TRANSFORMS = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=100,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.TRANSIENT_LOCAL,
)

# The others: the newest ones of all publishers.
MOVING_TRANSFORMS = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=100,
    reliability=QoSReliabilityPolicy.BEST_EFFORT,
    durability=QoSDurabilityPolicy.VOLATILE,
)

RELIABLE = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=10,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.VOLATILE,
)

# A run has a thousand marks at most, each is needed, and a recorder may subscribe after the
# first.
MARKS = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=2000,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.TRANSIENT_LOCAL,
)

def overridable() -> QoSOverridingOptions:
    """Return the options that let parameters override history, depth and reliability."""
    return QoSOverridingOptions.with_default_policies()
