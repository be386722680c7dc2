# SPDX-License-Identifier: Apache-2.0
"""Benchmark of friction compensation: tracking at reversals with and without, on sticky joints.

One joint of the simulated arm is identified by the product from its own runs and reversals, then
moves to and fro through the simulated controller, whose drives add the trajectory's effort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.reference import drawn_joint, recorded
from demo import default_cell
from demo.tracking import ABOUT, to_and_fro
from robocal_ros.arrays import Array
from robocal_ros.errors import ConvergenceError
from robocal_ros.friction import FrictionParameters
from robocal_ros.friction.estimator import estimate
from robocal_ros.friction.model import feed_forward
from robocal_ros.messages import Recording
from robocal_ros.robot import ArmFriction, Robot, Trajectory, friction_by_joint
from robocal_sim.controller import ControllerSettings, Status
from robocal_sim.model import read_description
from robocal_sim.simulator import ArmSimulator
from robocal_sim.trajectory import Trajectory as Message, TrajectoryPoint
from robocal_sim.truth import HiddenTruth, JointTruth

RATIO_BAR = 0.2
"""Limit of the RMS tracking error at reversals, as a share of that without compensation."""
CELLS = 36
"""Number of cells; every sixth moves the same joint."""

_RISE = 1.6
_REST = 3.0
# Time after the end of a motion from which the arm counts as standing [s].
_SETTLED = 1.0
_MODELS = {'without compensation': 0.0, 'compensated': 1.0, 'friction 30 % too large': 1.3}
_WITHOUT = next(iter(_MODELS))
# Posture, and ranges of the size and the largest speed of the motion [rad], [rad/s].
_POSTURE = (0.2, 0.4, -0.6, 0.3, 0.5, 0.1)
_SIZES, _SPEEDS = (0.05, 0.2), (0.05, 0.5)
# Largest movement at standstill [mrad]: the drives' dead band.
_STILL = 0.02


def sticky(joint: JointTruth, generator: np.random.Generator) -> JointTruth:
    """Return a joint with drawn friction whose breakaway is 60 % above Coulomb friction."""
    drawn = drawn_joint(joint, generator)
    forward, backward = drawn.friction.coulomb
    return replace(drawn, friction=replace(
        drawn.friction, breakaway=(_RISE * forward, _RISE * backward)))


@dataclass(frozen=True)
class Tracking:
    """How an arm followed a motion.

    Attributes:
        error: RMS tracking error about the reversals [rad].
        chatter: Peak to peak of the effort command while the arm stands [N·m].
        wander: Peak to peak of the joint angle while it stands: that of a limit cycle [rad].

    """

    error: float
    chatter: float
    wander: float


def follow(
    robot: Robot, truth: HiddenTruth, motion: Trajectory, reversals: Array, effort: Array,
    joint: int,
) -> Tracking:
    """Follow a motion with an effort at each knot, shape (k, n) [N·m]."""
    simulator = ArmSimulator(
        read_description(default_cell.urdf()), truth,
        settings=ControllerSettings(command_interfaces=('position', 'effort')),
        start=motion.position[0])
    acceleration = motion.sample(motion.time)[2]
    points = tuple(TrajectoryPoint(*row) for row in zip(
        (motion.time + 0.5).tolist(), motion.position.tolist(), motion.velocity.tolist(),
        acceleration.tolist(), effort.tolist(), strict=True))
    controller, start = simulator.controller, simulator.now
    goal = controller.accept_goal(Message(robot.joint_names, points), start)
    rows = []
    for _ in range(round((0.5 + motion.duration + _REST) * 1000.0)):
        at = simulator.now - start - 0.5
        simulator.step()
        rows.append((at, controller.desired.position[joint], controller.measured.position[joint],
                     controller.effort[joint]))
    if goal.outcome is None or goal.outcome.status is not Status.SUCCEEDED:
        raise ConvergenceError(
            f'The motion of {robot.joint_names[joint]} ended with {goal.outcome}.')
    time, desired, angle, command = np.array(rows).T
    # A command takes effect by the next cycle.
    error = desired - np.append(angle[1:], angle[-1])
    near = (np.abs(time[:, None] - reversals) < ABOUT).any(axis=1)
    standing = time > motion.duration + _SETTLED
    return Tracking(float(np.sqrt(np.mean(error[near]**2))),
                    float(np.ptp(command[standing])), float(np.ptp(angle[standing])))


@dataclass(frozen=True)
class Case:
    """One joint of one arm.

    Attributes:
        joint: Its name.
        speed: Largest speed of the motion [rad/s].
        tracking: How it followed the motion, by model of friction.

    """

    joint: str
    speed: float
    tracking: dict[str, Tracking]

    def ratio(self, model: str) -> float:
        """Return the tracking error at reversals over that without compensation."""
        return self.tracking[model].error / self.tracking[_WITHOUT].error


def run_case(seed: int) -> Case:
    """Identify a joint and let it move to and fro.

    Raises:
        RobocalError: If the joint is not identified, or the motion does not succeed.

    """
    generator, base = np.random.default_rng([seed, 5]), default_cell.hidden_truth()
    truth = replace(base, tool=None, load=None, joints={
        name: sticky(joint, generator) for name, joint in base.joints.items()})
    bare = replace(truth, force_torque_sensors=(), imus=(), tracker=None)
    robot = Robot(default_cell.urdf(), tool_frame='tool0')
    joint = seed % robot.n
    name = robot.joint_names[joint]
    found = recorded('friction', truth=truth, seed=seed, measure_joints=(name,),
                     model='lugre_dynamic', speed_count=8, max_cruise=5.0)
    laws = friction_by_joint(estimate(robot, Recording(found.joints), FrictionParameters(
        measure_joints=[name], model='lugre_dynamic')))
    posture = np.array(_POSTURE)
    speed = float(np.exp(generator.uniform(*np.log(_SPEEDS))))
    motion, reversals = to_and_fro(posture, joint, generator.uniform(*_SIZES), speed)
    effort = feed_forward(robot, ArmFriction(laws, robot.joint_names), motion, rigid=False)
    return Case(name, speed, {
        model: follow(robot, bare, motion, reversals, scale * effort, joint)
        for model, scale in _MODELS.items()})


def _run(request: Request) -> Outcome:
    cases = in_parallel(run_case, request.seeds, request.jobs, 'compensation')
    figures = []
    for model in _MODELS:
        tracking = [case.tracking[model] for case in cases]
        figures.append(Figure.over(
            model, 'RMS tracking error at reversals', 'mrad', [1e3 * t.error for t in tracking]))
        if model != _WITHOUT:
            figures.append(Figure.over(
                model, 'the same over that without compensation', '1',
                [case.ratio(model) for case in cases],
                RATIO_BAR if model == 'compensated' else 1.0))
        figures += [
            Figure.over(model, 'effort command at standstill, peak to peak', 'N·m',
                        [t.chatter for t in tracking], 0.0),
            Figure.over(model, 'joint angle at standstill, peak to peak', 'mrad',
                        [1e3 * t.wander for t in tracking], _STILL)]
    return Outcome(figures, cases)


BENCHMARK = Benchmark(
    'Friction compensation',
    'One joint of the simulated arm, whose breakaway torque is 60 % above Coulomb friction, is '
    'identified from its runs and reversals (`model: lugre_dynamic`). It then moves as a sine of '
    f'{_SIZES[0]} to {_SIZES[1]} rad and {_SPEEDS[0]} to {_SPEEDS[1]} rad/s, its drive with and '
    'without the effort of the trajectory (friction alone). The tracking error is that of the '
    f'drive to its command, within {ABOUT} s of each reversal; standstill begins {_SETTLED} s '
    'after the motion.',
    _run, CELLS)
