# SPDX-License-Identifier: Apache-2.0
"""Declaration of a capability: the streams that it reads, and its estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from robocal_ros.messages.record import BUDGET
from robocal_ros.messages.samples import Recording
from robocal_ros.results.chain import Inputs, with_inputs
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import ResultStore
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import torque_factor

if TYPE_CHECKING:
    from robocal_ros.messages.bag import Bag, Selection


F = TypeVar('F')

# Rate of the joint states on which the uncertainty of inputs is propagated [Hz].
_SENSITIVITY_RATE = 100.0


@dataclass(frozen=True)
class WrenchNeed:
    """One F/T sensor that is read.

    Attributes:
        topic: Its topic, relative to the node's namespace.
        frame: Its measurement frame in the URDF.
        sign: +1, or -1 for a sensor that reports what it exerts on the distal side.
        message_frame: The frame that its messages must name; empty for ``frame``.

    """

    topic: str
    frame: str
    sign: float
    message_frame: str = ''


@dataclass(frozen=True)
class TrackerNeed:
    """The tracker that is read.

    Attributes:
        topic: Its topic, relative to the node's namespace.
        orientation: Whether it publishes poses; points otherwise.

    """

    topic: str
    orientation: bool


@dataclass(frozen=True)
class Needs:
    """Streams that an estimation reads besides positions.

    Attributes:
        effort: Whether effort is required in joint states.
        wrenches: F/T sensors.
        temperature_topic: Topic of temperatures, empty for none.
        budget: Largest number of samples per stream; neighbours are averaged beyond it.
        tracker: A tracker, None for none.

    """

    effort: bool
    wrenches: tuple[WrenchNeed, ...] = ()
    temperature_topic: str = ''
    budget: int = BUDGET
    tracker: TrackerNeed | None = None


@dataclass(frozen=True)
class BagReader:
    """Estimation from a bag as a node would do it.

    Attributes:
        name: Name on the command line.
        node: Name of the node whose parameter files apply.
        table: The node's parameter table.
        services: The node's services whose marks delimit a run.

    """

    name: str
    node: str
    table: type[Any]
    services: tuple[str, ...]


@dataclass(frozen=True)
class Capability(BagReader):
    """Estimation from a whole recording.

    Attributes:
        needs: Returns the streams to read, given the parameters.
        estimate: Returns the result, given the arm, the recording, the parameters and the
            stored results.
        summary: Returns a result in a sentence.
        carried: Returns the kinds of inputs whose covariance the estimator itself propagates,
            given the parameters.
        merge: Returns what is stored, given the stored result (None for none) and a new one, or
            None to store the new one by its verdict.

    """

    needs: Callable[[Any], Needs]
    estimate: Callable[[Robot, Recording, Any, ResultStore], CalibrationResult]
    summary: Callable[[CalibrationResult], str]
    carried: Callable[[Any], tuple[str, ...]] = lambda values: ()
    merge: Callable[
        [CalibrationResult | None, CalibrationResult], CalibrationResult | None] | None = None

    def result(
        self, robot: Robot, recording: Recording, values: Any, inputs: Inputs
    ) -> CalibrationResult:
        """Return the estimate with its inputs and their covariance.

        Args:
            robot: The arm.
            recording: The recorded samples, efforts in torques by the drive gains of ``inputs``.
            values: The parameters.
            inputs: Results to build on.

        Raises:
            RobocalError: If parameters or data are unsuitable.

        """
        effort = self.needs(values).effort
        factor = torque_factor(robot, values, inputs) if effort else None
        thin = recording.thinned(_SENSITIVITY_RATE)

        def again(source: Inputs) -> CalibrationResult:
            if factor is None:
                return self.estimate(robot, thin, values, source)
            ratio = torque_factor(robot, values, source) / factor
            joints = replace(thin.joints, effort=thin.joints.effort * ratio)
            return self.estimate(robot, replace(thin, joints=joints), values, source)

        return with_inputs(self.estimate(robot, recording, values, inputs), inputs, again,
                           self.carried(values))


@dataclass(frozen=True)
class Follower(BagReader, Generic[F]):
    """Observation of a bag sample by sample, with a time series as output.

    Attributes:
        follow: Checks the inputs, given the bag, the parameters, the URDF text and the messages
            to use; returns the observation, ready to run.

    """

    follow: Callable[[Bag, Any, str, Selection], F]
