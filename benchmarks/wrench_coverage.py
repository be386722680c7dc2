# SPDX-License-Identifier: Apache-2.0
"""Coverage of the covariances of external wrenches, on arms that differ from their description."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pinocchio as pin
import scipy

from benchmarks import seven_joints
from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.second_cell import OWN, product
from benchmarks.wrench_samples import Stream, exerted, follow
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.robot import RigidBodyInertia, Robot, link_covariance, physically_consistent
from robocal_ros.wrench import (
    Fusion,
    Observation,
    SensedArm,
    SensorMount,
    TareReference,
    WrenchObserver,
    WrenchParameters,
)

LAYOUTS = ('both-ended link', 'wrist only', 'base and wrist', 'torque')
"""Sensors at two random links; at the last one; at the first and the last one; none. The wrench
on every part of the arm distal to a sensor counts."""

ARMS = ('seven joints', OWN, 'UR10', 'Panda', 'xArm 7')

ZERO, MODEL, GAIN = 0.5, 0.05, 0.02
"""Standard deviations of the zeros of joint torques [N·m], of masses and of gains as a share."""

# Parts of the arm, from its end.
_LINKS = 'wrench distal to the last sensor', 'wrench between the sensors'
# Parameters of the observer, and what is drawn: readings and efforts.
_NOISE, _EFFORT = (0.5, 0.02), 1.0
# Joint states per observation, and their interval [ns].
_ROWS, _STEP = 25, 10**6
# Least mass distal to a sensor [kg].
_CARRIED = 0.2
# Draws of each kind of layout, random layouts of it on each arm and seed, and share of the draws
# in a quick run.
_DRAWS, _LAYOUTS, _QUICK = 12000, 5, 0.01


@dataclass(frozen=True)
class Draw:
    """Outcome of a random true arm, tare, posture and motion.

    Attributes:
        layout: One of ``LAYOUTS``.
        links: By sub-chain, from the base: squared Mahalanobis distance of the wrench from the
            truth, six degrees of freedom.
        tool: Probability of a larger distance than that of the tool wrench; None if it is unknown.
        touched: Whether there is a contact of a link or a joint; None if something touches the
            arm.

    """

    layout: str
    links: tuple[float, ...]
    tool: float | None
    touched: bool | None


class Cell:
    """An arm with sensors and a load, as described, tared, and as it really is."""

    def __init__(self, name: str, layout: str, seed: int) -> None:
        self.draw = np.random.default_rng([seed, ARMS.index(name), LAYOUTS.index(layout)])
        known = Robot(seven_joints.urdf()) if name == ARMS[0] else product(name)[0]
        # Links whose name begins with ft_ would carry sensors.
        self.robot = Robot(known.urdf.replace('"ft_', '"part_'), tool_frame=known.tool_frame)
        frames = self._frames(layout)
        self.observer = WrenchObserver(self.robot, WrenchParameters(
            sensor_frames=frames or [''], arm_model_std=MODEL, sensor_force_std=[_NOISE[0]],
            sensor_torque_std=[_NOISE[1]], torque_std=[_EFFORT], gain_std=GAIN,
            torque_zero_std=[ZERO], unidentified_friction=[0.0]))
        self.truth = SensedArm(self.robot, [SensorMount(frame) for frame in frames])
        mass = self.draw.uniform(0.2, 3.0)
        load = RigidBodyInertia(mass, self.draw.normal(0.0, 0.06, 3),
                                mass * np.diag(self.draw.uniform(0.02, 0.08, 3)**2))
        self.load = np.array(load.to_pinocchio().toDynamicParameters())
        # 1 % of mass and inertia, 2 mm of the centre.
        self.load_std = np.diag([0.01 * mass, *[2e-3 * mass] * 3, *(0.01 * self.load[4:] + 1e-5)])
        self.observer.carry(load, self.robot.tool_frame, self.load_std)
        self.fusion = Fusion(self.observer)

    def _frames(self, layout: str) -> list[str]:
        """Return the links with sensors, from those that the arm's joints carry."""
        child = {joint.get('name'): found.get('link', '')
                 for joint in ElementTree.fromstring(self.robot.urdf).findall('joint')
                 for found in joint.findall('child')}
        links = [child[name] for name in self.robot.joint_names
                 if self.robot.distal_inertia(child[name]).mass > _CARRIED]
        chosen = sorted(self.draw.choice(len(links), 2, replace=False).tolist())
        return [links[i] for i in {'both-ended link': chosen, 'wrist only': [-1],
                                   'base and wrist': [0, -1], 'torque': []}[layout]]

    def tare(self) -> None:
        """Draw how links and load really are, and tare in a random posture."""
        draw, truth = self.draw, self.truth
        truth.carry(None)
        bodies, total = truth.described, 1.0 + MODEL * draw.normal()
        for joint, (body, own) in enumerate(
                zip(bodies, physically_consistent(bodies), strict=True), 1):
            if body[0] > 0.0:
                truth.model.inertias[joint] = pin.Inertia.FromDynamicParameters(
                    total * body + draw.multivariate_normal(
                        np.zeros(10), link_covariance(own, MODEL), method='cholesky'))
        carrier, placement = truth.carrier()
        truth.model.appendBodyToJoint(carrier + 1, pin.Inertia.FromDynamicParameters(
            self.load + self.load_std @ draw.normal(size=10)), placement)
        posture = self.posture()
        self.bias = draw.normal(0.0, 3.0, (len(truth.mounts), 6))
        self.zero = draw.normal(0.0, ZERO, self.robot.n)
        readings = truth.expected(posture) + self.bias
        self.observer.use_bias(readings - self.observer.arm.expected(posture),
                               TareReference(posture, readings))

    def posture(self) -> Array:
        """Return a random posture."""
        return np.asarray(self.draw.uniform(*self.robot.sampling_limits()))

    def observe(self, wrench: Array) -> Observation:
        """Return what is observed in a random motion, with a wrench on the tool."""
        draw, robot = self.draw, self.robot
        time = 1e-9 * _STEP * np.arange(_ROWS)[:, None]
        v, a = (size * draw.normal(size=(1, robot.n)) for size in (0.5, 1.0))
        q = self.posture() + time * v + 0.5 * time**2 * a
        held, torque = (item.copy() for item in self.truth.held_many(
            q, v + time * a, np.repeat(a, _ROWS, axis=0)))
        for row, posture in enumerate(q):
            links, push = self.exerted(posture, wrench)
            held[row] -= links
            torque[row] -= push
        stamps = 10**9 + _STEP * np.arange(_ROWS)
        # Noise of sensors and efforts that the window does not reduce; a live sensor scatters.
        offsets = self.bias + np.repeat(_NOISE, 3) * draw.normal(size=self.bias.shape)
        sensors = [Stream(stamps, offset - held[:, index] + 1e-6 * draw.normal(size=(_ROWS, 6)))
                   for index, offset in enumerate(offsets)]
        torque *= 1.0 + GAIN * draw.normal(size=robot.n)
        torque += self.zero + _EFFORT * draw.normal(size=robot.n)
        self.observer.clear()
        return follow(self.observer, Stream(stamps, np.hstack((q, v + time * a, torque))),
                      sensors)[-1]

    def exerted(self, posture: Array, wrench: Array) -> tuple[Array, Array]:
        """Return what a wrench on the tool exerts on links with sensors, (s, 6), and joints."""
        return exerted(self.robot, posture, self.robot.tool_frame, wrench,
                       [chain.link for chain in self.observer.arm.chains])


def draws(name: str, layout: str, seed: int, count: int) -> list[Draw]:
    """Return the outcome of some draws.

    Args:
        name: One of ``ARMS``.
        layout: One of ``LAYOUTS``.
        seed: Seed of all that is random.
        count: Number of true arms, each with a tare and a motion.

    """
    cell, found = Cell(name, layout, seed), []
    for number in range(count):
        cell.tare()
        size = cell.draw.uniform(5.0, 60.0) * (number % 2)
        wrench = size * cell.draw.normal(size=6) * np.repeat([1.0, 0.1], 3)
        seen = cell.observe(wrench)
        if seen.motion is None or any(seen.reasons):
            raise RobocalError(f'Nothing is observed: {seen.problem or seen.reasons}')
        errors = seen.wrench.copy()
        errors[-1:] -= cell.exerted(seen.motion[0], wrench)[0][-1:]
        tool, chance = cell.fusion.tool(seen), None
        if tool is not None and (known := np.isfinite(tool.wrench)).any():
            chance = float(scipy.special.chdtrc(int(known.sum()), _square(
                (tool.wrench - wrench)[known], tool.covariance[np.ix_(known, known)])))
        touched = bool(seen.contacts) or bool(seen.colliding is not None and seen.colliding.any())
        found.append(Draw(layout, tuple(
            _square(error, cell.fusion.link_covariance(seen, index))
            for index, error in enumerate(errors)), chance, None if size else touched))
    return found


def _square(error: Array, covariance: Array) -> float:
    return float(error @ np.linalg.solve(covariance, error))


def case(seed: int, *, layouts: int, count: int) -> list[Draw]:
    """Return draws of all layouts of all arms.

    Args:
        seed: Seed of the case.
        layouts: Number of random layouts of each kind on each arm.
        count: Number of draws of each of them.

    """
    return [item for layout in LAYOUTS for name in ARMS for number in range(layouts)
            for item in draws(name, layout, layouts * seed + number, count)]


def figures(found: Sequence[Draw]) -> list[Figure]:
    """Return the coverage of 95 and 99.9 % ellipsoids, and contacts by model errors alone."""
    rows = []
    for layout in LAYOUTS:
        own = [item for item in found if item.layout == layout]
        free = [item.touched for item in own if item.touched is not None]
        chances = {'tool wrench': [item.tool for item in own if item.tool is not None]}
        for name, *squares in zip(_LINKS, *(reversed(item.links) for item in own), strict=False):
            chances[name] = scipy.special.chdtrc(6, squares).tolist()
        series = f'links off by the prior, {len(ARMS)} arms, tared elsewhere: {layout}'
        for what, every in chances.items():
            for inside, risk, least in ((True, 0.05, 93.0), (False, 0.05, 3.0),
                                        (True, 0.001, 99.8)) if every else ():
                rows.append(Figure.share(
                    series, f'{what} {"inside" if inside else "outside"} {1.0 - risk:.1%}',
                    int(((np.array(every) > risk) == inside).sum()), len(every), least))
        rows.append(Figure.share(series, 'contacts without a touch', sum(free), len(free), 0.1,
                                 at_least=False))
    return rows


def _run(request: Request) -> Outcome:
    share = (_QUICK if request.quick else 1.0) / len(request.seeds)
    cases = in_parallel(
        partial(case, layouts=_LAYOUTS, count=math.ceil(share * _DRAWS / (_LAYOUTS * len(ARMS)))),
        request.seeds, request.jobs, 'wrench, coverage')
    return Outcome(figures([item for found in cases for item in found]))


BENCHMARK = Benchmark('Coverage of external wrenches', (
    'Wrenches of arms whose links differ from their description by the prior of their masses, '
    'and whose load is known to 1 % and 2 mm, in random motions, tared in another random posture. '
    'Every second draw has a wrench on the tool. Joint torques have zeros of 0.5 N·m (1 σ), which '
    'count in the covariances.'), _run, seeds=4)
