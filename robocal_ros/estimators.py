# SPDX-License-Identifier: Apache-2.0
"""Declaration of a capability: the streams that it reads, and its estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import BUDGET, Recording
from robocal_ros.results import DRIVE_GAINS, CalibrationResult, Inputs, Load, choose, with_inputs
from robocal_ros.robot import (
    EFFORT_UNITS,
    TORQUE_ZERO,
    Robot,
    check_efforts,
    effort_units,
    efforts_of,
    other_efforts,
    torque_zero,
)

if TYPE_CHECKING:
    from robocal_ros.messages import Bag, Selection


F = TypeVar('F')


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
        name: Name of the procedure.
        table: The node's parameter table.
        services: The node's services whose marks delimit a run.

    """

    name: str
    table: type[Any]
    services: tuple[str, ...]

    @property
    def node(self) -> str:
        """Name of the node whose parameter files apply."""
        return registry.procedures()[self.name].node


@dataclass(frozen=True)
class Estimator(BagReader):
    """Estimation from a whole recording.

    Attributes:
        needs: Returns the streams to read, given the parameters.
        kinds: Returns the kinds of results that are used where there are any, besides those that
            set the unit of efforts, given the parameters.
        estimate: Returns the result, given the arm, the recording, the parameters and the inputs,
            whose covariance it propagates.
        summary: Returns a result in a sentence.
        beside: Kinds of results that an estimate is only compared with.
        priors: Returns the kinds of results that are used where they are current, given the
            parameters.
        merge: Returns what is stored, given the stored result (None for none) and a new one, or
            None to store the new one by its verdict.

    """

    needs: Callable[[Any], Needs]
    kinds: Callable[[Any], tuple[str, ...]]
    estimate: Callable[[Robot, Recording, Any, Inputs], CalibrationResult]
    summary: Callable[[CalibrationResult], str]
    beside: tuple[str, ...] = ()
    priors: Callable[[Any], tuple[str, ...]] = lambda values: ()
    merge: Callable[
        [CalibrationResult | None, CalibrationResult], CalibrationResult | None] | None = None

    def inputs(self, robot: Robot, values: Any, load: Load) -> Inputs:
        """Choose the inputs of an estimate.

        Args:
            robot: The arm.
            values: The parameters.
            load: Returns the current results.

        Raises:
            RobocalError: If a result cannot be read, or is built on other efforts.

        """
        effort = self.needs(values).effort
        # Gains replace earlier ones: with which of them an arm was identified does not matter.
        # What sets the unit of efforts begins anew where their origin changed.
        found = choose(load, self.kinds(values), effort_units(values) if effort else (),
                       DRIVE_GAINS if self.name == DRIVE_GAINS else '', lambda gains: (
                           self.name not in EFFORT_UNITS
                           or not other_efforts(robot, values, gains)),
                       self.beside, self.priors(values))
        if effort:
            for result in found.used.values():
                check_efforts(robot, values, result)
        return found

    def result(
        self, robot: Robot, recording: Recording, values: Any, inputs: Inputs
    ) -> CalibrationResult:
        """Return the estimate with its inputs.

        Args:
            robot: The arm.
            recording: The recorded samples, efforts in torques by the drive gains of ``inputs``.
            values: The parameters.
            inputs: Results to build on, chosen for these parameters.

        Raises:
            RobocalError: If parameters or data are unsuitable.

        """
        recording, effort = recording.measured_anew(), self.needs(values).effort
        if (zero := inputs.get(TORQUE_ZERO)) is not None:
            joints = recording.joints
            recording = replace(recording, joints=replace(
                joints, effort=joints.effort - torque_zero(robot, zero).offset))
        result = with_inputs(self.estimate(robot, recording, values, inputs), inputs)
        return replace(result, efforts=efforts_of(robot, values) if effort else None)


@dataclass(frozen=True)
class Follower(BagReader, Generic[F]):
    """Observation of a bag sample by sample, with a time series as output.

    Attributes:
        follow: Checks the inputs, given the bag, the parameters, the URDF text and the messages
            to use; returns the observation, ready to run.

    """

    follow: Callable[[Bag, Any, str, Selection], F]


@dataclass(frozen=True)
class FileEstimator(BagReader):
    """Estimation from files of measurements.

    Attributes:
        kinds: Returns the kinds of results that are used where there are any, given the
            parameters.
        estimate: Returns the result, given the arm, the files, the parameters and the inputs,
            whose covariance it propagates.
        summary: Returns a result in a sentence.

    """

    kinds: Callable[[Any], tuple[str, ...]]
    estimate: Callable[[Robot, Sequence[Path], Any, Inputs], CalibrationResult]
    summary: Callable[[CalibrationResult], str]

    def result(
        self, robot: Robot, files: Sequence[Path], values: Any, load: Load
    ) -> CalibrationResult:
        """Return the estimate with its inputs and their covariance.

        Args:
            robot: The arm.
            files: The files.
            values: The parameters.
            load: Returns the current results.

        Raises:
            RobocalError: If parameters or data are unsuitable.

        """
        inputs = choose(load, self.kinds(values))
        return with_inputs(self.estimate(robot, files, values, inputs), inputs)


def estimator(name: str) -> Estimator | Follower[Any]:
    """Return an estimator from bags by name; raises ConfigurationError for an unknown one.

    Only its own modules are imported, to start sooner.
    """
    known = registry.estimators()
    if name not in known:
        raise ConfigurationError(
            f"'{name}' is not a capability that estimates from bags; expected one of "
            f'{", ".join(known)}.')
    return resolve_name(known[name])


def file_estimator(name: str) -> FileEstimator:
    """Return an estimator from files by its name in the registry."""
    return resolve_name(registry.file_estimators()[name])
