# SPDX-License-Identifier: Apache-2.0
"""Measurements of an arm in an exciting motion, independent of the code under test.

Motions are sums of sines with their derivatives written out; torques come from recursive
Newton-Euler of the original URDF with the tool added to its carrier, wrenches from that of the
URDF with a joint at the sensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pinocchio as pin

from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.robot import Robot
from support.arms import arm
from support.forward import Reference, Tool, sensed_wrench

RATE = 250.0
WRENCH_NOISE = np.array([0.3] * 3 + [0.01] * 3)
EFFORT_NOISE = 0.1
BIAS = np.array([7.0, -4.0, 9.0, 0.4, -0.3, 0.2])
TOOL = Tool(2.0, np.array([0.018, -0.011, 0.102]), np.array([
    [6.9e-3, 3.0e-4, -4.5e-4], [3.0e-4, 8.3e-3, 2.5e-4], [-4.5e-4, 2.5e-4, 4.4e-3]]))
MIDDLE = {'robocal': [0.0, 0.2, -0.6, 0.0, 0.6, 0.0],
          'panda': [0.0, 0.2, 0.0, -1.8, 0.0, 1.8, 0.5],
          'ur5': [0.0, -1.2, 1.2, -0.8, 0.9, 0.0]}
SENSORS = {'robocal': ('ft_wrist', 'ft_wrist_joint'), 'panda': ('panda_link8', 'panda_joint8'),
           'ur5': ('ee_link', 'ee_fixed_joint')}
"""Frame of the wrist sensor, and the joint that carries it."""
FRICTION = (0.2, 1.0, 1.5, 0.1)
"""Offset, Coulomb and viscous friction, and the difference of the latter between directions."""
NAMES = ('mass', 'com_x', 'com_y', 'com_z', 'inertia_xx', 'inertia_xy', 'inertia_xz',
         'inertia_yy', 'inertia_yz', 'inertia_zz')


@dataclass(frozen=True)
class Motion:
    """Sums of sines: amplitudes by joint and harmonic, of sine and cosine."""

    middle: np.ndarray
    sine: np.ndarray
    cosine: np.ndarray
    base: float

    def at(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return position, velocity and acceleration, shape (k, n) each."""
        order = self.base * np.arange(1, self.sine.shape[1] + 1)
        s, c = np.sin(np.outer(time, order)), np.cos(np.outer(time, order))
        return (self.middle + s @ self.sine.T + c @ self.cosine.T,
                (c * order) @ self.sine.T - (s * order) @ self.cosine.T,
                -(s * order**2) @ self.sine.T - (c * order**2) @ self.cosine.T)


def exciting(name: str = 'robocal', seed: int = 0, harmonics: int = 5, size: float = 0.5,
             base: float = 2.0 * np.pi / 8.0) -> Motion:
    """Draw a motion whose fastest joint accelerates with several rad/s²."""
    generator = np.random.default_rng(seed)
    middle = np.array(MIDDLE[name])
    shape = (len(middle), harmonics)
    share = size / np.sqrt(harmonics)
    return Motion(middle, share * generator.normal(size=shape),
                  share * generator.normal(size=shape), base)


def tensor_of(tool: Tool) -> np.ndarray:
    """Return the ten parameters of a tool in the order of ``NAMES``."""
    return np.array([tool.mass, *tool.com, *np.asarray(tool.inertia)[np.triu_indices(3)]])


def random_tool(generator: np.random.Generator, mass: float | None = None) -> Tool:
    """Draw a brick of 2 to 3 kg in a random orientation, up to 0.15 m from the flange."""
    mass = generator.uniform(2.0, 3.0) if mass is None else mass
    centre = generator.normal(size=3)
    centre *= generator.uniform(0.03, 0.15) / np.linalg.norm(centre)
    a, b, c = generator.uniform(0.1, 0.25, 3) ** 2
    turn = pin.exp3(generator.normal(size=3))
    inertia = turn @ np.diag([b + c, a + c, a + b]) @ turn.T * mass / 12.0
    return Tool(mass, centre, inertia)


def wrench_of(
    name: str, tool: Tool | None, q: np.ndarray, v: np.ndarray, a: np.ndarray,
    gravity: Sequence[float] = (0.0, 0.0, -9.81),
) -> np.ndarray:
    """Return the readings of the wrist sensor without noise and bias, shape (k, 6)."""
    case = arm(name)
    return sensed_wrench(case.urdf, *SENSORS[name], (q, v, a), gravity, tool and (case.tool, tool))


def friction_of(velocity: np.ndarray) -> np.ndarray:
    """Return the friction torque of every joint, by the model that the estimator uses."""
    offset, coulomb, viscous, asymmetry = FRICTION
    return (offset + coulomb * np.sign(velocity) + viscous * velocity
            + asymmetry * np.abs(velocity))


@dataclass(frozen=True)
class Record:
    """A motion with its torques and wrenches, before noise.

    ``compliance`` [rad/(N·m)] and ``offset`` [rad] are differences between encoder and link
    angles; ``delay`` [s] is the delay of the sensors.
    """

    name: str
    tool: Tool | None
    motion: Motion
    duration: float = 16.0
    compliance: np.ndarray = field(default_factory=lambda: np.zeros(1))
    offset: np.ndarray = field(default_factory=lambda: np.zeros(1))
    delay: float = 0.0
    friction: bool = True

    @cached_property
    def time(self) -> np.ndarray:
        return np.arange(int(self.duration * RATE)) / RATE

    @cached_property
    def robot(self) -> Robot:
        return arm(self.name).robot()

    @cached_property
    def carried(self) -> np.ndarray:
        """Torque that the joints transmit, shape (k, n)."""
        return self._torque(self.time)

    def _torque(self, time: np.ndarray) -> np.ndarray:
        case = arm(self.name)
        reference = Reference(case.urdf, case.tool, (0.0, 0.0, -9.81), self.tool)
        return reference.torque(*self.motion.at(time))

    @cached_property
    def effort(self) -> np.ndarray:
        """Drive torque, shape (k, n)."""
        late = self.time - self.delay
        carried = self._torque(late) if self.delay else self.carried
        return carried + (friction_of(self.motion.at(late)[1]) if self.friction else 0.0)

    @cached_property
    def wrench(self) -> np.ndarray:
        """Reading of the sensor, shape (k, 6)."""
        return BIAS + wrench_of(self.name, self.tool, *self.motion.at(self.time - self.delay))

    def joints(self, seed: int | None = None, scale: np.ndarray | float = 1.0) -> JointSamples:
        """Return joint states, with noise if a seed is given."""
        q, v, _ = self.motion.at(self.time)
        position = q + self.compliance * self.carried + self.offset
        effort = scale * self.effort
        if seed is not None:
            effort = effort + EFFORT_NOISE * np.random.default_rng([seed, 1]).normal(
                size=effort.shape)
        return JointSamples(self.robot.joint_names, self.time, position, v, effort)

    def readings(self, seed: int | None = None) -> WrenchSamples:
        """Return readings of the wrist sensor, with noise if a seed is given."""
        wrench = self.wrench
        if seed is not None:
            wrench = wrench + WRENCH_NOISE * np.random.default_rng([seed, 2]).normal(
                size=wrench.shape)
        return WrenchSamples(SENSORS[self.name][0], self.time, wrench)

    def but(self, **changes: object) -> Record:
        """Return another record."""
        return replace(self, **changes)
