# SPDX-License-Identifier: Apache-2.0
"""Random cells that violate the estimators' assumptions, on several arms, without ROS.

A cell is an arm with a hidden truth, sensor noise, a sampling rate, and a set of effects, each
with a drawn magnitude. The arm follows motions exactly; physics and sensors are those of the
simulated arm (`robocal_sim.prescribed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pinocchio

from benchmarks.random_cell import random_tool
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.messages.posture_check import PostureCheck
from robocal_ros.robot import CollisionChecker, Robot, Trajectory
from robocal_ros.robot.trajectories import quintic_move
from robocal_sim.friction import LuGreFriction
from robocal_sim.model import Description, read_description
from robocal_sim.prescribed import Motion, measure
from robocal_sim.truth import (
    Cell,
    ForceTorqueTruth,
    FrictionTruth,
    HiddenTruth,
    JointTruth,
    LinkTruth,
    ToolTruth,
)

RATES = (50.0, 100.0, 125.0, 250.0, 500.0, 1000.0)
"""Rates of the joint states [Hz]."""

_DATA = 'example-robot-data'
_BASE_RATE = 250.0
_VELOCITY, _ACCELERATION = 1.0, 2.0
_OUTLIER = 253.0


@dataclass(frozen=True)
class _ArmFile:
    """Where an arm's description is, its frames, and a posture in the middle of its workspace."""

    path: str
    tool: str
    sensor: str
    home: tuple[float, ...]


_ARMS = {
    'robocal arm': _ArmFile('', 'tool0', 'ft_wrist', (0.0, 0.2, -0.6, 0.0, 0.6, 0.0)),
    'Panda': _ArmFile('panda_description/urdf/panda.urdf', 'panda_hand', 'panda_link8',
                      (0.0, 0.2, 0.0, -1.8, 0.0, 1.8, 0.5)),
    'UR10': _ArmFile('ur_description/urdf/ur10_robot.urdf', 'tool0', 'tool0',
                     (0.0, -1.2, 1.2, -0.8, 0.9, 0.0)),
    'xArm 7': _ArmFile('xarm_description/urdf/xarm7.urdf', 'link_eef', 'link_eef',
                       (0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0)),
    'Kinova j2': _ArmFile('kinova_description/robots/kinova.urdf', 'j2s6s200_end_effector',
                          'j2s6s200_end_effector', (0.0, 3.6, 2.2, 0.0, 1.5, 0.0)),
}


@dataclass(frozen=True)
class Arm:
    """An arm: the product's model, the simulation's description, and typical joint torques.

    Attributes:
        name: Name of the arm.
        robot: Model of the product, from the nominal URDF.
        checker: Its collision geometry.
        description: Model of the simulation.
        sensor: Frame of the wrist F/T sensor.
        home: Posture about which motions are planned, shape (n,) [rad].

    """

    name: str
    robot: Robot
    checker: CollisionChecker
    description: Description
    sensor: str
    home: Array

    @cached_property
    def torque(self) -> Array:
        """Largest gravity torques over the workspace, shape (n,) [N·m]."""
        generator = np.random.default_rng(0)
        low, high = self.robot.sampling_limits()
        postures = generator.uniform(low, high, (200, self.robot.n))
        largest = np.abs(self.robot.gravity_torques(postures)).max(axis=0)
        return np.maximum(largest, 0.1 * largest.max())

    @cached_property
    def inertia(self) -> Array:
        """Diagonal of the joint-space inertia matrix at home, shape (n,) [kg·m²]."""
        still = np.zeros(self.robot.n)
        weight = self.robot.inverse_dynamics(self.home, still, still)
        return np.array([self.robot.inverse_dynamics(self.home, still, unit)[i] - weight[i]
                         for i, unit in enumerate(np.eye(self.robot.n))])


def _shares() -> Path | None:
    folders = (parent / 'share' for parent in Path(pinocchio.__file__).parents)
    return next((share for share in folders if (share / _DATA).is_dir()), None)


def arm_names() -> tuple[str, ...]:
    """Return the arms that are available: the default one, others if their data is installed."""
    return tuple(_ARMS) if _shares() is not None else tuple(_ARMS)[:1]


def urdf_of(name: str) -> str:
    """Return the URDF of an arm that is available."""
    path, share = _ARMS[name].path, _shares() or Path()
    if not path:
        return default_cell.urdf()
    return (share / _DATA / 'robots' / path).read_text(encoding='utf-8')


@cache
def arm(name: str) -> Arm:
    """Return an arm; loaded once per process."""
    item, share = _ARMS[name], _shares() or Path()
    urdf = urdf_of(name)
    robot = Robot(urdf, tool_frame=item.tool)
    return Arm(name, robot, CollisionChecker(robot.copy(), package_dirs=[str(share)]),
               read_description(urdf, robot.joint_names), item.sensor, np.array(item.home))


# ----------------------------------------------------------------------------- effects


@dataclass
class Draft:
    """A cell while it is drawn."""

    arm: Arm
    generator: np.random.Generator
    truth: HiddenTruth
    cell: Cell
    knots: float = 0.0
    outlier: bool = False
    turned: bool = False

    def uniform(self, low: float, high: float) -> float:
        """Draw a magnitude."""
        return float(self.generator.uniform(low, high))

    def log_uniform(self, low: float, high: float) -> float:
        """Draw a magnitude over decades."""
        return float(np.exp(self.generator.uniform(np.log(low), np.log(high))))

    def each_joint(self, change: Callable[[JointTruth], JointTruth]) -> None:
        """Change the truth of every joint."""
        joints = {name: change(joint) for name, joint in self.truth.joints.items()}
        self.truth = replace(self.truth, joints=joints)

    def each_friction(self, change: Callable[[FrictionTruth], FrictionTruth]) -> None:
        """Change the friction of every joint."""
        self.each_joint(lambda joint: replace(joint, friction=change(joint.friction)))

    def sensor(self, **changes: float) -> None:
        """Change the truth of the wrist sensor."""
        self.truth = replace(self.truth, force_torque_sensors=tuple(
            replace(item, **changes)  # type: ignore[arg-type]
            for item in self.truth.force_torque_sensors))


def _links(draft: Draft) -> float:
    sigma = draft.log_uniform(0.03, 0.10)
    draft.truth = replace(draft.truth, links=LinkTruth(
        sigma, 0.1 * sigma, 2.0 * sigma, int(draft.generator.integers(2**31))))
    return sigma


def _rotor(draft: Draft) -> float:
    share = draft.log_uniform(0.1, 1.0)
    draft.each_joint(lambda joint: replace(joint, rotor_in_effort=share))
    return share


def _effort_scale(draft: Draft) -> float:
    size = draft.uniform(0.03, 0.15)
    draft.each_joint(lambda joint: replace(joint, effort_scale=1.0 + draft.uniform(-size, size)))
    return size


def _load_friction(draft: Draft) -> float:
    size = draft.log_uniform(0.02, 0.08)
    draft.each_friction(lambda law: replace(law, load_dependence=size))
    return size


def _sublinear_friction(draft: Draft) -> float:
    exponent = draft.uniform(0.5, 0.9)
    draft.each_friction(lambda law: replace(law, viscous_exponent=exponent))
    return exponent


def _friction_drift(draft: Draft) -> float:
    size, time = draft.uniform(0.05, 0.25), draft.log_uniform(30.0, 300.0)
    draft.each_friction(lambda law: replace(law, warm_up=-size, warm_up_time=time))
    return -size


def _friction_pause(draft: Draft) -> float:
    size = draft.uniform(0.05, 0.2)
    draft.each_friction(lambda law: replace(
        law, pause_rise=size, pause_time=5.0, run_in_time=5.0))
    return size


def _friction_hysteresis(draft: Draft) -> float:
    share, angle = draft.uniform(0.1, 0.3), draft.log_uniform(0.01, 0.1)
    draft.each_friction(lambda law: replace(
        law, hysteresis=share * law.coulomb[0], hysteresis_angle=angle))
    return share


def _quantisation(draft: Draft) -> float:
    step = draft.log_uniform(1e-4, 1.5e-3)
    draft.cell = replace(draft.cell, joint_states=replace(
        draft.cell.joint_states, position_quantisation=step))
    return step


def _effort_delay(draft: Draft) -> float:
    delay = draft.log_uniform(2e-3, 50e-3)
    draft.truth = replace(draft.truth, effort_delay=delay)
    return delay


def _wrench_delay(draft: Draft) -> float:
    delay = draft.log_uniform(2e-3, 50e-3)
    draft.sensor(delay=delay)
    return delay


def _tilt(draft: Draft) -> float:
    tilt = float(np.radians(draft.log_uniform(0.1, 10.0)))
    direction = draft.uniform(0.0, 2.0 * np.pi)
    draft.truth = replace(draft.truth, base_tilt=(
        tilt * float(np.cos(direction)), tilt * float(np.sin(direction))))
    return tilt


def _flexibility(draft: Draft) -> float:
    sag = draft.log_uniform(1e-3, 5e-3)
    soft = dict(zip(draft.arm.robot.joint_names, (sag / draft.arm.torque).tolist(), strict=True))
    draft.truth = replace(draft.truth, joints={
        name: replace(joint, compliance=soft[name])
        for name, joint in draft.truth.joints.items()})
    return sag


def _ft_asynchronous(draft: Draft) -> float:
    rate = float(draft.generator.choice([60.0, 100.0, 143.0, 333.0, 800.0]))
    draft.sensor(rate=rate, phase=draft.uniform(0.0, 1.0 / rate))
    return rate


def _ft_filter(draft: Draft) -> float:
    frequency = draft.log_uniform(5.0, 80.0)
    draft.sensor(filter_frequency=frequency, filter_order=float(draft.generator.integers(1, 3)))
    return frequency


def _ft_drift(draft: Draft) -> float:
    size = draft.log_uniform(2e-3, 3e-2)
    draft.cell = replace(draft.cell, force_torque=replace(
        draft.cell.force_torque, force_drift=size, torque_drift=size / 20.0))
    return size


def _ft_calibration(draft: Draft) -> float:
    size = draft.log_uniform(2e-3, 2e-2)
    draft.sensor(calibration_error=size)
    return size


def _ft_cable(draft: Draft) -> float:
    size = draft.log_uniform(0.01, 0.1)
    draft.sensor(cable_stiffness=size)
    return size


def _jumpy(draft: Draft) -> float:
    draft.knots = draft.uniform(0.05, 0.25)
    return draft.knots


def _external_effort(draft: Draft) -> float:
    draft.truth = replace(draft.truth, effort_contains='external')
    return 1.0


def _wrapped(draft: Draft) -> float:
    draft.turned = True
    free = np.isinf(draft.arm.robot.upper)
    names = [name for name, is_free in zip(draft.arm.robot.joint_names, free, strict=True)
             if is_free]
    draft.truth = replace(draft.truth, joints={
        name: replace(joint, wrapped=name in names)
        for name, joint in draft.truth.joints.items()})
    return float(len(names))


def _outlier(draft: Draft) -> float:
    draft.outlier = True
    return _OUTLIER


@dataclass(frozen=True)
class Effect:
    """One deviation from the estimators' assumptions.

    Attributes:
        draw: Draws its magnitude into a draft and returns it.
        unit: Unit of the magnitude.
        concerns: What it acts on: `effort`, `wrench`, or `all`.

    """

    draw: Callable[[Draft], float]
    unit: str
    concerns: str = 'effort'


EFFECTS = {
    'links off the URDF': Effect(_links, '1', 'all'),
    'rotor torque in effort': Effect(_rotor, '1'),
    'effort scales': Effect(_effort_scale, '1'),
    'load-dependent friction': Effect(_load_friction, 'N·m/(N·m)'),
    'sublinear friction': Effect(_sublinear_friction, 'exponent'),
    'friction warming up': Effect(_friction_drift, '1'),
    'friction after a pause': Effect(_friction_pause, '1'),
    'friction hysteresis': Effect(_friction_hysteresis, 'of Coulomb'),
    'coarse encoders': Effect(_quantisation, 'rad', 'all'),
    'effort delay': Effect(_effort_delay, 's'),
    'wrench delay': Effect(_wrench_delay, 's', 'wrench'),
    'base tilt': Effect(_tilt, 'rad', 'all'),
    'flexible joints': Effect(_flexibility, 'rad', 'all'),
    'asynchronous F/T': Effect(_ft_asynchronous, 'Hz', 'wrench'),
    'filtered F/T': Effect(_ft_filter, 'Hz', 'wrench'),
    'drifting F/T': Effect(_ft_drift, 'N/s', 'wrench'),
    'F/T calibration error': Effect(_ft_calibration, '1', 'wrench'),
    'F/T cable': Effect(_ft_cable, 'N·m/rad', 'wrench'),
    'jumpy accelerations': Effect(_jumpy, 's', 'all'),
    'efforts without gravity': Effect(_external_effort, ''),
    'wrapped joints': Effect(_wrapped, 'joints', 'all'),
    'frame of 253 rad': Effect(_outlier, 'rad', 'all'),
}
"""Effects by name."""


# ------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class AdversarialCell:
    """A drawn cell.

    Attributes:
        arm: The arm.
        seed: Seed of the cell.
        truth: Hidden truth.
        tool: Its tool, at the tool frame.
        noise: Sensor noise.
        rate: Rate of the joint states [Hz].
        effects: Magnitudes of the active effects, by name.
        home: Posture about which motions are planned, shape (n,) [rad].
        knots: Distance of trajectory points without accelerations [s]; 0 for smooth motions.
        outlier: Whether one joint state is corrupt.
        poses: Number of static postures.
        sweep_share: Share of the range of planned sweeps.

    """

    arm: Arm
    seed: int
    truth: HiddenTruth
    tool: ToolTruth
    noise: Cell
    rate: float
    effects: dict[str, float]
    home: Array
    knots: float = 0.0
    outlier: bool = False
    poses: int = 14
    sweep_share: float = 1.0
    _last: dict[str, Array] = field(default_factory=dict)

    def record(
        self, motions: Sequence[Trajectory], *, tool: bool = True, rest: float = 0.5
    ) -> tuple[JointSamples, WrenchSamples]:
        """Carry out motions one after the other and return the samples.

        The arm moves straight from the end of one motion to the start of the next, and rests
        before and after each.

        Args:
            motions: The motions.
            tool: Whether the tool is mounted.
            rest: Rest between the motions [s].

        """
        truth = replace(self.truth, tool=self.tool if tool else None)
        period = 1.0 / (self.rate * np.ceil(_BASE_RATE / self.rate))
        pieces, here = [], motions[0].start
        speed = np.minimum(self.arm.robot.velocity_limit, _VELOCITY)
        for motion in motions:
            if np.abs(motion.start - here).max() > 1e-6:
                pieces.append(self._sampled(quintic_move(
                    here, motion.start, speed, np.full(len(here), _ACCELERATION)), period))
            pieces += [_still(motion.start, rest, period), self._sampled(motion, period)]
            here = motion.goal
        pieces.append(_still(here, rest, period))
        position, velocity, acceleration = (np.concatenate(part)
                                            for part in zip(*pieces, strict=True))
        found = measure(
            self.arm.description, truth, self.noise,
            Motion(period, position, velocity, acceleration), seed=self.seed, rate=self.rate)
        self._last['factor'] = found.friction_factor
        position = found.position.copy()
        if self.outlier:
            position[len(position) // 3] = _OUTLIER
        # Nodes and robocal estimate check and unwrap positions before they are recorded.
        robot, time = self.arm.robot, 100.0 + found.time
        rows = np.hstack((position, found.velocity, found.effort))
        refused, _ = PostureCheck(robot).check_block(np.rint(1e9 * time).astype(np.int64), rows)
        kept = np.delete(np.arange(len(time)), list(refused))
        position, velocity, effort = np.hsplit(rows[kept], 3)
        joints = JointSamples(robot.joint_names, time[kept], position, velocity, effort,
                              source='simulation')
        stamps, readings = found.wrenches[self.arm.sensor]
        return joints, WrenchSamples(self.arm.sensor, 100.0 + stamps, readings)

    def friction_torque(self, joint: int, speed: Array, load: float) -> Array:
        """Return the steady friction of a joint at the end of the last recording [N·m].

        Args:
            joint: Column of the joint.
            speed: Signed speeds [rad/s].
            load: Torque that the joint transmits [N·m].

        """
        name = self.arm.robot.joint_names[joint]
        law = self.truth.joints[name].friction
        steady = LuGreFriction([replace(law, warm_up=0.0, pause_rise=0.0)])
        factor = float(self._last['factor'][joint])
        return factor * np.array([steady.steady(np.array([v]), np.array([load]))[0]
                                  for v in speed])

    def _sampled(self, motion: Trajectory, period: float) -> tuple[Array, Array, Array]:
        if self.knots:
            time = np.linspace(0.0, motion.duration, max(
                2, round(motion.duration / self.knots) + 1))
            position, velocity, _ = motion.sample(time)
            motion = Trajectory(time, position, velocity)
        return motion.sample(np.arange(0.0, motion.duration, period))


def _still(posture: Array, duration: float, period: float) -> tuple[Array, Array, Array]:
    position = np.tile(posture, (max(1, round(duration / period)), 1))
    return position, np.zeros_like(position), np.zeros_like(position)


def draw(
    seed: int, reads: str, *, single: bool = False, effects: Sequence[str] | None = None,
    arm_name: str = '',
) -> AdversarialCell:
    """Draw a cell.

    Args:
        seed: Seed of everything.
        reads: What the method reads, `effort` or `wrench`: effects that concern nothing else
            are not drawn.
        single: Whether the cell has one effect; else each effect has a chance of one in six.
        effects: Names of the effects, instead of drawn ones.
        arm_name: Name of the arm; empty for a drawn one.

    """
    generator = np.random.default_rng([seed, 7])
    drawn = str(generator.choice(arm_names()))
    chosen = arm(arm_name or drawn)
    rate = float(generator.choice(RATES))
    tool = replace(random_tool(generator), parent=chosen.robot.tool_frame)
    draft = Draft(chosen, generator, _nominal(chosen, generator), default_cell.reference_cell())
    possible = [name for name, effect in EFFECTS.items()
                if effect.concerns in ('all', reads)
                and (name != 'wrapped joints' or np.isinf(chosen.robot.upper).any())]
    active = ([str(generator.choice(possible))] if single
              else [name for name in possible if generator.random() < 1.0 / 6.0])
    magnitudes = {name: EFFECTS[name].draw(draft)
                  for name in (active if effects is None else effects)}
    home = chosen.home.copy()
    if draft.turned:
        home[np.isinf(chosen.robot.upper)] += 3.0
    return AdversarialCell(chosen, seed, draft.truth, tool, draft.cell, rate, magnitudes, home,
                           draft.knots, draft.outlier)


def _nominal(chosen: Arm, generator: np.random.Generator) -> HiddenTruth:
    """Draw joints within the estimators' assumptions."""
    joints = {
        name: JointTruth(_nominal_friction(float(torque), generator),
                         compliance=float(generator.uniform(1e-4, 5e-4) / torque),
                         rotor_inertia=float(generator.uniform(0.2, 0.8) * inertia))
        for name, torque, inertia in zip(
            chosen.robot.joint_names, chosen.torque, chosen.inertia, strict=True)}
    return HiddenTruth(joints=joints, force_torque_sensors=(ForceTorqueTruth(chosen.sensor),))


def _nominal_friction(torque: float, generator: np.random.Generator) -> FrictionTruth:
    level = torque * generator.uniform(0.04, 0.10)
    tilt = generator.uniform(-0.05, 0.05)
    sides = np.array([1.0 + tilt, 1.0 - tilt])

    def pair(value: float) -> tuple[float, float]:
        plus, minus = (value * sides).tolist()
        return plus, minus

    breakaway = level * generator.uniform(1.5, 2.0)
    stiffness = float(breakaway / 4e-4)
    return FrictionTruth(
        pair(level), pair(breakaway), pair(generator.uniform(0.04, 0.06)),
        pair(level * generator.uniform(0.5, 1.5)), stiffness, 4e-3 * stiffness)
