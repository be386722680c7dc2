# SPDX-License-Identifier: Apache-2.0
"""Arms with compliant joints for the compliance benchmark: statics only, or with motion."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xacro

from benchmarks.arm import InProcessArm
from benchmarks.random_cell import random_truth
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.compliance import ComplianceParameters
from robocal_ros.compliance.measurement import EndPosition, average, find_end_positions
from robocal_ros.compliance.model import Load, given_load
from robocal_ros.compliance.plan import plan_postures
from robocal_ros.errors import DataError
from robocal_ros.messages import JointSamples, TrackerSamples
from robocal_ros.resources import share_directory
from robocal_ros.robot import CollisionChecker, Robot, connect, quintic_path
from robocal_sim.drive import DEADBAND
from robocal_sim.model import read_description
from robocal_sim.physics import ArmPhysics
from robocal_sim.sensors import TrackerSensor
from robocal_sim.simulator import SensorReading
from robocal_sim.truth import Cell, HiddenTruth, ToolTruth, TrackerTruth

LOAD_MASS = 10.0
WALL = '0 0.5235987755982988 0'
"""Roll, pitch, yaw [rad] of a base on a wall inclined by 30°."""

_VELOCITY, _ACCELERATION = 1.0, 2.0
_PROLONGED = 4


def drawn_truth(seed: int, *, joints: bool = False) -> HiddenTruth:
    """Draw a random tool, and the centre of mass of a load of 10 kg.

    Args:
        seed: Seed of the draw.
        joints: True to draw the joints too, instead of keeping the default arm's.

    """
    base = default_cell.hidden_truth()
    generator = np.random.default_rng([seed, 5])
    angle = generator.uniform(-np.pi, np.pi)
    x, y = 0.08 * generator.uniform(0.5, 1.0) * np.array([np.cos(angle), np.sin(angle)])
    inertia = base.load.inertia if base.load else (0.03, 0.03, 0.02, 0.0, 0.0, 0.0)
    drawn = random_truth(base, seed, sensor=default_cell.WRIST_SENSOR)
    return replace(
        drawn, joints=drawn.joints if joints else base.joints,
        load=ToolTruth(LOAD_MASS, (float(x), float(y), float(generator.uniform(0.06, 0.15))),
                       inertia, 'flange'),
        tracker=base.tracker, force_torque_sensors=())


def tracker_of(truth: HiddenTruth) -> TrackerTruth:
    """Return the tracker of a truth.

    Raises:
        DataError: The truth has no tracker.

    """
    if truth.tracker is None:
        raise DataError('The hidden truth has no tracker. Add one to the truth file.')
    return truth.tracker


@dataclass(frozen=True)
class Known:
    """Knowledge of a user: rigid arm, load, target and tracker position."""

    urdf: str
    robot: Robot
    load: Load
    values: ComplianceParameters

    @classmethod
    def of(cls, truth: HiddenTruth, mount: str = '0 0 0') -> Known:
        """Return the knowledge of a cell whose base is mounted with roll, pitch, yaw ``mount``."""
        path = share_directory() / 'urdf' / 'robocal_arm.urdf.xacro'
        urdf: str = xacro.process_file(str(path), mappings={'mount_rpy': mount}).toxml()
        tracker, load = tracker_of(truth), truth.load
        if load is None:
            raise DataError('The hidden truth has no load. Add one to the truth file.')
        return cls(
            urdf, Robot(urdf), given_load(load.mass, load.centre_of_mass, 'flange'),
            ComplianceParameters(
                target_frame=tracker.target_link, target_xyz=list(tracker.target_xyz),
                target_axis=list(tracker.target_axis), tracker_position=list(tracker.xyz),
                visibility_angle=tracker.visibility_angle))

    def postures(self, seed: int = 0) -> Array:
        """Plan the postures from the zero posture, shape (30, n) [rad]."""
        return plan_postures(
            self.robot, self.load.on(self.robot), CollisionChecker(self.robot.copy()),
            np.zeros(self.robot.n), self.values, seed=seed)


class ArmAtRest:
    """An arm that takes a posture immediately: statics, encoders and tracker without motion."""

    def __init__(self, known: Known, truth: HiddenTruth, cell: Cell, seed: int) -> None:
        """Create the arm.

        Args:
            known: Knowledge of the user.
            truth: Hidden truth.
            cell: Noise of encoders and tracker.
            seed: Seed of the noise.

        """
        self._generator = np.random.default_rng([seed, 11])
        self._physics = ArmPhysics(read_description(known.urdf), truth)
        self._tracker = TrackerSensor(cell.tracker, tracker_of(truth),
                                      np.random.default_rng([seed, 12]))
        self._link = tracker_of(truth).target_link
        self._step = cell.joint_states.position_quantisation
        self._period = 1.0 / cell.tracker.rate
        self._time = 0.0

    def load(self) -> None:
        """Attach the load."""
        self._physics.attach_load()

    def visit(self, posture: Array, values: ComplianceParameters) -> EndPosition:
        """Return the measurement in a posture, shape (n,) [rad]."""
        reached = posture.copy()
        if self._step:
            # Drives do not correct errors within their deadband.
            reached = posture + self._generator.uniform(-DEADBAND, DEADBAND, len(posture))
        self._physics.rest_in(reached)
        shown = np.round(reached / self._step) * self._step if self._step else reached
        pose = self._physics.link_pose(self._link)
        count = round(values.dwell / self._period)
        stamps: Array = self._time + self._period * np.arange(count, dtype=np.float64)
        points = [p for p in (self._tracker.measure(*pose) for _ in stamps) if p is not None]
        seen: Array = np.array(points).reshape(-1, 3)
        self._time += values.settle + values.dwell
        return average(shown, TrackerSamples(
            'tracker', stamps[:len(points)], seen))


class MovedArm(InProcessArm):
    """An arm that moves from posture to posture as the node would move it."""

    def __init__(self, known: Known, truth: HiddenTruth, cell: Cell, seed: int) -> None:
        """Create the arm; arguments as for ``ArmAtRest``."""
        super().__init__(known.urdf, truth, cell, seed)
        self._known = known
        self._checker = CollisionChecker(known.robot.copy())
        self._tracked: list[SensorReading] = []

    def load(self) -> None:
        """Attach the load and wait until vibrations have decayed."""
        self._simulator.physics.attach_load()
        self.dwell(1.0)

    def visit(self, posture: Array, values: ComplianceParameters) -> EndPosition:
        """Move to a posture, shape (n,) [rad], and return the measurement there.

        Raises:
            DataError: The arm does not come to rest, or the tracker does not see the target.

        """
        robot = self._known.robot
        speed = np.minimum(robot.velocity_limit, _VELOCITY)
        self.move(quintic_path(connect(robot, self._checker, self.posture, posture), speed,
                               np.full(robot.n, _ACCELERATION)))
        self._joints, self._tracked = [], []
        self.dwell(values.settle + values.dwell + 0.1)
        for _ in range(_PROLONGED):
            found = find_end_positions(self._states(), self._readings(), values)
            if found:
                return found[-1]
            self.dwell(values.dwell)
        raise DataError('The arm did not come to rest, or the tracker does not see the target.')

    def _step(self) -> None:
        readings = self._simulator.step()
        self._simulator.controller.take_ended()
        self._joints += readings.joints
        self._tracked += readings.tracker

    def _states(self) -> JointSamples:
        return JointSamples(
            self._known.robot.joint_names, np.array([item.time for item in self._joints]),
            np.array([item.position for item in self._joints]),
            np.array([item.velocity for item in self._joints]),
            np.array([item.effort for item in self._joints]))

    def _readings(self) -> TrackerSamples:
        return TrackerSamples('tracker', np.array([item.time for item in self._tracked]),
                              np.array([item.values for item in self._tracked]))


def both_sets(
    arm: ArmAtRest | MovedArm, postures: Array, values: ComplianceParameters
) -> tuple[list[EndPosition], list[EndPosition]]:
    """Return the measurements in all postures without the load, then with it."""
    unloaded = [arm.visit(q, values) for q in postures]
    arm.load()
    return unloaded, [arm.visit(q, values) for q in postures]
