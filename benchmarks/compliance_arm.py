# SPDX-License-Identifier: Apache-2.0
"""Arms with soft joints for the compliance benchmark: put to rest at once, or really moved."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xacro

from benchmarks.arm import InProcessArm
from benchmarks.random_cell import random_truth
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.compliance.measurement import EndPosition, average, find_end_positions
from robocal_ros.compliance.model import Load, given_load
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.compliance.plan import plan_postures
from robocal_ros.errors import DataError
from robocal_ros.messages.samples import JointSamples, TrackerSamples
from robocal_ros.resources import share_directory
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot
from robocal_ros.robot.motion import quintic_path
from robocal_ros.robot.planning import connect
from robocal_sim.drive import DEADBAND
from robocal_sim.model import read_description
from robocal_sim.physics import ArmPhysics
from robocal_sim.sensors import TrackerSensor
from robocal_sim.simulator import SensorReading
from robocal_sim.truth import Cell, HiddenTruth, ToolTruth, TrackerTruth

LOAD_MASS = 10.0
WALL = '0 0.5235987755982988 0'
"""Roll, pitch, yaw of a base on a wall that leans by 30°."""

_VELOCITY, _ACCELERATION = 1.0, 2.0
_PROLONGED = 4


def drawn_truth(seed: int, *, joints: bool = False) -> HiddenTruth:
    """Draw a tool within the reference cell, and the centre of a load of 10 kg.

    Args:
        seed: Seed of the draw.
        joints: Draw the joints too, instead of the default arm's own.

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
        DataError: If it has none.

    """
    if truth.tracker is None:
        raise DataError('The hidden truth has no tracker; add one.')
    return truth.tracker


@dataclass(frozen=True)
class Known:
    """What a user knows: the rigid arm, the load, the target, and where the tracker is."""

    urdf: str
    robot: Robot
    load: Load
    values: ComplianceParameters

    @classmethod
    def of(cls, truth: HiddenTruth, mount: str = '0 0 0') -> Known:
        """Return what is known of a cell; its base is mounted as ``mount`` says."""
        path = share_directory() / 'urdf' / 'robocal_arm.urdf.xacro'
        urdf: str = xacro.process_file(str(path), mappings={'mount_rpy': mount}).toxml()
        tracker, load = tracker_of(truth), truth.load
        if load is None:
            raise DataError('The hidden truth has no load; add one.')
        return cls(
            urdf, Robot(urdf), given_load(load.mass, load.centre_of_mass, 'flange'),
            ComplianceParameters(
                target_frame=tracker.target_link, target_xyz=list(tracker.target_xyz),
                target_axis=list(tracker.target_axis), tracker_position=list(tracker.xyz),
                visibility_angle=tracker.visibility_angle))

    def postures(self, seed: int = 0) -> Array:
        """Plan the postures from where the arm starts, shape (30, n) [rad]."""
        return plan_postures(
            self.robot, self.load.on(self.robot), CollisionChecker(self.robot.copy()),
            np.zeros(self.robot.n), self.values, seed=seed)


class ArmAtRest:
    """An arm that is in a posture at once: its statics, encoders and tracker, without motion."""

    def __init__(self, known: Known, truth: HiddenTruth, cell: Cell, seed: int) -> None:
        """Build it.

        Args:
            known: The rigid arm.
            truth: What is hidden.
            cell: Noise.
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
        """Mount the load."""
        self._physics.attach_load()

    def visit(self, posture: Array, values: ComplianceParameters) -> EndPosition:
        """Return what is seen in a posture."""
        reached = posture.copy()
        if self._step:
            # Drives leave errors below their deadband alone.
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
    """An arm that moves from posture to posture as the node moves it."""

    def __init__(self, known: Known, truth: HiddenTruth, cell: Cell, seed: int) -> None:
        """Build it; arguments as of ``ArmAtRest``."""
        super().__init__(known.urdf, truth, cell, seed)
        self._known = known
        self._checker = CollisionChecker(known.robot.copy())
        self._tracked: list[SensorReading] = []

    def load(self) -> None:
        """Mount the load, and let the arm calm down."""
        self._simulator.physics.attach_load()
        self.dwell(1.0)

    def visit(self, posture: Array, values: ComplianceParameters) -> EndPosition:
        """Return what is seen in a posture.

        Raises:
            DataError: If the arm does not come to rest.

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
        raise DataError('The arm does not come to rest, or the tracker does not see the target.')

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
    """Visit the postures without the load, then with it."""
    unloaded = [arm.visit(q, values) for q in postures]
    arm.load()
    return unloaded, [arm.visit(q, values) for q in postures]
