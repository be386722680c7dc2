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
from benchmarks.wrench_peers import IdynTree
from benchmarks.wrench_samples import Impact, SampledArm, Stream, in_order
from robocal_ros.arrays import Array, frozen
from robocal_ros.robot import SteadyFriction
from robocal_ros.wrench import Observation, OfflineObserver, WrenchObserver, WrenchParameters

_DURATION = 5.0
_WARM_UP = 500
# Samples after which RNEA is timed, as many times.
_EVERY = 250
_BLOCK = 4096
_LAW = SteadyFriction(frozen((4.0, 4.5)), frozen((7.0, 7.5)), frozen((0.05, 0.05)),
                      frozen((5.0, 5.0)))
# Display names of the modules in the profile.
_PARTS = {
    'alignment.py': 'checking, keeping and interpolating readings; window',
    'model.py': 'Newton-Euler pass, sub-chains',
    'contact.py': 'gates, line of action, contact point on the geometry',
    'torque.py': 'external joint torques',
    'observer.py': 'combining results',
}


@dataclass(frozen=True)
class Timing:
    """Times per sample with seven joints and four sensors.

    Attributes:
        free: Without contact, shape (m,) [s].
        contact: With a contact whose point is found at every sample, shape (m,) [s].
        rnea: One call of Pinocchio's RNEA on the same arm, timed between them, shape (m,) [s].
        peer: One call of iDynTree's estimator on smoothed values of the same samples, called from
            Python; empty if it is not installed, shape (m,) [s].
        difference: Largest difference of its wrenches from the observer's [N, N·m].
        blocks: Time per sample as whole arrays, without reading and writing [s].
        shares: Share of the time by module, in a profiled run without contact.

    """

    free: Array
    contact: Array
    rnea: Array
    peer: Array
    difference: float
    blocks: float
    shares: dict[str, float]


class _Bench:
    """An observer, and samples as real arms send them: wall-clock stamps, jitter, asynchronous."""

    def __init__(self) -> None:
        laws = dict.fromkeys(seven_joints.JOINTS, _LAW)
        self._streams = SampledArm(seven_joints.urdf(), seven_joints.SENSORS, seed=1, laws=laws)
        self.robot = self._streams.robot
        values = WrenchParameters(
            sensor_frames=list(seven_joints.SENSORS), sensor_force_ranges=[1e4],
            sensor_torque_ranges=[1e4], require_tare=False)
        self.observer = WrenchObserver(self.robot, values)
        self.observer.use_friction(laws)
        self.rnea: list[float] = []
        self.peer: list[float] = []
        self.difference = 0.0
        try:
            self._peer: IdynTree | None = IdynTree(
                seven_joints.urdf(), seven_joints.JOINTS, seven_joints.SENSORS)
        except ImportError:
            self._peer = None

    def samples(self, push: float, duration: float) -> tuple[Stream, list[Stream]]:
        """Return joint states and readings of a smooth motion, with a push on the first tube."""
        force = np.array([-push, 0.2 * push, 0.0])
        begin = self._streams.now
        return self._streams.samples(duration, [
            Impact(0, force, np.array([0.05, 0.0, 0.06]), begin, duration)] if push else [])

    def feed(self, joints: Stream, sensors: list[Stream]) -> Array:
        """Feed samples; returns the time that each joint state took, readings included [s].

        RNEA and iDynTree are timed every now and then, so that all suffer alike from whatever else
        runs.
        """
        observer = self.observer
        taken, spent, newest = [], 0.0, None
        for stamp, index, row in list(in_order(joints, sensors)):
            began = time.perf_counter()
            if index < 0:
                observer.add_joint_state(stamp, row)
            else:
                observer.add_reading(index, stamp, row)
            while (observation := observer.take()) is not None:
                newest = observation
            spent += time.perf_counter() - began
            if index < 0:
                taken.append(spent)
                spent = 0.0
                if len(taken) % _EVERY == 0:
                    self._time_rnea()
                    self._time_peer(newest)
        return np.array(taken)

    def blocks(self, joints: Stream, sensors: list[Stream]) -> float:
        """Observe samples as whole arrays; returns the time per joint state [s]."""
        whole = OfflineObserver(self.observer)
        began = time.perf_counter()
        for begin in range(0, len(joints.stamps) + _BLOCK, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            whole.add_joint_states(joints.stamps[part], joints.values[part])
            for index, stream in enumerate(sensors):
                whole.add_readings(index, stream.stamps[part], stream.values[part], {})
            whole.take()
        whole.take(final=True)
        return (time.perf_counter() - began) / len(joints.stamps)

    def _time_peer(self, seen: Observation | None) -> None:
        if self._peer is None or seen is None or seen.posture is None or any(seen.reasons) \
                or seen.velocity is None or seen.acceleration is None or seen.distal is None \
                or seen.held is None:
            return
        motion = seen.posture, seen.velocity, seen.acceleration
        readings = seen.distal - seen.held
        for _ in range(_EVERY):
            began = time.perf_counter()
            found = self._peer.wrenches(*motion, readings)
            self.peer.append(time.perf_counter() - began)
        self.difference = max(self.difference, float(np.abs(found - seen.wrench).max()))

    def _time_rnea(self) -> None:
        model, data, zero = self.robot.model, self.robot.data, np.zeros(self.robot.n)
        for _ in range(_EVERY):
            began = time.perf_counter()
            pin.rnea(model, data, zero, zero, zero)
            self.rnea.append(time.perf_counter() - began)


def measure(duration: float = _DURATION) -> Timing:
    """Measure over some time [s]."""
    bench = _Bench()
    free = bench.samples(0.0, duration)
    times = bench.feed(*free)[_WARM_UP:]
    rnea = np.array(bench.rnea)
    touched = bench.feed(*bench.samples(30.0, duration))[_WARM_UP:]
    profile = cProfile.Profile()
    again = bench.samples(0.0, duration)
    profile.enable()
    bench.feed(*again)
    profile.disable()
    return Timing(times, touched, rnea, np.array(bench.peer), bench.difference,
                  bench.blocks(*free), _shares(profile))


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
