# SPDX-License-Identifier: Apache-2.0
"""What makes a capability usable without its node: what it reads, and how it estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robocal_ros.core.record import BUDGET
from robocal_ros.core.recording import Recording
from robocal_ros.core.result import CalibrationResult
from robocal_ros.core.robot import Robot
from robocal_ros.io.result_yaml import ResultStore


@dataclass(frozen=True)
class WrenchNeed:
    """One F/T sensor that is read.

    Attributes:
        topic: Its topic, relative to the node's namespace.
        frame: The frame that its messages must name.
        sign: +1, or -1 for a sensor that reports what it exerts on the distal side.

    """

    topic: str
    frame: str
    sign: float


@dataclass(frozen=True)
class TrackerNeed:
    """The tracker that is read.

    Attributes:
        topic: Its topic, relative to the node's namespace.
        orientation: Whether it sends poses; points otherwise.

    """

    topic: str
    orientation: bool


@dataclass(frozen=True)
class Needs:
    """What an estimation reads, besides positions.

    Attributes:
        effort: Whether joint states without effort are of no use.
        wrenches: F/T sensors.
        temperature_topic: Topic of temperatures, empty for none.
        budget: Most samples of each stream that the estimation works on.
        tracker: A tracker, None for none.

    """

    effort: bool
    wrenches: tuple[WrenchNeed, ...] = ()
    temperature_topic: str = ''
    budget: int = BUDGET
    tracker: TrackerNeed | None = None


@dataclass(frozen=True)
class Capability:
    """One kind of estimation.

    Attributes:
        name: Its name on the command line.
        node: The node whose parameter files hold.
        table: The node's parameters.
        verbs: The node's services whose recordings it estimates from.
        needs: Returns what it reads, given the parameters.
        estimate: Returns the result, given the arm, what was recorded, the parameters and the
            stored results.
        summary: Returns a result in a sentence.

    """

    name: str
    node: str
    table: type[Any]
    verbs: tuple[str, ...]
    needs: Callable[[Any], Needs]
    estimate: Callable[[Robot, Recording, Any, ResultStore], CalibrationResult]
    summary: Callable[[CalibrationResult], str]
