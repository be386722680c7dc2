# SPDX-License-Identifier: Apache-2.0
"""Computation time of the observer per sample, and its distribution over the modules."""

from __future__ import annotations

import cProfile
import pstats
import time
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from benchmarks import seven_joints
from robocal_ros.arrays import Array, frozen
from robocal_ros.messages.stamps import from_seconds
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.torque import JointFriction

_SAMPLES = 6000
_WARM_UP = 1000
_PERIOD = 1e-3
_LAW = SteadyFriction(frozen((4.0, 4.5)), frozen((7.0, 7.5)), frozen((0.05, 0.05)),
                      frozen((5.0, 5.0)))
# Display names of the modules in the profile.
_PARTS = {
    'alignment.py': 'checking, keeping and interpolating readings',
    'smoothing.py': 'window, weights',
    'model.py': 'Newton-Euler pass, sub-chains',
    'contact.py': 'gates, line of action',
    'surface.py': 'contact point on the geometry',
    'torque.py': 'external joint torques',
    'observer.py': 'combining results',
}


@dataclass(frozen=True)
class Timing:
    """Times per sample with seven joints and four sensors.

    Attributes:
        free: Without contact, shape (m,) [s].
        contact: With a contact whose point is found at every sample, shape (m,) [s].
        rnea: One call of Pinocchio's RNEA on the same arm, shape (m,) [s].
        shares: Share of the time by module, in a profiled run without contact.

    """

    free: Array
    contact: Array
    rnea: Array
    shares: dict[str, float]


class _Bench:
    """An observer and the samples to feed it."""

    def __init__(self) -> None:
        self.robot = Robot(seven_joints.urdf())
        values = WrenchParameters(
            sensor_frames=list(seven_joints.SENSORS), sensor_force_ranges=[1e4],
            sensor_torque_ranges=[1e4])
        self.observer = WrenchObserver(self.robot, values)
        self.arm = self.observer.arm
        laws = dict.fromkeys(seven_joints.JOINTS, _LAW)
        self._friction = JointFriction(laws, self.robot.joint_names, values)
        self.observer.use_friction(laws)
        self._noise = np.random.default_rng(0)
        self._number = 0

    def samples(self, push: float) -> list[tuple[float, Array, Array, Array, Array]]:
        """Return stamps, positions, velocities, torques and readings of a smooth motion."""
        found = []
        n = self.robot.n
        for _ in range(_SAMPLES):
            self._number += 1
            stamp = 100.0 + _PERIOD * self._number
            angle = 0.6 * stamp + np.arange(n)
            q, v, a = np.sin(angle), 0.6 * np.cos(angle), -0.36 * np.sin(angle)
            readings = -self.arm.held(q, v, a)
            # A push on the first tube: the sensors distal to it do not measure it.
            force = np.array([-push, 0.2 * push, 0.0])
            readings[0] += np.concatenate((force, np.cross([0.05, 0.0, 0.06], force)))
            readings += self._noise.normal(size=readings.shape) * np.repeat([0.3, 0.01], 3)
            torque = np.array(pin.rnea(self.robot.model, self.robot.data, q, v, a))
            torque += self._friction.torque(v)
            found.append((stamp, q, v + 1e-3 * self._noise.normal(size=n), torque, readings))
        return found

    def feed(self, samples: list[tuple[float, Array, Array, Array, Array]]) -> Array:
        """Feed samples and return the computation time of each, shape (m,) [s]."""
        observer = self.observer
        taken = []
        for stamp, q, v, torque, readings in samples:
            rows = [tuple(row) for row in readings.tolist()]
            began = time.perf_counter()
            nanoseconds = from_seconds(stamp)
            for index, row in enumerate(rows):
                observer.add_reading(index, nanoseconds, row)
            observer.add_joint_state(nanoseconds, q, v, torque)
            while observer.take() is not None:
                pass
            taken.append(time.perf_counter() - began)
        return np.array(taken)

    def rnea(self) -> Array:
        """Return the computation time of RNEA calls, shape (m,) [s]."""
        model, data, zero = self.robot.model, self.robot.data, np.zeros(self.robot.n)
        taken = []
        for _ in range(_SAMPLES):
            began = time.perf_counter()
            pin.rnea(model, data, zero, zero, zero)
            taken.append(time.perf_counter() - began)
        return np.array(taken)


def measure() -> Timing:
    """Measure the computation times."""
    bench = _Bench()
    free, contact = bench.samples(0.0), bench.samples(30.0)
    bench.feed(free[:_WARM_UP])
    times = bench.feed(free[_WARM_UP:])
    rnea = bench.rnea()
    touched = bench.feed(contact)[_WARM_UP:]
    profile = cProfile.Profile()
    again = bench.samples(0.0)
    profile.enable()
    bench.feed(again)
    profile.disable()
    return Timing(times, touched, rnea, _shares(profile))


def _shares(profile: cProfile.Profile) -> dict[str, float]:
    """Return the share of each module, including its calls outside this package."""
    table = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own = {key: name for key in table
           for ending, name in _PARTS.items() if key[0].endswith(f'wrench/{ending}')}
    sums = dict.fromkeys(_PARTS.values(), 0.0)
    for key, (_, _, inside, _, callers) in table.items():
        if key in own:
            sums[own[key]] += inside
            continue
        for caller, (_, _, time_inside, _) in callers.items():
            if caller in own:
                sums[own[caller]] += time_inside
    total = sum(sums.values())
    return {name: spent / total for name, spent in
            sorted(sums.items(), key=lambda item: -item[1]) if spent > 0.0}
