# SPDX-License-Identifier: Apache-2.0
"""Cells of a campaign: the product's motions on an arm of the second world, recorded to bags."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import second_world
from benchmarks.offline_bag import WRENCH, Record, write_record
from benchmarks.second_world import ARMS, ArmData, Array, Recorded, World, body, rotation
from demo import default_cell
from robocal_ros.estimators import estimator
from robocal_ros.friction import FrictionParameters
from robocal_ros.friction.estimator import known_arm
from robocal_ros.friction.procedure import FrictionProcedure
from robocal_ros.messages import Bag, JointSamples, Selection, WrenchSamples
from robocal_ros.offline import OfflineEstimation
from robocal_ros.payload import PayloadParameters
from robocal_ros.payload.procedure import PayloadProcedure
from robocal_ros.results import CalibrationResult, Inputs
from robocal_ros.robot import (
    CollisionChecker,
    MotionLimits,
    Robot,
    Trajectory,
    connect,
    quintic_path,
)

STEP = 1e-3
"""Step of the simulation [s]."""

RATES = (50.0, 100.0, 125.0, 250.0, 500.0, 1000.0)
"""Rates of the joint states [Hz]."""

OWN = 'robocal arm'
"""The default arm, whose simulation is another one."""

GROUPS = 8
"""Number of groups of methods that take turns."""

COM = ('com_x', 'com_y', 'com_z')
INERTIA = ('inertia_xx', 'inertia_xy', 'inertia_xz', 'inertia_yy', 'inertia_yz', 'inertia_zz')
WEIGHING_STD = 0.005
"""Standard deviation of weighed masses [kg]."""

_EXCITING = ('wrist', 'torque', 'arm')
# Rest that a controller takes between two motions [s].
_HANDLING = 0.2
# What a user states of drive gains who knows them well, and who does not.
_KNOWN_GAINS, _UNKNOWN_GAINS = 0.005, 0.1


DATA = {**second_world.DATA,
        OWN: ArmData('', 'tool0', 'ft_wrist', (0.0, 0.2, -0.6, 0.0, 0.6, 0.0), 3.0)}
"""Frames, posture and payload of each arm."""


@cache
def urdf_of(name: str) -> str:
    """Return the URDF of an arm."""
    return default_cell.urdf() if name == OWN else second_world.urdf_of(name)


@dataclass
class _Rehearsal:
    """Arm, recorder and report of a procedure that keep its motions and do nothing else."""

    robot: Robot
    checker: CollisionChecker
    at: Array
    pieces: list[Array] = field(default_factory=list)
    scale: float = 1.0

    @property
    def limits(self) -> MotionLimits:
        return MotionLimits(self.robot.joint_names, self.robot.lower, self.robot.upper,
                            self.robot.velocity_limit, self.speed_limits()[1])

    def posture(self) -> Array:
        return self.at.copy()

    def speed_limits(self) -> tuple[Array, Array]:
        values = PayloadParameters()
        return (np.minimum(self.robot.velocity_limit, values.max_velocity),
                np.full(self.robot.n, values.max_acceleration))

    def path_trajectory(self, postures: Array) -> Trajectory:
        return quintic_path(postures, *self.speed_limits())

    async def compute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    async def move(
        self, trajectory: Trajectory, *, limits: MotionLimits | None = None, **_: Any
    ) -> None:
        trajectory = trajectory.slowed(self.scale / (limits or self.limits).scale)
        self.pieces.append(trajectory.sample(np.arange(0.0, trajectory.duration, STEP))[0])
        self.at = trajectory.goal.copy()
        await self.dwell(_HANDLING)

    async def go_to(self, posture: Array, **_: Any) -> None:
        await self.move(self.path_trajectory(
            connect(self.checker.robot, self.checker, self.at, posture)))

    async def dwell(self, duration: float, watch: object = None) -> None:
        self.pieces.append(np.tile(self.at, (round(duration / STEP), 1)))

    async def await_readings(self, watch: object) -> None:
        pass

    def nothing(self, *_: Any, **__: Any) -> None:
        pass

    check_stopped = listen = update = note = nothing
    newest = 0.0

    def samples(self) -> JointSamples:
        """Return the resting arm, whose efforts procedures check."""
        time = np.arange(20) / 100.0
        still = np.zeros((len(time), self.robot.n))
        return JointSamples(self.robot.joint_names, time, still + self.at, still,
                            self.robot.gravity_torque(self.at) + 0.01 * time[:, None])


@cache
def product(name: str) -> tuple[Robot, CollisionChecker]:
    """Return the product's model of an arm, and its collision geometry."""
    robot = Robot(urdf_of(name), tool_frame=DATA[name].tool)
    return robot, CollisionChecker(robot.copy(), package_dirs=[str(second_world.shares())])


@cache
def script(name: str, place: int, what: str, detail: tuple[tuple[str, Any], ...] = ()) -> Array:
    """Return the motion of a procedure of the product, shape (k, n) [rad] every `STEP`.

    Args:
        name: Arm.
        place: Number of the initial posture.
        what: `static_poses`, `wrist`, `torque`, `arm`, `two_plane`, or `friction`.
        detail: Parameters that are not the default ones.

    """
    robot, checker = product(name)
    data = DATA[name]
    home, generator = np.array(data.home), np.random.default_rng(place)
    at = home
    while place and (at is home or checker.touching(at)):
        at = home + generator.uniform(-0.35, 0.35, robot.n)
    arm: Any = _Rehearsal(robot, checker, at, scale=dict(detail).get('speed_scale', 1.0))
    values: Any
    if what == 'friction':
        values = FrictionParameters(**dict(detail))
        runs = FrictionProcedure(arm, arm, arm, values.joint_names or robot.joint_names, {},
                                 lambda: known_arm(robot, values, Inputs()), arm.nothing)
        asyncio.run(runs.rehearse(values))
    else:
        values = PayloadParameters(sensor_frame=data.sensor, tool_frame=data.tool, **dict(detail))
        own = PayloadProcedure(arm, arm, arm, values)
        sensor: Any = SimpleNamespace(
            topic=WRENCH, recorded=0, newest=np.inf, usual_interval=0.01,
            problem=arm.nothing, catch_up=arm.nothing,
            samples=lambda: SimpleNamespace(time=np.zeros(1), wrench=np.zeros((1, 6))))
        asyncio.run(
            own.static_poses(sensor) if what == 'static_poses' else
            own.two_plane(1.0) if what == 'two_plane' else
            own.arm_excitation() if what == 'arm' else
            own.excitation(sensor if what == 'wrist' else None))
    return np.concatenate(arm.pieces)


def with_approach(motion: Array, rest: float, generator: np.random.Generator) -> Array:
    """Return a motion after an approach and a rest [s], followed by half the rest and a return."""
    share = np.arange(0.0, 1.0, 0.5 * STEP)
    rise = (share**3 * (10.0 - 15.0 * share + 6.0 * share**2))[:, None]
    away = generator.uniform(-0.4, 0.4, motion.shape[1])
    ends, still = (np.zeros((round(time / STEP), motion.shape[1])) for time in (0.5, rest))
    return np.concatenate((
        motion[0] + away + ends, motion[0] + (1.0 - rise) * away, motion[0] + still, motion,
        motion[-1] + still[:len(still) // 2], motion[-1] + rise * away, motion[-1] + away + ends))


@dataclass(frozen=True)
class Load:
    """A load at the tool frame.

    Attributes:
        mass: Mass [kg].
        centre: Centre of mass, shape (3,) [m].
        inertia: Inertia about it, shape (3, 3) [kg·m²].

    """

    mass: float
    centre: Array
    inertia: Array

    @classmethod
    def drawn(cls, generator: np.random.Generator, payload: float) -> Load:
        """Draw a brick within the payload [kg] of an arm, up to 0.15 m from its flange."""
        mass = payload * float(generator.uniform(0.2, 0.8))
        centre = generator.normal(size=3) * [0.03, 0.03, 0.02]
        centre[2] += generator.uniform(0.02, 0.12)
        a, b, c = generator.uniform(0.05, 0.18, 3) ** 2
        turn = rotation(generator.normal(size=3))
        return cls(mass, centre, turn @ np.diag([b + c, a + c, a + b]) @ turn.T * mass / 12.0)

    @property
    def matrix(self) -> Array:
        """Pseudo-inertia, shape (4, 4)."""
        return body(self.mass, self.centre, self.inertia)

    @property
    def truth(self) -> dict[str, float]:
        """The ten parameters by the names of results."""
        return dict(zip(('mass', *COM, *INERTIA), [
            self.mass, *self.centre.tolist(), *self.inertia[np.triu_indices(3)].tolist()],
            strict=True))


class Cell:
    """An arm of the second world, its load, and what its user states and records.

    Attributes:
        seed: Seed of the cell.
        name: Name of the arm.
        rate: Rate of the joint states [Hz].
        world: The arm.
        robot: The product's model of it.
        load: The load to be identified.
        weighed: A load of known mass.
        weighing: Errors of two weighings [kg].
        values: Parameters that are not the default ones.
        last: The last recording.
        planned: Its motion without approach, and the rate of the joint states [Hz].
        motions: Motion, load, and rate of the joint states of each recording without effects.

    """

    def __init__(
        self, seed: int, effects: Mapping[str, float], folder: Path, name: str = ''
    ) -> None:
        """Draw a cell.

        Args:
            seed: Its seed.
            effects: Strengths of its effects.
            folder: Folder for bags and results.
            name: Name of the arm; by default those of the campaign take turns.

        """
        generator = np.random.default_rng([seed, 4])
        self.seed, self._folder = seed, folder
        # Methods take turns; so do arms, with each of them.
        self.name = name or list(ARMS)[seed // GROUPS % len(ARMS)]
        self.rate, self._place = float(generator.choice(RATES)), int(generator.integers(3))
        self._repeats = int(generator.choice([1, 2, 3, 3, 5]))
        self.world = World(second_world.read_arm(self.name), seed, effects)
        self.robot = product(self.name)[0]
        data = DATA[self.name]
        self.load, self.weighed = (Load.drawn(generator, data.payload) for _ in range(2))
        self.weighing = (WEIGHING_STD * generator.normal(size=2)).tolist()
        self.last: Recorded | None = None
        self.motions: list[tuple[Array, Load | None, float]] = []
        self.values: dict[str, Any] = {
            'tool_frame': data.tool, 'sensor_frame': data.sensor, 'sensor_topic': WRENCH,
            'results_dir': str(folder / 'results'), 'excitation_repeats': self._repeats,
            'gain_std': _UNKNOWN_GAINS if 'gains' in effects else _KNOWN_GAINS}
        if 'current' in effects:
            self.values |= {'effort_source': 'current',
                            'torque_constants': self.world.constant.tolist()}

    def plan(self, what: str, rate: float = np.inf, **detail: Any) -> tuple[Array, float]:
        """Return a motion and the rate of its joint states [Hz]; arguments as for `record`."""
        if what in _EXCITING:
            detail = {'method': 'excitation', 'excitation_repeats': self._repeats, **detail}
        self.planned = (script(self.name, self._place, what, tuple(sorted(detail.items()))),
                        min(self.rate, rate))
        return self.planned

    def record(
        self, what: str, load: Load | None = None, rate: float = np.inf, pause: float = 60.0,
        **detail: Any,
    ) -> Path:
        """Carry out a procedure, and return the bag.

        Args:
            what: The procedure; see `script`.
            load: What the arm carries.
            rate: Highest rate of the joint states [Hz].
            pause: Rest since the last recording [s].
            detail: Parameters that are not the default ones.

        """
        motion, rate = self.plan(what, rate, **detail)
        if what in _EXCITING and 'approach' in self.world.effects:
            motion = with_approach(motion, self.world.effects['approach'],
                                   np.random.default_rng([self.seed, 5]))
        self.last = self.world.run(motion, STEP, rate,
                                   None if load is None else load.matrix, pause)
        if not self.world.effects:
            self.motions.append((motion, load, rate))
        return write_record(record_of(self.name, self.last), self._folder / 'bag')

    def estimate(self, what: str, bag: Path, **changes: Any) -> CalibrationResult:
        """Estimate from a bag, with some parameters changed; see `estimated`."""
        return estimated(what, bag, urdf_of(self.name), {**self.values, **changes})


def parameters(table: Any, values: Mapping[str, Any]) -> Any:
    """Return the parameters of a table by those values that it has."""
    known = {item.name for item in fields(table)}
    return table(**{key: value for key, value in values.items() if key in known})


def estimated(what: str, bag: Path, urdf: str, values: Mapping[str, Any]) -> CalibrationResult:
    """Estimate from a bag as `robocal estimate` does; store a result that passes, remove the bag.

    Args:
        what: Name of the estimator.
        bag: The bag.
        urdf: URDF of the arm.
        values: Parameters that are not the default ones; those of others are ignored.

    """
    chosen: Any = estimator(what)
    try:
        with Bag(bag) as opened:
            estimation = OfflineEstimation(
                chosen, opened, parameters(chosen.table, values), urdf, Selection())
            result = estimation.run().result
    finally:
        shutil.rmtree(bag)
    if result.verdict.value == 'pass':
        estimation.stored(result)
    return result


def record_of(name: str, found: Recorded) -> Record:
    """Return what driver and sensor of an arm have published, as the product reads it."""
    return Record(urdf_of(name), JointSamples(
        product(name)[0].joint_names, found.time, found.position, found.velocity, found.effort),
        WrenchSamples(DATA[name].sensor, found.wrench_time, found.wrench))
