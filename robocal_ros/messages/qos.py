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

# One second and more of a 1 kHz stream. Best effort hears reliable and best-effort writers.
SENSOR = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=2000,
    reliability=QoSReliabilityPolicy.BEST_EFFORT,
    durability=QoSDurabilityPolicy.VOLATILE,
)

# What a node says at the rate of what it hears: reliable, so that every tool can listen.
STREAM = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=SENSOR.depth,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.VOLATILE,
)

# The newest value, also for those who come late.
LATCHED = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.TRANSIENT_LOCAL,
)

RELIABLE = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST,
    depth=10,
    reliability=QoSReliabilityPolicy.RELIABLE,
    durability=QoSDurabilityPolicy.VOLATILE,
)

# Marks are few, a thousand at most, each of them matters, and a recorder may come after the
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
