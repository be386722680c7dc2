# SPDX-License-Identifier: Apache-2.0
"""Tracker measurements of an arm with compliant joints, independent of the code under test.

The arm is Pinocchio's own model of the untouched URDF; where it rests is found by iterating
q = encoders − c G(q) with recursive Newton-Euler, tracker readings by plain rotation and noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from robocal_ros.compliance.measurement import EndPosition, Registration, lagged
from robocal_ros.compliance.model import Load, Mounted, given_load
from robocal_ros.messages import BagWriter, JointSamples, TrackerSamples
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot import Robot
from support import bag_examples
from support.arms import MOUNTS, arm
from support.forward import Reference, Tool

COMPLIANCE = np.array([3e-6, 4.5e-6, 9e-6, 3.5e-5, 5.5e-5, 9e-5])
TARGET = np.array([0.045, 0.02, 0.03])
TEN_KILOGRAMS = Tool(10.0, np.array([0.06, 0.03, 0.12]), np.zeros((3, 3)))
NO_TOOL = Tool(0.0, np.zeros(3), np.zeros((3, 3)))
TRACKER = (Rotation.from_euler('xyz', [0.02, -0.03, 2.75]).as_matrix(),
           np.array([2.6, -0.9, 0.35]))
SIGMA, READINGS = 15e-6, 20


def postures(count: int, seed: int = 0, name: str = 'robocal') -> np.ndarray:
    """Draw postures within the joint limits; they may be in collision."""
    low, high = arm(name).robot().sampling_limits()
    return np.random.default_rng(seed).uniform(0.6 * low, 0.6 * high, (count, len(low)))


@dataclass
class Cell:
    """Simulates the end positions of an arm with a load, measured by a tracker."""

    name: str = 'robocal'
    mount: str = 'upright'
    compliance: np.ndarray = field(default_factory=lambda: COMPLIANCE)
    load: Tool = TEN_KILOGRAMS
    staying: Tool = NO_TOOL
    target: np.ndarray = field(default_factory=lambda: TARGET)
    sigma: float = SIGMA
    turn_sigma: float = 0.0
    encoder_step: float = 0.0
    tracker: tuple[np.ndarray, np.ndarray] = TRACKER
    # Tension of a rope on the load [N], its end in the tool frame, and the pulley in the root's.
    rope: tuple[float, np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        described = arm(self.name)
        mass = self.staying.mass + self.load.mass
        both = (self.staying.mass * self.staying.com + self.load.mass * self.load.com) / mass
        bare, loaded = (Reference(described.urdf, described.tool, MOUNTS[self.mount], payload)
                        for payload in (self.staying, Tool(mass, both, np.zeros((3, 3)))))
        self._arms = {False: bare, True: loaded}
        self.tool = described.tool

    def robot(self) -> Robot:
        return arm(self.name).robot(self.mount)

    def known_load(self) -> Load:
        return given_load(self.load.mass, self.load.com, self.tool)

    def mounted(self) -> Mounted:
        return Mounted(self.known_load(), given_load(
            self.staying.mass, self.staying.com, self.tool) if self.staying.mass else None)

    def registration(self) -> Registration:
        return Registration(*self.tracker, np.zeros(3), 'least_squares')

    def angles(self, encoders: np.ndarray, loaded: bool) -> np.ndarray:
        """Return the link-side joint positions at rest."""
        q, still = encoders, np.zeros((1, len(encoders)))
        for _ in range(8):
            torque = self._arms[loaded].torque(q[None], still, still)[0]
            q = encoders - self.compliance * (torque + loaded * self._against_rope(q))
        return q

    def _against_rope(self, q: np.ndarray) -> np.ndarray:
        """Return the torques that hold the arm against the rope, from how it shortens."""
        if self.rope is None:
            return np.zeros_like(q)
        tension, end, pulley = self.rope

        def length(angles: np.ndarray) -> float:
            placement = self._arms[True].placement(angles, self.tool)
            return float(np.linalg.norm(pulley - placement.act(end)))

        step = 1e-5 * np.eye(len(q))
        return tension * np.array([length(q + h) - length(q - h) for h in step]) / 2e-5

    def target_at(self, encoders: np.ndarray, loaded: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return rotation and position of the target in the root frame."""
        placement = self._arms[loaded].placement(self.angles(encoders, loaded), self.tool)
        return placement.rotation, placement.act(self.target)

    def motion(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return how far the target of a rigid arm moves, in the tracker's axes [m]."""
        start, end = (self._arms[False].placement(q, self.tool).act(self.target)
                      for q in (one, other))
        return (end - start) @ self.tracker[0]

    def see(
        self, encoders: np.ndarray, loaded: bool, generator: np.random.Generator,
        time: float = 0.0, shift: Sequence[float] = (0.0, 0.0, 0.0), poses: bool = False,
        count: int = READINGS,
        true: np.ndarray | None = None,
    ) -> EndPosition:
        """Return the mean of noisy readings in one posture.

        Motors are at ``encoders``, or at ``true`` if that is what the encoders miss.
        """
        true = encoders if true is None else true
        if self.encoder_step:
            true = encoders + generator.uniform(-0.5, 0.5, len(encoders)) * self.encoder_step
        rotation, point = self.target_at(true, loaded)
        turn, origin = self.tracker
        noise = self.sigma * generator.standard_normal((count, 3))
        points = (point - origin) @ turn + noise + np.asarray(shift)
        centred = points - points.mean(axis=0)
        mean = None
        if poses:
            spin = self.turn_sigma * generator.standard_normal((count, 3))
            mean = Rotation.from_rotvec(spin.mean(axis=0)).as_matrix() @ turn.T @ rotation
            centred = np.hstack((centred, spin - spin.mean(axis=0)))
        return EndPosition(encoders, points.mean(axis=0), mean, centred.T @ centred,
                           lagged(centred[:, :3]), count, 0, time)

    def sets(
        self, where: np.ndarray, seed: int = 0, **changes
    ) -> tuple[list[EndPosition], list[EndPosition]]:
        """Return the end positions of all postures without the load, then with it."""
        generator = np.random.default_rng([seed, 7])
        return tuple(
            [self.see(q, loaded, generator, 1000.0 * loaded + 5.0 * i, **changes)
             for i, q in enumerate(where)]
            for loaded in (False, True))


def assert_true(result: CalibrationResult, truth: np.ndarray, level: float = 0.9999) -> None:
    """Assert that intervals of a level contain the compliances of the joints, NaN for any."""
    for name, expected in zip(result.robot.joint_names, truth, strict=True):
        if np.isfinite(expected):
            parameter = result.parameter(f'{name}.compliance')
            assert parameter.state is State.IDENTIFIED
            low, high = parameter.interval(level)
            assert low < expected < high, parameter


SEEN = np.array([np.nan, *COMPLIANCE[1:]])
"""Compliances of an upright arm, whose first joint bears no load."""


def play(
    visits: Sequence[tuple[np.ndarray, bool]], start: float = 1.0
) -> tuple[JointSamples, TrackerSamples, np.ndarray]:
    """Move in a second to each posture, with the load or not, and rest there for 3 s.

    Returns joint states at 50 Hz, readings of the tracker at 10 Hz, and when rests begin [s].
    """
    cell, step = Cell(), np.arange(200)[:, None]
    turn, origin = cell.tracker
    goals = np.array([posture for posture, _ in visits])
    begins = np.vstack((goals[:1] + 0.2, goals[:-1]))
    position = np.vstack([here + (there - here) * np.minimum(1.0, step / 50.0)
                          for here, there in zip(begins, goals, strict=True)])
    points = np.repeat([(cell.target_at(*visit)[1] - origin) @ turn for visit in visits], 40,
                       axis=0)
    time, still = start + 0.02 * np.arange(len(position)), np.zeros_like(position)
    noise = SIGMA * np.random.default_rng(3).standard_normal(points.shape)
    return (JointSamples(cell.robot().joint_names, time, position, still, still, source='bag'),
            TrackerSamples('tracker', time[::5], points + noise), time[50::200])


def write_visits(
    bag: BagWriter, visits: Sequence[tuple[np.ndarray, bool]], start: float = 1.0
) -> list[float]:
    """Record what ``play`` returns; return when the rests begin [s]."""
    joints, readings, begins = play(visits, start)
    still = np.zeros(6)
    bag.add('/joint_states', bag_examples.JOINT_STATE)
    bag.add('/tracker/point', 'geometry_msgs/msg/PointStamped')
    for row, time in enumerate(joints.time.tolist()):
        stamp = round(1e9 * time)
        bag.write('/joint_states', stamp, bag_examples.joint_state(
            time, joints.joint_names, joints.position[row], still, still))
        if row % 5 == 0:
            bag.write('/tracker/point', stamp, bag_examples.point(
                time, 'tracker', readings.point[row // 5]))
    return begins.tolist()
