# SPDX-License-Identifier: Apache-2.0
"""Joints without a robot description, for tests of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class PlainJoints:
    """Joints without limits, as ``posture_check.Joints`` describes them."""

    joint_names: tuple[str, ...]
    lower: np.ndarray = field(init=False)
    upper: np.ndarray = field(init=False)
    velocity_limit: np.ndarray = field(init=False)
    effort_limit: np.ndarray = field(init=False)
    continuous: np.ndarray = field(init=False)
    prismatic: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.joint_names)
        self.lower, self.upper = np.full(n, -np.inf), np.full(n, np.inf)
        self.velocity_limit = np.full(n, 1e6)
        self.effort_limit = np.full(n, np.inf)
        self.continuous, self.prismatic = np.zeros(n, bool), np.zeros(n, bool)


def plain(names: Sequence[str]) -> PlainJoints:
    return PlainJoints(tuple(names))
