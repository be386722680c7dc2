# SPDX-License-Identifier: Apache-2.0
"""The arm's own dynamics from an exciting motion: links, rotors, friction, offsets, drive gains.

effort_j = s_j (W_j π + J_j q̈_j + L_j p + friction_j), with the links' inertial parameters π, the
rotor inertia J_j reflected to the joint, a weighed load p where there is one, friction with a
torque offset, and the drive gain s_j (Khalil, Dombre, Modeling, Identification and Control of
Robots, 2002, ch. 12; Gautier, Briot, Global Identification of Joint Drive Gains, J. Dyn. Sys.
Meas. Control 136 (2014) 051025, doi 10.1115/1.4027506).

A motion without load determines combinations of π only; the URDF supplies the rest as a prior,
whose width is estimated too (``WIDENINGS``). The prior is the log-determinant divergence of the
links' pseudo-inertia matrices, convex and infinite at the boundary of physically consistent
bodies, so that each estimate is consistent (Lee, Wensing, Park, IEEE Trans. Robot. 36 (2020) 348,
doi 10.1109/TRO.2019.2926491). Alone, it takes the centre of a thin link to be known across it to a
share of its thickness, but makers' centres are off by a share of their distance from the joint;
so it compares bodies that are as large in all directions (``surroundings``). Rotor inertias are
constrained to be non-negative. Friction that was identified before is a prior, too. The maximum a
posteriori estimate is found by Newton's method, its covariance from the curvature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import ConvergenceError, DataError
from robocal_ros.estimation import (
    Blocks,
    Channels,
    Delay,
    autocorrelation_time,
    derivatives,
    find_delay,
    orthonormal,
    scaled_inverse,
    structured_covariance,
)
from robocal_ros.messages import JointSamples
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import (
    CHANGE,
    SLOWEST,
    SPRING,
    TILT,
    Term,
    exciting_efforts,
    friction_terms,
    in_band,
    joint_terms,
    noise_terms,
    recording_check,
    stacked,
    tilt_terms,
    widened_std,
    without_noise,
)
from robocal_ros.payload.result import CERTAIN, rated_efforts
from robocal_ros.results import Check, rms
from robocal_ros.robot import (
    DRIVEN_STD,
    PSEUDO_INERTIA,
    NewtonEuler,
    Robot,
    SteadyFriction,
    arm_regressor,
    pseudo_inertia,
)

WIDENINGS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Candidate factors of the URDF's standard deviation."""

COMMON = 'common error of the links'
"""Name of the first nuisance parameter: logarithm of the links' scale against the URDF, on which
torques depend by the links alone."""

EVIDENCE = 3.0
"""Gain in log-evidence that a less likely model must have."""

# Candidate speeds within which friction changes its direction [rad/s] (presliding).
_TRANSITIONS = (0.01, 0.03, 0.08)
# Friction columns of every joint, and the optional ones.
_ALWAYS = ('offset', 'coulomb', 'viscous', 'load')
_EXTRAS = ('sublinear', 'stribeck')
_CHOICES = ((), *((name,) for name in _EXTRAS), _EXTRAS)
# Interval of the differences that are the change of friction [s].
_STEP = 1e-5
# Stribeck velocity divided by the transition speed.
_STRIBECK = 3.0
# Weight of blocks near a reversal.
_SLOW_WEIGHT = 0.01
# Residuals beyond this multiple of the robust standard deviation are down-weighted (Huber).
_OUTLIER = 2.5
_ROUNDS = 3
_STEPS = 300
# Squared Newton decrement at convergence (1/30 of a standard deviation), and the largest one that
# is accepted where progress is slow, as with nearly collinear gains and masses.
_CONVERGED = 1e-3
_ACCEPTED = 1.0
_LEAST_STD = 1e-6
# Number of speeds at which friction is compared with a law that was identified before.
_COMPARED = 6
# Prior standard deviation of a spring's torque per angle, as a share of the rated effort [1/rad],
# where none is known of, where the data ask for springs, and without any.
_SPRING = 3e-4
_ANY_SPRING, _NO_SPRING = 1e-2, 1e-9
# Weight of the divergence that keeps links consistent.
_CONSISTENT = 1e-2
# Least variance of a combination of links and rotors that gains follow, as a share of their own.
_FOLLOWED = 1e-9
# Share to which friction is a function of speed at all.
_DEFINED = 1e-3


class Law(NamedTuple):
    """Friction columns of one joint.

    Attributes:
        transition: Speed within which friction changes its direction [rad/s].
        extras: Columns besides those of every joint.

    """

    transition: float
    extras: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*_ALWAYS, *self.extras)

    def columns(self, velocity: Array, torque: Array) -> Array:
        """Return the columns.

        Args:
            velocity: Velocity of the joint, shape (k,) [rad/s].
            torque: Torque that the joint transmits, shape (k,) [N·m].

        Returns:
            Shape (k, len(names)): 1, s, v, s |torque|, and those chosen of s √|v| and
            s exp(-|v| / v_s), with the direction s.

        """
        direction = np.tanh(velocity / self.transition)
        speed = np.abs(velocity)
        known = {'sublinear': direction * np.sqrt(speed),
                 'stribeck': direction * np.exp(-speed / (_STRIBECK * self.transition))}
        return np.column_stack((np.ones_like(velocity), direction, velocity,
                                direction * np.abs(torque),
                                *(known[name] for name in self.extras)))


# Law by which friction is looked at first.
_ROUGH_LAW = Law(_TRANSITIONS[1], ('sublinear',))


@dataclass(frozen=True)
class KnownFriction:
    """Friction of one joint that was identified before, at some speeds, mean of both directions.

    It may have changed since, its dry and its viscous part by a factor each.

    Attributes:
        speed: Speeds, shape (k,) [rad/s].
        load: Transmitted torque [N·m].
        parts: Dry and viscous friction there, shape (k, 2) [N·m].
        covariance: Covariance of their sum, shape (k, k) [N²·m²].
        load_factor: Mean and standard deviation of friction per transmitted torque, shape (2,).

    """

    speed: Array
    load: float
    parts: Array
    covariance: Array
    load_factor: Array

    @classmethod
    def of(cls, law: SteadyFriction) -> KnownFriction | None:
        """Return the friction of a law; None if no range of speeds is known in which it holds."""
        slowest, fastest = max(float(law.speeds[0]), SLOWEST), float(law.speeds[1])
        if not slowest < fastest < np.inf:
            return None
        speed = np.geomspace(slowest, fastest, _COMPARED)
        dry = 0.5 * (law.level(speed) + law.level(-speed))
        whole = 0.5 * (law.torque(speed) - law.torque(-speed))
        scatter = law.std**2 + np.square(_DEFINED * whole)
        covariance = np.diag(scatter) + 0.25 * sum(slopes @ own @ slopes.T for slopes, own in zip(
            (law.slopes(speed), law.slopes(-speed)), law.covariance, strict=True))
        return cls(speed, law.reference_load, np.column_stack((dry, whole - dry)), covariance,
                   np.array([law.load_factor.mean(), np.sqrt(law.covariance[:, -1, -1].max())]))

    def equations(self, law: Law) -> tuple[Array, Array]:
        """Return whitened equations of friction columns and of the changes of both parts.

        What the columns cannot describe counts as noise.

        Args:
            law: The friction columns.

        Returns:
            Matrix, shape (k, f + 2), and right-hand side, shape (k,).

        """
        load, torque = np.full_like(self.speed, self.load), self.parts.sum(axis=1)
        columns = 0.5 * (law.columns(self.speed, load) - law.columns(-self.speed, load))
        left = torque - columns @ np.linalg.lstsq(columns, torque, rcond=None)[0]
        rows = np.linalg.solve(
            np.linalg.cholesky(self.covariance + np.mean(left**2) * np.eye(len(left))),
            np.column_stack((columns, -self.parts, torque)))
        return rows[:, :-1], rows[:, -1]


class Unknowns(NamedTuple):
    """Slices of the vector of unknowns, and the friction columns of each joint."""

    links: slice
    rotors: slice
    gains: slice
    others: slice
    friction: tuple[slice, ...]
    laws: tuple[Law, ...]

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return self.friction[-1].stop

    @property
    def common(self) -> int:
        """Place of the common error of the links, the first one of the others."""
        return self.others.start

    def changes(self, place: int) -> slice:
        """Return the changes of the dry and the viscous friction of a joint.

        Args:
            place: Place of the joint among those whose friction is known.

        """
        at = self.common + 1 + 2 * place
        return slice(at, at + 2)

    @property
    def rigid(self) -> npt.NDArray[np.intp]:
        """Places of the unknowns of ``ArmMotion.regressor``."""
        return np.r_[self.links, self.rotors, self.others]

    @property
    def load_friction(self) -> npt.NDArray[np.intp]:
        """Places of the joints' friction per transmitted torque, shape (n,)."""
        return np.array([at.start for at in self.friction]) + _ALWAYS.index('load')

    @classmethod
    def of(cls, n: int, others: int, laws: Sequence[Law]) -> Unknowns:
        """Return the slices for n joints, ``others`` further unknowns and friction laws."""
        ends = list(accumulate((len(law.names) for law in laws), initial=12 * n + others))
        return cls(slice(0, 10 * n), slice(10 * n, 11 * n), slice(11 * n, 12 * n),
                   slice(12 * n, ends[0]), tuple(map(slice, ends, ends[1:])), tuple(laws))


@dataclass(frozen=True)
class ArmMotion:
    """Block means of an exciting motion.

    Attributes:
        regressor: Columns of links, rotors, nuisances and, if present, the load, shape
            (k, n, p).
        nuisance_std: Prior standard deviations of the nuisances, shape (s,); the links' common
            error comes first, then the changes of known friction.
        velocity: Joint velocities at five instants of each block, shape (5, k, n) [rad/s].
        effort: Mean effort, shape (k, n) [N·m].
        trust: Weights of the blocks, shape (k, n); small near a reversal, where friction is not a
            function of speed.
        delay: Compensated delay of the efforts relative to the positions.
        repeats: Number of repeats of a periodic motion, 1 otherwise.
        nuisances: Names of the nuisances.
        recording: Check of the recording.
        bend_std: Prior standard deviation of what a drive reports beyond proportion, per cubed
            torque, shape (n,) [1/(N²·m²)].
        travel: Mean travel of the joints in a block, shape (n,) [rad].
        middle: Mean joint angles, at which springs have no torque, shape (n,) [rad].

    """

    regressor: Array
    nuisance_std: Array
    velocity: Array
    effort: Array
    trust: Array
    delay: Delay
    repeats: int
    nuisances: tuple[str, ...]
    recording: Check
    bend_std: Array
    travel: Array
    middle: Array

    @property
    def tilts(self) -> Flags:
        """Which of the nuisances are tilts of the base, shape (s,)."""
        return np.array([name.startswith(TILT) for name in self.nuisances])

    @property
    def springs(self) -> npt.NDArray[np.intp]:
        """Places of the springs among the nuisances, shape (n,)."""
        return np.flatnonzero([name.startswith(SPRING) for name in self.nuisances])

    def transmitted(self, x: Array, places: Unknowns) -> Array:
        """Return the torques beyond the gears by all unknowns, shape (k, n) [N·m].

        They contain neither friction nor what accelerates the rotors.
        """
        without = x.copy()
        without[places.rotors] = 0.0
        return np.asarray(self.regressor @ without[places.rigid])

    def bent(self, x: Array, places: Unknowns, *, loaded: bool) -> Array:
        """Return what drives that saturate report beyond their mean gains, shape (k, n) [N³·m³].

        Motors yield less torque per current the larger it is. An arm that was identified without
        the load contains the mean of that motion, and the mean of this one belongs to the gains.

        Args:
            x: The unknowns.
            places: Their places.
            loaded: Whether the last ten of the others are a load's.

        """
        whole = self.effort - self.residual(x, places)
        arm = whole - x[places.gains] * (
            self.regressor[..., -10:] @ x[places.others][-10:]) if loaded else whole
        means = [np.mean(torque**4, axis=0) / np.mean(torque**2, axis=0)
                 for torque in (whole, arm)]
        return np.asarray(whole**3 - means[0] * (whole - arm) - means[1] * arm)

    def residual(self, x: Array, places: Unknowns) -> Array:
        """Return measured minus fitted effort, shape (k, n) [N·m]; arguments as above."""
        transmitted = self.transmitted(x, places)
        torque = np.asarray(self.regressor @ x[places.rigid])
        for joint, (law, at) in enumerate(zip(places.laws, places.friction, strict=True)):
            torque[:, joint] += _friction_columns(law, self.velocity, joint, transmitted) @ x[at]
        return np.asarray(self.effort - x[places.gains] * torque)

    def equations(self, law: Law, joint: int, torque: Array) -> Array:
        """Return the columns of rigid unknowns and friction of a joint, and last its effort.

        Args:
            law: The friction columns.
            joint: The joint.
            torque: Torques that the joints transmit, shape (k, n) [N·m].

        Returns:
            Shape (k, p + f + 1).

        """
        return np.column_stack((
            self.regressor[:, joint], _friction_columns(law, self.velocity, joint, torque),
            self.effort[:, joint]))

    def part(self, rows: slice) -> ArmMotion:
        """Return a part of the blocks."""
        return replace(self, regressor=self.regressor[rows], velocity=self.velocity[:, rows],
                       effort=self.effort[rows], trust=self.trust[rows], repeats=1)

    @classmethod
    def of(
        cls, robot: Robot, samples: JointSamples, values: PayloadParameters, load: Array,
        known_friction: Iterable[int] = (), couplings: Iterable[tuple[int, int]] = (),
    ) -> ArmMotion:
        """Return block means of joint states.

        Args:
            robot: The arm.
            samples: Joint states.
            values: The node's parameters.
            load: Parameters of the load about which deflections are linearised, shape (10,).
            known_friction: Joints whose friction was identified before.
            couplings: Pairs of joints of which a motor turns the sum of their angles.

        Raises:
            DataError: If the record is not an exciting motion or has no usable efforts.

        """
        blocks, effort, fast = exciting_efforts(robot, samples)
        slow = [name for name, column in zip(robot.joint_names, fast.T, strict=True)
                if not column.any()]
        if slow:
            raise DataError(
                f'{", ".join(slow)} never turned faster than {SLOWEST} rad/s, where friction is a '
                'function of speed. Use a faster motion of all joints.')
        dynamics = NewtonEuler(robot, robot.tool_frame)
        payload = blocks.means(dynamics.torque_regressor)
        rigid = blocks.means(partial(rigid_regressor, robot))
        velocity = np.array([node.velocity for node in blocks.nodes])
        # Free links of each joint would absorb a delay; the URDF's links with a free body on the
        # tool are close enough to identify it.
        no_torque, own = np.zeros(fast.shape), blocks.means(dynamics.torque)
        known = [np.column_stack((own[:, joint], payload[:, joint],
                                  rigid[:, joint, 10 * robot.n + joint],
                                  _friction_columns(_ROUGH_LAW, velocity, joint, no_torque)))
                 for joint in range(robot.n)]
        delay = find_delay(effort, known, no_torque, blocks.period, fast)
        measured = effort(delay.value)
        # Of each joint: rotor, offset, and friction, whose size is that without the offset.
        rough = np.array([
            np.linalg.lstsq(every[rows], given[rows], rcond=1e-8)[0][-1 - len(_ROUGH_LAW.names):]
            for every, rows, given in zip(known, fast.T, measured.T, strict=True)])
        size = np.array([np.median(np.abs(every[rows, 2 - rough.shape[1]:] @ found[2:]))
                         for every, rows, found in zip(known, fast.T, rough, strict=True)])
        names, std, nuisances = stacked((
            *_arm_terms(robot, blocks, partial(dynamics.torque, parameters=load),
                       [partial(tilted.torque, parameters=load) for tilted in dynamics.tilts()],
                       values, known_friction, delay.value, size, rough),
             *_coupling_terms(robot.joint_names, blocks, measured, couplings)), fast.T.shape)
        regressor = np.concatenate((
            rigid, np.swapaxes(nuisances, 0, 1), *((payload,) if values.arm_load > 0.0 else ())),
            axis=2)
        return cls(regressor, std, velocity, measured, np.where(fast, 1.0, _SLOW_WEIGHT)
                   * blocks.seen(samples.time)[:, None], delay, blocks.repeats, names,
                   recording_check(blocks, robot.joint_names),
                   values.saturation_std / rated_efforts(robot, measured)**2,
                   blocks.period * np.abs(velocity[2]).mean(axis=0),
                   blocks.centre.position.mean(axis=0))


def _arm_terms(
    robot: Robot, blocks: Blocks, carried: Channels, tilted: Sequence[Channels],
    values: PayloadParameters, known_friction: Iterable[int], delay: float, size: Array,
    rough: Array,
) -> Iterator[Term]:
    """Yield the nuisance parameters of an arm's own motion.

    Args:
        robot: The arm.
        blocks: The motion.
        carried: Torques of links and load.
        tilted: By tilt of the base, their derivative.
        values: For the prior standard deviations.
        known_friction: Joints whose friction was identified before.
        delay: Delay that efforts are already corrected for [s].
        size: Rough size of each joint's friction, shape (n,) [N·m].
        rough: Rough rotor inertia and parameters of friction of each joint, shape (n, 1 + f).

    """
    torque, rotors = without_noise(blocks, blocks.centre.values_of(carried)), rough[:, 0]
    none, changed = np.zeros_like(torque), max(values.friction_change_std, _LEAST_STD)
    yield COMMON, values.arm_model_std, none
    for joint, part in product(known_friction, ('dry', 'viscous')):
        yield f'{CHANGE}, {part}, of {robot.joint_names[joint]}', changed, none
    yield from joint_terms(robot, blocks, torque, carried,
                           replace(values, posture_std=0.0, delay_std=0.0))
    yield from tilt_terms(blocks, tilted, values.tilt_std)
    yield from noise_terms(robot.joint_names, blocks,
                           lambda q, v, a: carried(q, v, a) + rotors * a)
    yield from friction_terms(robot.joint_names, blocks, size, values)
    turned = blocks.centre.position - blocks.centre.position.mean(axis=0)
    for name, alone, std in zip(robot.joint_names, np.eye(robot.n),
                                _SPRING * rated_efforts(robot, torque), strict=True):
        yield f'{SPRING} of {name}', std, turned * alone
    if values.delay_std > 0.0:
        # What the shift leaves, because other errors of the model bias it, and filters. Of
        # viscous friction, a delay resembles inertia.
        v, a = blocks.centre.velocity, blocks.centre.acceleration
        _, slope, curvature = derivatives(blocks, in_band(blocks, torque) + rotors * a)
        for joint, friction in enumerate(rough[:, 1:]):
            ahead, behind = (_ROUGH_LAW.columns(v[:, joint] + step * a[:, joint], none[:, joint])
                             for step in (_STEP, -_STEP))
            slope[:, joint] += (ahead - behind) @ friction / (2.0 * _STEP)
        yield 'delay', values.delay_std, -slope
        yield 'low-pass', (values.delay_std + abs(delay))**2, curvature


def _coupling_terms(
    joint_names: Sequence[str], blocks: Blocks, effort: Array,
    couplings: Iterable[tuple[int, int]],
) -> Iterator[Term]:
    """Yield friction and inertia of motors that turn the sum of two joint angles.

    Either may be as large as the efforts.

    Args:
        joint_names: Names of the joints.
        blocks: The motion.
        effort: Efforts, shape (k, n) [N·m].
        couplings: Pairs of joints.

    """
    for pair in map(list, couplings):
        name = '+'.join(joint_names[joint] for joint in pair)
        shapes: dict[str, Channels] = {
            'coulomb': lambda q, v, a, pair=pair: np.tile(np.tanh(  # type: ignore[misc]
                v[:, pair].sum(axis=1, keepdims=True) / _ROUGH_LAW.transition), 2),
            'viscous': lambda q, v, a, pair=pair: v[:, pair[::-1]],  # type: ignore[misc]
            'inertia': lambda q, v, a, pair=pair: a[:, pair[::-1]]}  # type: ignore[misc]
        for part, shape in shapes.items():
            column = np.zeros_like(effort)
            column[:, pair] = blocks.means(shape)
            yield f'{name}.{part}', rms(effort[:, pair]) / max(rms(column), 1e-9), column


def surroundings(bodies: Array) -> Array:
    """Return what makes bodies as large in all directions as they reach from their joints.

    Args:
        bodies: Pseudo-inertia, shape (n, 4, 4).

    """
    found, second, first = np.zeros_like(bodies), bodies[:, :3, :3], bodies[:, :3, 3:]
    central = second - first * first.swapaxes(1, 2) / bodies[:, 3:, 3:]
    found[:, :3, :3] = np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) - central
    return found


def rigid_regressor(robot: Robot, q: Array, v: Array, a: Array) -> Array:
    """Return the columns of links and rotors, shape (k, n, 11 n); other arguments by instant."""
    return np.concatenate((arm_regressor(robot, q, v, a), a[:, :, None] * np.eye(robot.n)), axis=2)


@dataclass(frozen=True)
class Prior:
    """Prior of the unknowns.

    Attributes:
        std: Standard deviation of the masses of links, as a share of those of ``mean``, of each
            by itself; that of all by a common factor is among ``others``.
        mean: Links, such as those of the URDF, rotors and gains, shape (12 n,).
        information: Information matrix of a normal distribution about them, zero for unknowns
            without one, shape (12 n, 12 n).
        others: Means and standard deviations of the nuisances and, if present, the load's
            parameters, shape (2, m).
        load_friction: Means and standard deviations of the joints' friction per transmitted
            torque, shape (2, n).
        gain_information: Information matrix of gains that were not identified by a motion, where
            what gears lose less when they are driven acts like a gain, shape (n, n); else zero.
        exponents: Powers of the gains, as ratios to those of ``mean``, in the factors of links and
            rotors with which ``information`` counts, shape (11 n, n). A motion identifies the
            products of both far better than either.
        gain_power: Power of each gain with which the density falls, shape (n,).
        friction: Friction that was identified before, by joint.

    """

    std: float
    mean: Array
    information: Array
    others: Array
    load_friction: Array
    gain_information: Array
    exponents: Array
    gain_power: Array
    friction: Mapping[int, KnownFriction] = field(default_factory=dict)

    def cost(self, x: Array, places: Unknowns) -> tuple[float, Array, Array]:
        """Return the negative log-density, its gradient and its Hessian.

        It is infinite for physically inconsistent bodies and without constants that depend on
        ``std``.
        """
        gradient, hessian = np.zeros(places.size), np.zeros((places.size, places.size))
        bodies = x[places.links].reshape(-1, 10)
        now = pseudo_inertia(bodies)
        if (x[places.gains] <= 0.0).any():
            return np.inf, gradient, hessian
        try:
            np.linalg.cholesky(now)
        except np.linalg.LinAlgError:
            return np.inf, gradient, hessian
        before = pseudo_inertia(self.mean[places.links].reshape(-1, 10))
        # The second one only keeps the links consistent.
        cost = 0.0
        for weight, beyond in ((self.std**-2.0, surroundings(before)), (_CONSISTENT, 0.0)):
            cost += self._diverged(x, places, now, before, weight, beyond, gradient, hessian)
        shared = slice(0, places.gains.stop)
        counted, slopes = self.counted(x[shared])
        off = counted - self.mean
        cost += 0.5 * float(off @ self.information @ off)
        gradient[shared] += slopes.T @ self.information @ off
        hessian[shared, shared] += slopes.T @ self.information @ slopes
        cost += float(self.gain_power @ np.log(x[places.gains]))
        gradient[places.gains] += self.gain_power / x[places.gains]
        own = np.r_[places.others, places.load_friction]
        mean, std = np.hstack((self.others, self.load_friction))
        off = x[own] - mean
        cost += 0.5 * float(off @ (off / std**2))
        gradient[own] += off / std**2
        hessian[own, own] += std**-2.0
        for place, (joint, known) in enumerate(self.friction.items()):
            # Torques that the same drive reported: the gain multiplies friction here, too.
            at = np.r_[places.friction[joint], places.changes(place)]
            rows, torque = known.equations(places.laws[joint])
            gain = x[places.gains][joint]
            every = np.append(at, places.gains.start + joint)
            slopes = np.column_stack((gain * rows, rows @ x[at]))
            off = gain * rows @ x[at] - torque
            cost += 0.5 * float(off @ off)
            gradient[every] += slopes.T @ off
            hessian[np.ix_(every, every)] += slopes.T @ slopes
        return cost, gradient, hessian

    def counted(self, x: Array) -> tuple[Array, Array]:
        """Return links and rotors times powers of the gains, and the gains; and their slopes.

        Args:
            x: Links, rotors and gains, shape (12 n,).

        """
        bodies, gains = np.split(x, [len(self.exponents)])
        factors = np.exp(self.exponents @ np.log(gains / self.mean[len(bodies):]))
        slopes = np.diag(np.append(factors, np.ones_like(gains)))
        slopes[:len(bodies), len(bodies):] = (factors * bodies)[:, None] * self.exponents / gains
        return np.append(factors * bodies, gains), slopes

    def no_better(self, x: Array, covariance: Array) -> Array:
        """Return a covariance in which links and rotors are known no better than by the prior.

        Joint angles, delays, filters and friction err alike in the motion that the prior is from
        and in a second one, so that both do not average these errors. Gains follow links and
        rotors as they do in the estimate.

        Args:
            x: The estimate, shape (p,).
            covariance: Its covariance if the errors of both motions were independent, (p, p).

        """
        count, (_, slopes) = len(self.exponents), self.counted(x[:len(self.mean)])
        change = scipy.linalg.block_diag(slopes, np.eye(len(x) - len(slopes)))
        before = scaled_inverse(self.information)[:count, :count]
        scale = np.sqrt(np.outer(np.diag(before), np.diag(before)))
        now = change @ covariance @ change.T
        own = now[:count, :count] / scale
        values, vectors = np.linalg.eigh(before / scale - own)
        lost = vectors * np.sqrt(np.maximum(values, 0.0) * np.diag(before)[:, None])
        inverse = np.linalg.pinv(own, rcond=_FOLLOWED, hermitian=True) / scale
        follow = now[count:, :count] @ inverse
        spread = np.linalg.solve(change, np.vstack((lost, follow @ lost)))
        return np.asarray(covariance + spread @ spread.T)

    @staticmethod
    def _diverged(
        x: Array, places: Unknowns, now: Array, before: Array, weight: float,
        beyond: Array | float, gradient: Array, hessian: Array,
    ) -> float:
        """Return the divergence of the links from those before; add its derivatives.

        Args:
            x: Unknowns.
            places: Their places.
            now: Pseudo-inertia of the links, shape (n, 4, 4).
            before: Those of the prior, which are scaled by the exponential of the common error.
            weight: Factor of the divergence.
            beyond: Added to both, shape (n, 4, 4).
            gradient: Shape (p,).
            hessian: Shape (p, p), to which a positive definite approximation is added.

        """
        common, at, shrunk = places.common, places.links, np.exp(-x[places.common])
        scaled = shrunk * now
        inverse, left = np.linalg.inv(before + beyond), np.linalg.inv(scaled + beyond)
        pull = weight * (inverse - left)
        units = shrunk * PSEUDO_INERTIA.reshape(10, 16)
        gradient[at] += (pull.reshape(-1, 16) @ units.T).ravel()
        gradient[common] -= float(np.einsum('iab,iba->', pull, scaled))
        # Of the logarithm of the determinant, by the links and by the common error.
        changes, share = left[:, None] @ units.reshape(10, 4, 4), left @ scaled
        hessian[at, at] += weight * scipy.linalg.block_diag(
            *np.einsum('ikab,ilba->ikl', changes, changes))
        cross = -weight * np.einsum('ikab,iba->ik', changes, share).ravel()
        hessian[at, common] += cross
        hessian[common, at] += cross
        hessian[common, common] += weight * float(np.einsum('iab,iba->', share, share))
        whole = inverse @ (scaled + beyond)
        return weight * float(np.einsum('iaa->', whole) - np.linalg.slogdet(whole)[1].sum()
                              - 4.0 * len(now))

    def sprung(
        self, motion: ArmMotion, springs: npt.NDArray[np.intp], size: float = _ANY_SPRING
    ) -> Prior:
        """Return it with springs of a size, given their places among the nuisances."""
        others = self.others.copy()
        others[1, springs] = size / _SPRING * motion.nuisance_std[springs]
        return replace(self, others=others)

    def widened(
        self, names: Sequence[str], x: Array, covariance: Array, places: Unknowns
    ) -> Prior:
        """Return it with wider priors of nuisances and load friction that the data contradict.

        Args:
            names: Names of the nuisances.
            x: Estimates of the unknowns, shape (p,).
            covariance: Their covariance, shape (p, p).
            places: Slices of the unknowns.

        """
        others, count = self.others.copy(), len(names)
        at = np.r_[places.others.start:places.others.start + count, places.load_friction]
        mean, std = np.hstack((others[:, :count], self.load_friction))
        std = widened_std([*names, *('load',) * (len(std) - count)], std, x[at] - mean,
                          np.diag(covariance)[at])
        others[1, :count] = std[:count]
        return replace(self, others=others,
                       load_friction=np.stack((self.load_friction[0], std[count:])))


@dataclass(frozen=True)
class ArmFit:
    """Estimate of all unknowns.

    Attributes:
        value: Unknowns, shape (p,).
        covariance: Their covariance, shape (p, p).
        places: Slices of the unknowns.
        residual: Measured minus fitted effort, shape (k, n) [N·m].
        evidence: Log-evidence up to a constant.
        std: Standard deviation of the URDF's masses in the chosen prior, as a share.
        freedom: Returns the degrees of freedom of the variance along a direction, shape (p,);
            None if it is known.
        data: Information of the data if the largest scatter of each joint's residuals were
            everywhere in the spectrum, by which the motion is judged, shape (p, p).

    """

    value: Array
    covariance: Array
    places: Unknowns
    residual: Array
    evidence: float
    std: float
    freedom: Callable[[Array], float | None]
    data: Array


def _friction_columns(law: Law, velocity: Array, joint: int, torque: Array) -> Array:
    """Return the block means of a joint's friction columns, shape (k, f)."""
    return np.asarray(np.tensordot(_NODE_WEIGHTS, np.array([
        law.columns(node[:, joint], torque[:, joint]) for node in velocity]), axes=1))


_NODE_WEIGHTS = 0.5 * np.polynomial.legendre.leggauss(5)[1]


def identify(
    motion: ArmMotion, prior: Prior, *, laws: Sequence[Law] | None = None,
    widenings: Sequence[float] = WIDENINGS, start: Array | None = None, springs: bool = True,
) -> ArmFit:
    """Estimate all unknowns, and choose friction columns and the prior's width unless given.

    Args:
        motion: The motion.
        prior: Prior of the unknowns.
        laws: Friction columns of each joint.
        widenings: Candidate factors of the prior's standard deviation.
        start: Initial unknowns, shape (p,); by default those of the prior.
        springs: Whether joints may have springs.

    Raises:
        ConvergenceError: If Newton's method does not converge.

    """
    if not springs:
        prior = prior.sprung(motion, motion.springs, _NO_SPRING)
    n, others = motion.effort.shape[1], prior.others.shape[1]
    places = Unknowns.of(n, others, laws or (Law(_TRANSITIONS[1], ()),) * n)
    x = np.zeros(places.size) if start is None else start
    if start is None:
        x[:places.gains.stop] = prior.mean
        x[places.rotors] = np.maximum(x[places.rotors], 0.0)
        x[places.others] = prior.others[0]
    robust = np.ones_like(motion.effort)
    # Friction columns change between the rounds in which the prior's width is chosen.
    stated, widths = prior.std, [prior.std * factor for factor in widenings]
    for number in range(_ROUNDS):
        torque = motion.transmitted(x, places)
        used = robust * motion.trust
        noise = _free_noise(motion, places.laws, torque, used)
        if laws is None and number > 0:
            places = Unknowns.of(n, others, [
                _best_law(motion, replace(prior, std=stated), places, x, j, torque, noise[j],
                          robust[:, j]) for j in range(n)])
            x = np.pad(x[:places.others.stop], (0, places.size - places.others.stop))
        solver = _Solver(motion, places, torque, used, noise)
        tried = widths if number % 2 == 0 else (prior.std,)
        if springs:
            x, prior = solver.sprung(x, replace(prior, std=tried[0]))
        x, evidence, prior = solver.best(x, prior, tried)
        prior = prior.widened(motion.nuisances, x, solver.inverse(x, prior)[0], places)
        residual = motion.residual(x, places)
        size = 1.4826 * np.median(np.abs(residual), axis=0) + _LEAST_STD
        robust = np.minimum(1.0, _OUTLIER * size / np.maximum(np.abs(residual), _LEAST_STD))
    prior = replace(prior, gain_power=solver.gain_power(x, prior))
    x, _ = solver.solve(x, prior)
    return solver.fit(x, prior, evidence, robust * motion.trust)


def _correlated_noise(residual: Array, weights: Array) -> Array:
    """Return the standard deviation of equivalent independent rows of each joint, shape (n,)."""
    weighted = np.sqrt(weights / np.mean(weights, axis=0)) * residual
    return np.array([
        max(rms(column) * np.sqrt(autocorrelation_time(column)), _LEAST_STD)
        for column in weighted.T])


def _free_noise(motion: ArmMotion, laws: Sequence[Law], torque: Array, weights: Array) -> Array:
    """Return the residual noise of each joint with links of its own, shape (n,) [N·m].

    No shared links explain more, so the weights of the joints do not depend on errors of the
    present estimate.
    """
    left = np.empty_like(motion.effort)
    for joint, law in enumerate(laws):
        every = motion.equations(law, joint, torque)
        basis, effort = orthonormal(every[:, :-1]), every[:, -1]
        left[:, joint] = effort - basis @ (basis.T @ effort)
    return _correlated_noise(left, weights)


class _Solver:
    """Newton's method on the data, condensed to a few rows per joint."""

    def __init__(
        self, motion: ArmMotion, places: Unknowns, torque: Array, weights: Array, noise: Array
    ) -> None:
        self._motion, self._places = motion, places
        self._weights, self._noise = weights, noise
        self._every = [motion.equations(law, joint, torque)
                       for joint, law in enumerate(places.laws)]
        self._rows = [
            np.asarray(np.linalg.qr(every * np.sqrt(weight)[:, None] / std, mode='r'))
            for every, weight, std in zip(self._every, weights.T, noise, strict=True)]

    def best(
        self, x: Array, prior: Prior, widths: Sequence[float]
    ) -> tuple[Array, float, Prior]:
        """Return unknowns, log-evidence and prior of the width that the data ask for.

        Args:
            x: Initial unknowns.
            prior: The prior.
            widths: Candidate standard deviations of it, of which each must be more likely than
                the one before.

        """
        prior = replace(prior, std=widths[0])
        x, evidence = self.solve(x, prior)
        for std in widths[1:]:
            wider = replace(prior, std=std)
            try:
                tried, gained = self.solve(x, wider)
            except ConvergenceError:
                # The data pull links to the boundary of physically consistent bodies.
                break
            if gained < evidence + EVIDENCE:
                break
            x, evidence, prior = tried, gained, wider
        return x, evidence, prior

    def sprung(self, x: Array, prior: Prior) -> tuple[Array, Prior]:
        """Return unknowns and prior with springs on those joints that have any.

        They are looked for before the prior of the links is widened, which resembles them.
        """
        springs, found = self._motion.springs, []
        for tried in (prior, prior.sprung(self._motion, springs)):
            try:
                found.append((*self.solve(x, tried), tried))
            except ConvergenceError:
                if tried is not prior and not found:
                    raise
        best = found[-1] if found[-1][1] >= found[0][1] + EVIDENCE else found[0]
        if best[2] is not prior:
            at = self._places.common + springs
            std = np.sqrt(np.diag(self.inverse(*best[::2])[0])[at])
            wanted = prior.sprung(self._motion, springs[np.abs(best[0][at]) > CERTAIN * std])
            with suppress(ConvergenceError):
                best = *self.solve(best[0], wanted), wanted
        return best[::2]

    def solve(self, x: Array, prior: Prior) -> tuple[Array, float]:
        """Minimise the negative log-posterior from a physically consistent start.

        Returns:
            The unknowns, and the log-evidence up to a constant.

        Raises:
            ConvergenceError: If the steps do not converge.

        """
        places = self._places
        cost, gradient, hessian = self._objective(x, prior)
        rotors = np.zeros(len(x), dtype=bool)
        rotors[places.rotors] = True
        for _ in range(_STEPS):
            # Rotors at zero that would become negative stay there (projected Newton, Bertsekas,
            # SIAM J. Control Optim. 20 (1982) 221, doi 10.1137/0320018).
            free = np.flatnonzero(~(rotors & (x <= 0.0) & (gradient > 0.0)))
            step = np.zeros(len(x))
            step[free] = -_solution(hessian[np.ix_(free, free)], gradient[free])
            decrement = float(-gradient @ step)
            if decrement < _CONVERGED:
                break
            size = 1.0
            while size > 1e-10:
                tried = np.where(rotors, np.maximum(x + size * step, 0.0), x + size * step)
                trial = self._objective(tried, prior)
                if trial[0] <= cost - 1e-4 * size * decrement:
                    break
                size *= 0.5
            else:
                break
            x = tried
            cost, gradient, hessian = trial
        if decrement > _ACCEPTED:
            raise ConvergenceError(f'the identification did not converge in {_STEPS} steps')
        # Normalisation of the prior by the same approximation at its mode.
        at, mode = places.links, x.copy()
        mode[at] = prior.mean[at]
        (_, determinant), (_, prior_determinant) = map(
            np.linalg.slogdet, (hessian, prior.cost(mode, places)[2][at, at]))
        # That of the others lets problems with and without a load be compared.
        return x, float(-cost - 0.5 * determinant + 0.5 * prior_determinant
                        - np.log(prior.others[1]).sum())

    def inverse(self, x: Array, prior: Prior) -> tuple[Array, Array]:
        """Return the inverse of the information, and the prior's part of it, (p, p) each."""
        information = prior.cost(x, self._places)[2]
        return scaled_inverse(information + self.information(x)), information

    def information(self, x: Array, excess: Array | float = 1.0) -> Array:
        """Return that of the data for residuals larger than those of the weights, shape (p, p).

        Args:
            x: The estimate.
            excess: Standard deviation of each joint's residuals divided by that of its weights,
                shape (n,).

        """
        return np.asarray(sum(slopes.T @ slopes / factor**2 for factor, (slopes, _) in zip(
            np.broadcast_to(excess, len(self._rows)), self._linearised(x, self._rows),
            strict=True)))

    def _linearised(self, x: Array, equations: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
        """Yield of each joint the slopes by all unknowns, shape (r, p), and residuals, (r,).

        Args:
            x: The unknowns.
            equations: As ``ArmMotion.equations`` returns them, condensed or not.

        """
        places = self._places
        for rows, friction, gain in zip(equations, places.friction,
                                        range(len(x))[places.gains], strict=True):
            used, slopes = np.r_[places.rigid, friction], np.zeros((len(rows), len(x)))
            torque = rows[:, :-1] @ x[used]
            slopes[:, used], slopes[:, gain] = x[gain] * rows[:, :-1], torque
            yield slopes, rows[:, -1] - x[gain] * torque

    def fit(self, x: Array, prior: Prior, evidence: float, robust: Array) -> ArmFit:
        """Return an estimate with its covariance.

        Args:
            x: The unknowns.
            prior: Their prior.
            evidence: Their log-evidence.
            robust: Weights of the blocks by these unknowns, shape (k, n).

        """
        motion, places, noise, used = self._motion, self._places, self._noise, self._weights
        residual, n = motion.residual(x, places), len(noise)
        # Model errors are the same in all repeats, which do not average them.
        mean = (np.sqrt(robust) * residual).reshape(motion.repeats, -1, n).mean(axis=0)
        repeated = (np.sqrt(motion.repeats / np.mean(robust, axis=0))
                    * _correlated_noise(mean, np.ones_like(mean)))
        excess = np.maximum.reduce((
            _correlated_noise(residual, robust) / noise, repeated / noise, np.ones(n)))
        inverse, information = self.inverse(x, prior)
        root = np.sqrt(used.T)
        columns = np.array([slopes for slopes, _ in self._linearised(x, self._every)])
        structure = structured_covariance(
            columns * root[:, :, None], root * residual.T,
            np.tile(noise[:, None], len(residual)), inverse, information, np.zeros(len(x)),
            motion.repeats)
        # The deviations count by their squares, of which one alone is known to √2 of its mean.
        doubt = inverse[:, places.gains] @ (np.sqrt(2.0) * prior.gain_power / x[places.gains])
        driven = inverse[:, places.gains] @ prior.gain_information * (
            DRIVEN_STD * np.hypot(x, np.sqrt(np.diag(structure.matrix)))[places.load_friction])
        matrix = structure.matrix + np.outer(doubt, doubt) + driven @ driven.T
        loaded = bool(prior.exponents.any())
        bent = inverse @ np.einsum('jkp,kj,j->pj', columns, used * motion.bent(
            x, places, loaded=loaded), motion.bend_std / noise**2)
        if loaded:
            matrix = prior.no_better(x, matrix)
        matrix = matrix + bent @ bent.T
        return ArmFit(x, matrix, places, residual, evidence, prior.std, structure.freedom,
                      self.information(x, excess))

    def gain_power(self, x: Array, prior: Prior) -> Array:
        """Return the power of each gain by which its marginal posterior falls below the joint.

        A gain multiplies unknowns that have priors, so that the joint mode favours large gains
        with small deviations. Integrated over the unknowns, the posterior falls with the number
        of those that a joint's efforts determine, as a power of the gain (MacKay, Comparison of
        Approximate Methods for Handling Hyperparameters, Neural Comput. 11 (1999) 1035, doi
        10.1162/089976699300016331), if they deviate as much as their priors state. As that is
        not known, their deviations count by their size. Friction, known by its torque or not at
        all, is free to follow any gain; so are links and rotors whose products with the gains
        were identified before.

        Returns:
            Shape (n,).

        """
        places, known = self._places, bool(prior.exponents.any())
        information = prior.cost(x, places)[2] + self.information(x)
        linear = np.delete(np.arange(len(x)), places.gains)
        inverse = np.zeros_like(information)
        inverse[np.ix_(linear, linear)] = scaled_inverse(information[np.ix_(linear, linear)])
        counted = np.r_[places.others] if known else places.rigid
        told = np.array([max(float(np.sum((slopes.T @ slopes * inverse)[:, counted])), 0.0)
                         for slopes, _ in self._linearised(x, self._rows)])
        deviating = x.copy()
        deviating[places.gains] = prior.mean[places.gains]
        deviating[places.load_friction] = prior.load_friction[0]
        size = 2.0 * replace(
            prior, friction={}, information=prior.information * (not known)).cost(
                deviating, places)[0]
        return size * told / max(told.sum(), 1.0)

    def _objective(self, x: Array, prior: Prior) -> tuple[float, Array, Array]:
        cost, gradient, hessian = prior.cost(x, self._places)
        if not np.isfinite(cost):
            return cost, gradient, hessian
        for slopes, off in self._linearised(x, self._rows):
            cost += 0.5 * float(off @ off)
            gradient -= slopes.T @ off
            hessian += slopes.T @ slopes
        return cost, gradient, hessian


def _solution(hessian: Array, right: Array) -> Array:
    """Solve equations with a Hessian, such as normal equations with a prior.

    Near the boundary of consistent bodies its rounding errors exceed its least eigenvalues.

    Args:
        hessian: Shape (p, p).
        right: Right sides, shape (p,) or (p, m).

    Raises:
        ConvergenceError: If it is far from positive definite.

    """
    scale = 1.0 / np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    for ridge in (1e-12, 1e-9, 1e-6, 1e-3):
        with suppress(np.linalg.LinAlgError):
            factor = scipy.linalg.cho_factor(
                hessian * np.outer(scale, scale) + ridge * np.eye(len(hessian)))
            return np.asarray(scale * scipy.linalg.cho_solve(factor, (scale * right.T).T).T).T
    raise ConvergenceError('the identification left the physically consistent bodies')


def _best_law(
    motion: ArmMotion, prior: Prior, places: Unknowns, x: Array, joint: int, torque: Array,
    noise: float, weights: Array,
) -> Law:
    """Return the friction columns that explain a joint best (Bayesian information criterion).

    The links are free within the prior, so that friction does not absorb their errors.
    """
    gain = float(x[places.gains][joint])
    used = places.rigid
    expected = prior.cost(x, places)[2][np.ix_(used, used)]
    row_weight = np.sqrt(weights) / noise * gain
    rows = row_weight[:, None] * motion.regressor[:, joint, :]
    target = row_weight * motion.effort[:, joint] / gain - rows @ x[used]
    information = expected + rows.T @ rows

    def freed(columns: Array) -> Array:
        # Columns without the part that links within the prior explain.
        return columns - rows @ _solution(information, rows.T @ columns)

    candidates = []
    target_left = freed(target)
    for transition in _TRANSITIONS:
        every = Law(transition, _EXTRAS)
        columns = row_weight[:, None] * _friction_columns(every, motion.velocity, joint, torque)
        left = freed(columns)
        for extras in _CHOICES:
            law = Law(transition, extras)
            at = [every.names.index(name) for name in law.names]
            normal = columns[:, at].T @ left[:, at]
            size = 1.0 / np.sqrt(np.diag(normal) + 1e-300)
            solution = size * np.linalg.lstsq(
                normal * np.outer(size, size), size * (columns[:, at].T @ target_left),
                rcond=1e-12)[0]
            # Both extras at once are nearly collinear with the others: without the signs of
            # friction, they have any size and extrapolate wildly.
            signed = [name not in ('offset', 'load') for name in law.names]
            if extras == _EXTRAS and (solution[signed] < 0.0).any():
                continue
            candidates.append((law, (target_left - left[:, at] @ solution) / np.max(row_weight)))
    least = min(candidates, key=lambda item: rms(item[1]))
    effective = len(left) / autocorrelation_time(least[1])
    return min(candidates, key=lambda item: effective * np.log(np.mean(item[1]**2))
               + np.log(effective) * len(item[0].names))[0]
