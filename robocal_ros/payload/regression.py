# SPDX-License-Identifier: Apache-2.0
"""Linear regression of an exciting motion on joint torques or wrist wrenches.

Nuisance parameters common to all channels are estimated jointly with the payload: deflection of
the joints under torque (not measured by encoders on the motor side), encoder offsets, and delays
of the sensor and of the speeds relative to the positions. Each is small, but correlated with
inertia, so each is estimated with a prior.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import ConvergenceError, DataError, ExcitationError
from robocal_ros.estimation import (
    MAX_NOISE,
    SLOW_RIPPLE,
    Blocks,
    Channels,
    Delay,
    Kinematics,
    LackOfFit,
    LinearFit,
    autocorrelation_time,
    derivatives,
    find_delay,
    lack_of_fit,
    likely_cause,
    low_passed,
    scaled_inverse,
    solve,
    structured_covariance,
    waves,
)
from robocal_ros.messages import (
    JointSamples,
    WrenchSamples,
    check_effort,
    check_joints,
    check_range,
)
from robocal_ros.payload.model import BODY, CHANNELS
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import at_most, rated_efforts
from robocal_ros.results import Check, Fit, rms
from robocal_ros.robot import (
    ArmFriction,
    ArmModel,
    NewtonEuler,
    Robot,
    SteadyFriction,
    arm_regressor,
    bending,
    on_leaning_base,
)

BAND = 5.0
"""Upper end of the excited band, which block averages leave unattenuated [Hz]."""

MIN_MOTION = 0.2
"""Smallest joint travel of an exciting motion [rad]."""

TILT = 'tilt of the base'
"""Start of the names of the base's tilts among nuisance parameters."""

ARM = 'arm'
"""Start of the names of errors of the arm's own dynamics."""

ARM_GAIN = f'{ARM} gain'
"""Start of the names of those along the drive gains."""

UNEVEN = 'uneven viscous friction'
"""Start of the names of differences of viscous friction between the directions."""

RIPPLE = 'ripple'
"""Start of the names of amplitudes of ripple of few periods per turn."""

SPRING = 'spring'
"""Start of the names of torques per joint angle, by hoses and springs between two links."""

LOSSES = ('offset', 'coulomb', 'viscous', 'viscous_asymmetry')
"""Columns of a drive's offset and friction: 1, sgn v, v, |v|."""


SLOWEST = 0.12
"""Lowest speed of the rows that are used [rad/s]. Friction that is left above it,
towards standstill and after reversals, is a nuisance (``friction_terms``)."""

# Prior standard deviation of the attenuation by noise of the accelerations, as a multiple of the
# share of noise in their variance: a regressor of its own is attenuated by that share, one that
# others resemble by more.
_ATTENUATION = 2.0
# Share below which nothing is attenuated that any sensor resolves.
_NO_NOISE = 1e-6

# Speeds within which friction may rise towards standstill [rad/s] (Stribeck effect), and angles
# over which it may build up after a reversal [rad] (presliding); sums of such exponentials come
# near any such law. Prior standard deviation as a multiple of friction_change_std.
_RISES = (0.05, 0.15, 0.45)
_BUILD_UPS = (3e-3, 1e-2, 3e-2)
_DRY = 5.0

# Share of the largest singular value below which shapes of slow ripple are the same.
_SAME_SHAPE = 1e-3
_CALIBRATION, _RATIO = 'calibration', 'gain of force over torque'
# Starts of the names of nuisance parameters that are errors of one kind, and their sizes relative
# to the stated ones that are considered: any is as likely as any other, with the stated mean
# square. All kinds take this many turns.
_KINDS = (RIPPLE, _CALIBRATION, _RATIO, 'cable', 'hysteresis', 'compliance', 'bending', TILT,
          'drift of friction', 'drift of offset', 'build-up of friction', 'rise of friction',
          'sublinear friction', 'load-dependent friction', 'saturation')
_SIZES = np.geomspace(1e-3, 1.0, 12)
_SIZES /= rms(_SIZES)
_TURNS = 4

_LATE = 0.5
CHANGE = 'change of friction'
"""First words of the names of changes of identified friction."""

# Cutoff of the torque in the columns of compliance, as a share of the band. Beyond it, the second
# derivative of that torque is mostly encoder quantisation: noisy columns attenuate the estimated
# compliance, deflection leaks into gains and masses, and noise counts as information. The columns
# of a wrist sensor are not filtered: with encoder steps of 0.02 mrad, the errors of its moments
# of inertia grow by half with the cutoff, and their bias is small without.
SAG_CUTOFF = 0.6
CABLE_LEVER = 0.1
"""Lever by which the force of a cable follows from its torque [m]."""
# Least arm of force that relates errors of torque channels to those of force channels [m].
_LEAST_ARM = 0.01
# Ratio of the ranges of torque and force, by which makers state cross-talk, of wrist sensors: 0.03
# to 0.1 m, of which the largest counts.
_SENSOR_ARM = 0.1
# Change of a wrist sensor's reading over which its hysteresis builds up, as a share of the
# standard deviation. The data hardly tell it: two of them, at 0.3 and 1.2, fit no better.
_SLIP = 0.7
_LEAST_SCATTER = 1e-9
# Rows beside a reversal are excluded if they scatter more than the others by this factor; among
# some fifty rows, chance hardly ever reaches it.
_REVERSAL_RATIO = 1.3
_STEP = 1e-4
# Least share that data must have in parameters to contradict their priors, and the probability at
# which they do (three standard deviations of one).
_TOLD = 0.1
_SIGNIFICANT = 2.7e-3
# Ratio of squared estimates to the most likely prior variances at which widening ends.
_CONVERGED = 1.1
# Last part of an exciting motion that is held out for validation, as a share, and least number of
# its rows.
_HELD_OUT_SHARE = 0.25
_LEAST_HELD_OUT = 50
# Probability of a ratio of residuals beyond chance.
_RARE = 1e-3
_HINT = 'Use a motion that is faster and wider and turns all joints.'


Term = tuple[str, float, Array]
"""Nuisance parameter: its name, its prior standard deviation, and the derivatives of the measured
values, shape (k, channels)."""


def stacked(terms: Iterable[Term], shape: tuple[int, ...]) -> tuple[tuple[str, ...], Array, Array]:
    """Stack the nuisance parameters of a standard deviation above 0.

    Args:
        terms: The parameters.
        shape: Number of channels and of instants.

    Returns:
        Names of the s parameters, their prior standard deviations, shape (s,), and the derivatives
        of the measured values, shape (channels, k, s).

    """
    kept = [term for term in terms if term[1] > 0.0]
    columns = np.empty((*shape, len(kept)))
    for place, (_, _, column) in enumerate(kept):
        columns[:, :, place] = column.T
    return tuple(name for name, _, _ in kept), np.array([std for _, std, _ in kept]), columns


def widened_std(
    names: Sequence[str], std: Array, value: Array, variance: Array,
    contradicted: Collection[str] = (),
) -> Array:
    """Return standard deviations of priors about zero, larger where data contradict them.

    Of parameters that are farther from zero than their priors predict, those get the standard
    deviation that makes their estimates most likely (MacKay, Bayesian Interpolation, Neural
    Comput. 4 (1992) 415, doi 10.1162/neco.1992.4.3.415) which gain most likelihood by it: one
    parameter, or with a common factor those that are known alike, which are the elements of a
    sensor's calibration matrix, and changes of friction. The others may have been moved by these,
    and are judged after the next fit.

    Args:
        names: Names of the parameters, shape (s,).
        std: Standard deviations beforehand, shape (s,).
        value: Estimates, shape (s,).
        variance: Their variances, shape (s,).
        contradicted: Names of those whose priors were found to be too narrow before; a matrix
            among them is widened up to the most likely width.

    """
    # By how much the data, rather than the prior, determine each.
    told = np.clip(1.0 - variance / std**2, 0.0, 1.0)
    alike = [np.flatnonzero([name.startswith(kind) for name in names])
             for kind in (_CALIBRATION, CHANGE)]
    best, wider = 0.0, std
    for group in (*alike, *np.arange(len(std))[:, None]):
        count, size = float(told[group].sum()), float(np.sum((value[group] / std[group])**2))
        known = len(group) > 1 and all(names[i] in contradicted for i in group)
        # Estimates scatter by their data's share of the prior variance (Satterthwaite).
        unit = float(told[group] @ told[group]) / max(count, 1e-12)
        if count < _TOLD or size <= (_CONVERGED * count if known else unit * scipy.special.chdtri(
                count / unit, _SIGNIFICANT)):
            continue
        gain = 0.5 * (size - count - count * np.log(size / count))
        if gain > best:
            best, wider = gain, std.copy()
            wider[group] *= np.sqrt(size / count)
    return wider


def likely_sizes(
    names: Sequence[str], std: Array, value: Array, covariance: Array
) -> Array:
    """Return by how much errors of each kind are larger or smaller than stated, shape (s,).

    Errors of one kind, such as elements of a calibration matrix or the same effect in all joints,
    share a factor of their standard deviations. With it their variances, given the data, have the
    sum that is the mean over ``_SIZES`` by the likelihood of the data (MacKay, as for
    ``widened_std``), given the factors of the other kinds, which take turns. Where the data do not
    tell, it is 1.

    Args:
        names: Names of the parameters, shape (s,).
        std: Their prior standard deviations, shape (s,).
        value: Estimates, shape (s,).
        covariance: Their covariance, shape (s, s).

    """
    known = scaled_inverse(covariance / np.outer(std, std))
    told, drawn, factor = known - np.eye(len(std)), known @ (value / std), np.ones_like(std)
    kinds = [own for kind in _KINDS
             if (own := np.array([name.startswith(kind) for name in names])).any()]
    squares = np.square(_SIZES)[:, None]
    for own in kinds * _TURNS:
        # What the data tell of this kind, whatever the others are within their priors.
        share = np.linalg.solve(told[np.ix_(~own, ~own)] + np.diag(factor[~own]**-2.0),
                                told[np.ix_(~own, own)])
        alone, axes = np.linalg.eigh(told[np.ix_(own, own)] - told[np.ix_(own, ~own)] @ share)
        along, alone = (axes.T @ (drawn[own] - share.T @ drawn[~own]))**2, np.maximum(alone, 0.0)
        left = squares / (1.0 + squares * alone)
        evidence = 0.5 * (left * along - np.log1p(squares * alone)).sum(axis=1)
        left = left.sum(axis=1)
        factor[own] = np.sqrt(np.interp(
            np.average(left, weights=np.exp(evidence - evidence.max())), left, squares[:, 0]))
    return factor


def joint_terms(
    robot: Robot, blocks: Blocks, torque: Array, predicted: Channels, values: PayloadParameters,
    delay: float = 0.0,
) -> Iterator[Term]:
    """Yield joint angles, compliances, delays and a low-pass filter.

    Args:
        robot: The arm.
        blocks: The motion.
        torque: Joint torques at the middles of the blocks with the estimated payload, which
            deflect the joints, shape (k, n) [N·m].
        predicted: Predicted measurements of the channels.
        values: For the prior standard deviations; a parameter with 0 is not estimated.
        delay: Delay that measured values are already corrected for [s].

    """
    slope = _slope(blocks.centre, predicted)
    if values.posture_std > 0.0:
        for name, alone in zip(robot.joint_names, np.eye(robot.n), strict=True):
            yield f'angle of {name}', values.posture_std, slope(alone)
    names = {f'compliance of {name}': joint for joint, name in enumerate(robot.joint_names)}
    yield from _deflection_terms(blocks, torque, predicted, names,
                                 values.sag_std / rated_efforts(robot, torque))
    if values.delay_std > 0.0:
        _, rate, curvature = derivatives(blocks, blocks.centre.values_of(predicted))
        yield 'delay', values.delay_std, -rate
        # A low-pass filter of a time constant T is a delay T, and T² times the second derivative.
        yield 'low-pass', (values.delay_std + abs(delay))**2, curvature
        yield 'delay of speeds', values.delay_std, slope(v=-blocks.centre.acceleration)


def _slope(centre: Kinematics, predicted: Channels) -> Callable[..., Array]:
    """Return the function of the derivatives of predictions along a change of the motion.

    It gets the changes of positions, velocities and accelerations, and the step by which it
    divides a difference.
    """
    usual = centre.values_of(predicted)

    def along(
        q: Array | float = 0.0, v: Array | float = 0.0, a: Array | float = 0.0, step: float = _STEP
    ) -> Array:
        moved = Kinematics(centre.position + step * q, centre.velocity + step * v,
                           centre.acceleration + step * a)
        return (moved.values_of(predicted) - usual) / step

    return along


def _deflection_terms(
    blocks: Blocks, torque: Array, predicted: Channels, names: Mapping[str, int], std: Array
) -> Iterator[Term]:
    """Yield compliances: a link deflects against its encoder by compliance times torque.

    Args:
        blocks: The motion.
        torque: Joint torques, shape (k, n) [N·m].
        predicted: Predicted measurements of the channels.
        names: Joints by the names of their compliances.
        std: Prior standard deviations of the compliances of all joints, shape (n,) [rad/(N·m)].

    """
    if not std.any():
        return
    torque = in_band(blocks, torque)
    slope, carried = _slope(blocks.centre, predicted), derivatives(blocks, torque)
    for name, joint in names.items():
        alone = np.eye(len(std))[joint]
        step = _STEP / max(float(np.abs(torque[:, joint]).max()), 1e-9)
        yield name, float(std[joint]), slope(*(-item * alone for item in carried), step=step)


def bending_terms(
    robot: Robot, blocks: Blocks, frame: str, body: Array, load: Array, values: PayloadParameters
) -> Iterator[Term]:
    """Yield the bending of links across the axes of their joints, as a wrist sensor feels it.

    Args:
        robot: The arm.
        blocks: The motion.
        frame: The sensor's frame.
        body: Inertial parameters of the payload, shape (10,).
        load: Those of all that is distal to the sensor, shape (10,).
        values: For the prior standard deviation.

    """
    flexible, centre = NewtonEuler(bending(robot, frame, body), frame), blocks.centre
    # The links are straight but for their deflection.
    wide = replace(blocks, centre=Kinematics(*(
        np.asarray(np.kron(series, [1.0, 0.0, 0.0]), dtype=float)
        for series in (centre.position, centre.velocity, centre.acceleration))))
    torque = wide.centre.values_of(flexible.torque)
    names = {f'bending at {name}, {axis}': 3 * joint + axis
             for joint, name in enumerate(robot.joint_names) for axis in (1, 2)}
    yield from _deflection_terms(
        wide, torque, partial(_read, flexible, load), names,
        np.repeat(values.sag_std / rated_efforts(robot, torque[:, ::3]), 3))


def noise_terms(joint_names: Sequence[str], blocks: Blocks, predicted: Channels) -> Iterator[Term]:
    """Yield the attenuation of what is in phase with accelerations, by their noise.

    Args:
        joint_names: Names of the joints.
        blocks: The motion.
        predicted: Predicted measurements of the channels.

    """
    slope = _slope(blocks.centre, predicted)
    for name, share, alone in zip(joint_names, blocks.noise, np.eye(len(joint_names)),
                                  strict=True):
        if share >= _NO_NOISE:
            yield (f'noise of accelerations of {name}', _ATTENUATION * float(share),
                   slope(a=blocks.centre.acceleration * alone))


def tilt_terms(blocks: Blocks, tilted: Iterable[Channels], std: float) -> Iterator[Term]:
    """Yield the tilts of the base against gravity.

    Args:
        blocks: The motion.
        tilted: By tilt, the derivative of the channels at joint angles and no motion.
        std: Prior standard deviation [rad].

    """
    q = blocks.centre.position
    still = np.zeros_like(q)
    for number, derivative in enumerate(tilted, 1):
        yield f'{TILT} {number}', std, derivative(q, still, still)


def on_found_base(
    robot: Robot, tilt: Array, values: PayloadParameters
) -> tuple[Robot, PayloadParameters] | None:
    """Return the arm on the base as the data find it, with the prior of what is left of its tilt.

    Columns of tilts are derivatives at the stated gravity. None if the prior holds: then the
    second order of the tilt is below a thousandth of gravity.

    Args:
        robot: The arm.
        tilt: Estimated tilts; empty if they are not estimated [rad].
        values: The node's parameters.

    """
    size = float(np.linalg.norm(tilt))
    if size <= 3.0 * values.tilt_std:
        return None
    return on_leaning_base(robot, tilt), replace(values, tilt_std=size)


def recording_check(blocks: Blocks, joint_names: Sequence[str]) -> Check:
    """Return the check that noise of the accelerations attenuates nothing.

    Args:
        blocks: The motion.
        joint_names: Names of the joints.

    """
    worst = int(np.argmax(blocks.noise))
    share, small = float(blocks.noise[worst]), bool(blocks.noise[worst] <= MAX_NOISE)
    return Check(
        'recording of the motion', True, share, MAX_NOISE, '1', blocks.account + (
            '' if small else
            f' Noise of encoders and stamps makes up {100.0 * share:.2g} % of the accelerations '
            f"of '{joint_names[worst]}' (limit {100.0 * MAX_NOISE:.2g} %) and attenuates what is "
            'estimated: repeat the motion (excitation_repeats), or correct the stamps.'),
        'trustworthy', evaluated=small)


def in_band(blocks: Blocks, torque: Array) -> Array:
    """Return torques at the middles of the blocks up to the end of the band, if a motion repeats.

    Beyond it are jerks of the drives at reversals, which the harmonics of the motion and blocks
    follow in part only. Their derivatives attenuate the estimated compliance, deflection leaks
    into gains, masses and centres, and errors count as information.

    Args:
        blocks: The motion.
        torque: Shape (k, c) [N·m].

    """
    if blocks.repeats == 1:
        return torque
    lines = np.fft.rfft(torque, axis=0)
    lines[np.fft.rfftfreq(len(torque), blocks.period) > BAND] = 0.0
    return np.fft.irfft(lines, len(torque), axis=0)


def without_noise(blocks: Blocks, torque: Array) -> Array:
    """Return torques at the middles of the blocks without noise of their second derivative.

    Args:
        blocks: The motion; its series are free of noise if it repeats.
        torque: Shape (k, c) [N·m].

    """
    return torque if blocks.repeats > 1 else low_passed(torque, blocks.period, SAG_CUTOFF * BAND)


@dataclass(frozen=True)
class Rows:
    """Linear problem of an exciting motion: block averages, and the columns of all unknowns.

    The unknowns are the payload's ten parameters, own columns of each channel (friction or a
    bias), which are zero in all others, and nuisance parameters, which alone have priors.

    Attributes:
        names: Names of the p unknowns.
        std: Prior standard deviations about zero, infinite for unknowns without one, shape (p,).
        columns: Shape (channels, k, p).
        measured: Measured values minus ``known``, shape (channels, k).
        known: Prediction of the arm's model without payload, shape (channels, k).
        valid: Rows that are used, shape (channels, k); friction near standstill is not a
            function of speed.
        near_reversal: Valid rows beside invalid ones, which a reversal may still affect, shape
            (channels, k).
        frame: Frame in which the payload's parameters are expressed.
        channels: Names of the channels.
        units: Their units.
        nuisance_about: Returns the nuisance parameters about an estimate of the payload, shape
            (10,), and of the channels' own columns, shape (channels, m).
        fundamental: Fundamental of the positions over one repeat, shape (n,) [rad].
        recording: Check of the recording.
        delay: Corrected delay of measured values relative to positions.
        readings: Counts of the sensor's readings by name; empty without a sensor.
        repeats: Number of repeats of the motion, each with the same number of rows.
        limits: Largest RMS of each channel that may be unexplained, shape (channels,); None for
            any.
        causes: Returns columns of possible causes of a lack of fit, shape (channels, k, q), by
            name.
        contradicted: Names of unknowns whose prior was widened.
        sized: Whether the priors have the sizes that the data call for.

    """

    names: tuple[str, ...]
    std: Array
    columns: Array
    measured: Array
    known: Array
    valid: Flags
    near_reversal: Flags
    frame: str
    channels: tuple[str, ...]
    units: tuple[str, ...]
    nuisance_about: Callable[[Array, Array], Iterable[Term]]
    fundamental: npt.NDArray[np.complex128]
    recording: Check
    delay: Delay
    readings: Mapping[str, int] = field(default_factory=dict)
    repeats: int = 1
    limits: Array | None = None
    causes: Callable[[], Mapping[str, Array]] = dict
    contradicted: frozenset[str] = frozenset()
    sized: bool = False

    @property
    def width(self) -> int:
        """Number of unknowns without a prior, which come first."""
        return int(np.isinf(self.std).sum())

    def split(self, value: Array) -> tuple[Array, Array]:
        """Return values of the payload, and of the channels' own columns, shape (channels, m)."""
        return value[:10], value[10:self.width].reshape(len(self.channels), -1)

    def with_nuisance(self, body: Array, own: Array) -> Rows:
        """Return the problem with nuisance parameters; arguments as for ``nuisance_about``."""
        names, std, columns = stacked(self.nuisance_about(body, own), self.measured.shape)
        return replace(self, names=(*self.names, *names), std=np.concatenate((self.std, std)),
                       columns=np.concatenate((self.columns, columns), axis=2))

    def residual(self, value: Array, gain: Array) -> Array:
        """Return measured minus fitted, shape (channels, k).

        Args:
            value: Values of all unknowns, shape (p,).
            gain: Factor of all columns except the own ones, shape (channels,).

        """
        values = np.outer(gain, value)
        values[:, 10:self.width] = value[10:self.width]
        fitted = (self.columns @ values[:, :, None])[:, :, 0]
        return np.asarray(self.measured - fitted - (gain[:, None] - 1.0) * self.known)

    def scatter(self, residual: Array) -> Array:
        """Return the standard deviation of each row, infinite for unused ones.

        It is the RMS of the row's channel times the square root of its autocorrelation time, so
        that rows may be treated as independent. Rows near a reversal are used in all channels, or,
        if their scatter is significantly larger in one, in none.

        Args:
            residual: Residuals, shape (channels, k).

        Returns:
            Shape (channels, k).

        """
        used = self.valid & ~self.near_reversal
        size = _rms_by_channel(residual, used)
        if (_rms_by_channel(residual, self.near_reversal) < _REVERSAL_RATIO * size).all():
            used, size = self.valid, _rms_by_channel(residual, self.valid)
        found = np.full(residual.shape, np.inf)
        for channel, counted in enumerate(used):
            time = autocorrelation_time(residual[channel, counted])
            found[channel, counted] = size[channel] * np.sqrt(time)
        return found

    def part(self, rows: slice) -> Rows:
        """Return some of the instants."""
        return replace(self, repeats=1, **{name: getattr(self, name)[:, rows] for name in (
            'columns', 'measured', 'known', 'valid', 'near_reversal')})

    def widened(self, value: Array, covariance: Array) -> Rows:
        """Return the problem with wider priors where data contradict them; see ``widened_std``.

        The first time, all get the sizes that the data call for; see ``likely_sizes``.

        Args:
            value: Estimates, those of nuisance parameters last, shape (q,).
            covariance: Their covariance, shape (q, q).

        """
        width, std = self.width, self.std.copy()
        own = slice(len(value) + width - len(std), None)
        std[width:] = widened_std(self.names[width:], std[width:], value[own],
                                  np.diag(covariance)[own], self.contradicted)
        wider = {name for name, now, before in zip(self.names, std, self.std, strict=True)
                 if now > before}
        if not self.sized:
            std[width:] *= likely_sizes(self.names[width:], self.std[width:], value[own],
                                        covariance[own, own])
        return replace(self, std=std, contradicted=self.contradicted | wider, sized=True)

    def condensed(self, used: Flags) -> Rows:
        """Return an equivalent problem with few rows: the triangular factor of each channel.

        Its normal equations are those of all used rows, which are weighted alike, so iterations
        can reuse it. It has as many rows as are used, up to the number of unknowns, which keeps
        the distinction between too few rows and unobservable directions.

        Args:
            used: Rows that are used, shape (channels, k).

        """
        every = np.concatenate(
            (self.columns, self.measured[:, :, None], self.known[:, :, None]), axis=2)
        few = np.zeros((len(used), every.shape[2], every.shape[2]))
        valid = np.zeros(few.shape[:2], dtype=bool)
        for channel, counted in enumerate(used):
            factor = np.asarray(np.linalg.qr(every[channel, counted], mode='r'))
            few[channel, :len(factor)], valid[channel, :len(factor)] = factor, True
        return replace(self, columns=few[:, :, :-2], measured=few[:, :, -2],
                       known=few[:, :, -1], valid=valid, near_reversal=np.zeros_like(valid))

    def fits(
        self, used: Flags, residual: Array, before: Array, lack: Sequence[LackOfFit] = ()
    ) -> tuple[Fit, ...]:
        """Return the residuals of each channel.

        Args:
            used: Rows that are used, shape (channels, k).
            residual: Residuals of the fit, shape (channels, k).
            before: Measured values before the fit, shape (channels, k).
            lack: Lack of fit of each channel; empty if it is not known.

        """
        known = [() if item.pure_error is None else (item.pure_error, item.unexplained)
                 for item in lack] or [()] * len(self.channels)
        return tuple(
            Fit(name, unit, rms(whole[counted]), rms(left[counted]), int(counted.sum()), *parts)
            for name, unit, whole, left, counted, parts
            in zip(self.channels, self.units, before, residual, used, known, strict=True))


@dataclass(frozen=True)
class RowsFit:
    """Solution of a regression.

    Attributes:
        rows: The problem, with nuisance parameters and the priors in use.
        value: Values of all its unknowns.
        covariance: Covariance of all unknowns, from the scatter and correlation of the
            residuals.
        inverse: Inverse of the information that weighted the rows.
        residual: Measured minus fitted of all rows, shape (channels, k).
        noise: Standard deviation of each row, infinite for unused ones, shape (channels, k).
        gain: Factor of each channel, shape (channels,).
        freedom: Returns the degrees of freedom of the variance along a direction, shape (p,);
            None if it is known.
        common: Residuals of a fit of the same motion with the same weights, shape (channels, k),
            if the covariance is to be that of the difference of both estimates; None otherwise.

    """

    rows: Rows
    value: Array
    covariance: Array
    inverse: Array
    residual: Array
    noise: Array
    gain: Array
    freedom: Callable[[Array], float | None] = lambda _: None
    common: Array | None = None

    @property
    def used(self) -> Flags:
        """Rows that are used, shape (channels, k)."""
        return np.isfinite(self.noise)

    @property
    def tilt(self) -> Array:
        """Tilts of the base; empty if they are not estimated [rad]."""
        return self.value[[name.startswith(TILT) for name in self.rows.names]]

    def inflated(self, regressor: Array, widening: Array | None = None) -> RowsFit:
        """Return the fit with the structure of its residuals in the covariance.

        Args:
            regressor: Of all unknowns, nuisance parameters last, shape (channels, k, q).
            widening: Factors of the residuals, shape (channels,); 1 without.

        """
        prior, guessed = np.zeros((2, regressor.shape[2]))
        own = slice(len(prior) - len(self.rows.names), None)
        prior[own] = self.rows.std**-2.0
        guessed[own] = prior[own] * [name in self.rows.contradicted for name in self.rows.names]
        residual = self.residual
        if self.common is not None:
            residual, prior, guessed = residual - self.common, 2.0 * prior, 2.0 * guessed
        if widening is not None:
            residual = widening[:, None] * residual
        structure = structured_covariance(
            regressor, residual, self.noise, self.inverse, np.diag(prior), guessed,
            self.rows.repeats)
        return replace(self, covariance=structure.matrix, freedom=structure.freedom)

    def lack_of_fit(self) -> tuple[LackOfFit, ...]:
        """Return the lack of fit of each channel."""
        own = self.rows.width / len(self.rows.channels)
        return tuple(lack_of_fit(left, used, self.rows.repeats, own)
                     for left, used in zip(self.residual, self.used, strict=True))

    def unexplained_checks(self) -> Iterator[Check]:
        """Check the lack of fit of each channel with a limit, and name its likely cause."""
        rows, limits = self.rows, self.rows.limits
        if limits is None:
            return
        left = self.residual if self.common is None else self.residual - self.common
        found = replace(self, residual=left).lack_of_fit()
        size = np.array([item.unexplained for item in found])
        worst = int(np.argmax(size / limits))
        used, unit, pure = self.used[worst], rows.units[worst], found[worst].pure_error
        cause = likely_cause(
            left[worst][used], rows.columns[worst][used],
            {name: item[worst][used] for name, item in rows.causes().items()})
        yield at_most(
            'unexplained torque', size[worst], limits[worst], unit,
            f'{size[worst]:.3g} {unit} RMS of the {rows.channels[worst]} are not explained '
            f'(limit {limits[worst]:.3g} {unit}, max_unexplained_torque'
            f'{f"; pure error {pure:.2g} {unit}" if pure is not None else ""}). '
            + (f'{100.0 * cause[1]:.0f} % of their power look like {cause[0]}.' if cause else
               'No single one of the usual causes explains them.'), 'adequate')


class Iteration:
    """Weights, priors and condensed rows of a fit that is repeated.

    Attributes:
        rows: The problem, with the present priors.
        noise: Standard deviation of each row, infinite for unused ones, shape (channels, k).
        few: The problem condensed to few rows.

    """

    def __init__(self, rows: Rows, noise: Array) -> None:
        """Start with given weights, as the attributes."""
        self.rows, self.noise = rows, noise
        self.few = rows.condensed(np.isfinite(noise))

    def update(self, noise: Array, fit: LinearFit | None) -> bool:
        """Set new weights, and wider priors where a fit contradicts them.

        Args:
            noise: As the attribute.
            fit: The fit, nuisance parameters last; None to keep the priors.

        Returns:
            Whether the priors are the same.

        """
        before, used = self.rows.std, np.isfinite(self.noise)
        self.noise = noise
        if fit is not None:
            self.rows = self.rows.widened(fit.value, fit.covariance)
        if (np.isfinite(noise) != used).any():
            self.few = self.rows.condensed(np.isfinite(noise))
        return bool((self.rows.std == before).all())

    def solve(
        self, regressor: Array, measured: Array, names: Sequence[str], max_condition: float
    ) -> LinearFit:
        """Solve the condensed rows with the present weights and priors.

        Args:
            regressor: Shape (channels, k, q), the nuisance parameters in the last columns.
            measured: Shape (channels, k).
            names: Names of the columns.
            max_condition: As for ``solve``, like the errors.

        """
        valid, prior = self.few.valid, self.rows.std[self.rows.width:]
        size, width = len(prior), regressor.shape[2]
        std = np.broadcast_to(self.noise.min(axis=1)[:, None], valid.shape)[valid]
        # Priors are measurements of zero.
        return solve(
            np.vstack((regressor[valid], np.eye(size, width, width - size))),
            np.concatenate((measured[valid], np.zeros(size))),
            np.concatenate((std, prior)), names, max_condition=max_condition, hint=_HINT)

    def fit(self, value: Array, solution: LinearFit, residual: Array, gain: Array) -> RowsFit:
        """Return the fit, given values of all unknowns, and the last solution."""
        count, priors = int(np.isfinite(self.noise).sum()), len(self.rows.std) - self.rows.width
        freedom = max(count - (len(solution.value) - priors), 1)
        return RowsFit(self.rows, value, solution.covariance * (count / freedom),
                       solution.covariance, residual, self.noise, gain)


class Validation(NamedTuple):
    """Validation of a fit.

    Attributes:
        whole: Residuals of each channel in the fit.
        held_out: Those in the last part of the motion; none if a part is too short.
        checks: The checks.
        widening: Factors of the residuals of each channel for what the last part has beyond
            chance, shape (channels,); None for none.

    """

    whole: tuple[Fit, ...]
    held_out: tuple[Fit, ...]
    checks: tuple[Check, ...]
    widening: Array | None = None


def validated(
    fit: RowsFit, again: Callable[[Rows], RowsFit], columns: Callable[[Rows, RowsFit], Array],
    before: Array, max_ratio: float, drift: Array | None = None,
) -> Validation:
    """Validate a fit, also by a prediction of the last part of the motion from the first.

    Friction changes during a motion, and sensors drift: larger residuals in the last part may
    count in the intervals instead of failing.

    Args:
        fit: The fit.
        again: Fits a part.
        columns: Returns the columns of all unknowns of a part, linearised about a fit.
        before: Measured values before the fit, shape (channels, k).
        max_ratio: Largest ratio of residuals, as the parameter ``max_held_out_ratio``.
        drift: Of a sensor, the largest plausible change of each channel's bias since the first
            part, shape (channels,); ratios that none of them leaves beyond ``max_ratio`` are
            returned as factors. None for joint torques, of which all ratios beyond it, or beyond
            chance, are factors.

    """
    rows, whole = fit.rows, fit.rows.fits(fit.used, fit.residual, before, fit.lack_of_fit())
    checks = (rows.recording, *fit.unexplained_checks())
    # A pause at the end says nothing of joints that rest in it.
    reached = np.cumsum(fit.used.sum(axis=0))
    border = int(np.searchsorted(reached, (1.0 - _HELD_OUT_SHARE) * reached[-1], 'right'))
    last, used = rows.part(slice(border, None)), fit.used[:, border:]
    if used.sum() < _LEAST_HELD_OUT:
        return Validation(whole, (), checks)
    # A part that left out other rows beside reversals would be asked to predict what it never saw.
    same = replace(rows, valid=fit.used, near_reversal=np.zeros_like(fit.used))
    try:
        part = again(same.part(slice(0, border)))
    except (DataError, ExcitationError, ConvergenceError):
        return Validation(whole, (), checks)
    off = last.residual(part.value, part.gain)
    held_out = last.fits(used, off, before[:, border:])
    # What a reference run has, too, cancels.
    common = np.zeros_like(fit.residual) if fit.common is None else fit.common
    # By the covariance, the prediction errs too.
    ratios, limits, other = [], [], []
    for every, last_used, after, among, left, most in zip(
            columns(last, part), used, off - common[:, border:], fit.used, fit.residual - common,
            np.zeros(len(used)) if drift is None else drift, strict=True):
        variance = np.sum(every[last_used] @ part.covariance * every[last_used], axis=1)
        expected = rms(np.sqrt(np.maximum(variance, 0.0)))
        scale = max(float(np.hypot(rms(left[among]), expected)), 1e-12)
        ratios.append(rms(after[last_used]) / scale)
        shift = after[last_used].sum() / max(last_used.sum(), 1)
        other.append(rms(after[last_used] - shift) / scale if abs(shift) <= most else np.inf)
        # By chance, of as many independent rows as the correlation of the residuals leaves.
        first, second = np.array([last_used.sum(), among[:border].sum()]) / (
            autocorrelation_time(left[among]))
        chance = np.sqrt(scipy.special.fdtri(max(first, 1.0), max(second, 1.0), 1.0 - _RARE))
        limits.append(min(float(chance), max_ratio) if drift is None else max_ratio)
    beyond = np.divide(ratios, limits)
    worst = int(np.argmax(beyond))
    ratio, limit = ratios[worst], limits[worst]
    counted = ratio > limit and (drift is None or max(other) <= max_ratio)
    cause, such = ('friction may have changed', 'joints') if drift is None else (
        'the sensor may have drifted', 'channels')
    said = (f'{cause}: the intervals count the residuals of such {such} as that large'
            if counted else f'limit {limit:.1f}, max_held_out_ratio')
    return Validation(whole, held_out, (*checks, at_most(
        'held-out part of the motion', 1.0 if counted else ratio, limit, '1',
        f'The last part of the motion is predicted with residuals up to {ratio:.2f} '
        f'times those of the fit and of its uncertainty, in {rows.channels[worst]} ({said}).',
        'adequate')), np.where(beyond > 1.0, ratios, 1.0) if counted else None)


def _rms_by_channel(values: Array, rows: Flags) -> Array:
    return np.array([max(rms(channel[counted]), _LEAST_SCATTER)
                     for channel, counted in zip(values, rows, strict=True)])


def exciting_efforts(
    robot: Robot, samples: JointSamples
) -> tuple[Blocks, Callable[[float], Array], Flags]:
    """Return an exciting motion, the efforts given their delay, and where they are a model's.

    Returns:
        The blocks, a function of the delay [s] with the mean efforts, shape (k, n) [N·m], and the
        blocks in which friction is a function of speed, shape (k, n).

    Raises:
        DataError: If the motion is not exciting, or efforts are missing, constant or saturated.

    """
    check_joints(samples, robot.joint_names)
    check_effort(samples, robot.joint_names)
    check_range(samples, samples.time, samples.effort,
                [f"The effort of joint '{name}'" for name in robot.joint_names], 'N·m')
    blocks = Blocks.of(samples, BAND, MIN_MOTION)

    def effort(delay: float) -> Array:
        return blocks.sample_means(samples.time - delay, samples.effort)

    return blocks, effort, (blocks.slowest >= SLOWEST) & blocks.seen(samples.time)[:, None]


def torque_rows(
    robot: Robot,
    samples: JointSamples,
    values: PayloadParameters,
    friction: Mapping[str, SteadyFriction] | None = None,
    arm: ArmModel | None = None,
    reference: Array | None = None,
) -> Rows:
    """Build the regression of joint torques; friction columns are each joint's own.

    Args:
        robot: The arm without the payload.
        samples: Joint states.
        values: For the priors of the nuisance parameters.
        friction: Identified friction by joint name, subtracted from the effort.
        arm: Uncertainty of the arm's own dynamics, estimated jointly; None for an exact model.
        reference: Parameters of a reference run, shape (10,), whose torques contain the same
            errors of the gains; None without.

    Raises:
        DataError: If the motion is not exciting, or efforts are missing, constant or saturated.

    """
    blocks, effort, fast = exciting_efforts(robot, samples)
    identified = ArmFriction(friction, robot.joint_names)
    dynamics = NewtonEuler(robot, robot.tool_frame)
    own = blocks.means(dynamics.torque)
    columns = np.concatenate((blocks.means(dynamics.torque_regressor),
                              blocks.means(lambda q, v, a: loss_columns(v))), axis=2)

    # The payload is not known yet: the drive torque states what the gears transmit.
    driven = effort(0.0)
    known = blocks.means(lambda q, v, a: identified.torque(v, effort=driven))
    valid, smooth = fast.T, partial(without_noise, blocks)
    rotors = blocks.centre.acceleration
    delay = Delay() if values.delay_std <= 0.0 else find_delay(effort, [
        np.column_stack((columns[:, joint], own[:, joint], rotors[:, joint]))
        for joint in range(robot.n)], known, blocks.period, fast)

    def nuisance_about(body: Array, losses: Array) -> Iterator[Term]:
        carried = partial(dynamics.torque, parameters=body)

        def effort_of(q: Array, v: Array, a: Array) -> Array:
            torque = carried(q, v, a)
            return torque + identified.torque(v, torque) + (loss_columns(v) * losses).sum(axis=-1)

        transmitted = blocks.centre.values_of(carried)
        size = np.median(np.abs(known + (columns[:, :, 10:] * losses).sum(axis=2)), axis=0)
        yield from joint_terms(robot, blocks, smooth(transmitted), effort_of, values, delay.value)
        yield from noise_terms(robot.joint_names, blocks, effort_of)
        yield from tilt_terms(blocks, [partial(tilted.torque, parameters=body)
                                       for tilted in dynamics.tilts()], values.tilt_std)
        yield from friction_terms(robot.joint_names, blocks, size, values, transmitted)
        if values.saturation_std > 0.0:
            usual = smooth(blocks.centre.values_of(effort_of))
            for name, alone in zip(robot.joint_names, np.eye(robot.n), strict=True):
                yield (f'saturation of {name}', values.saturation_std,
                       alone * usual**3 / rated_efforts(robot, usual)**2)
        if arm is not None:
            unknown = blocks.means(lambda q, v, a: arm.uncertain_torques(
                q, v, a, carried(q, v, a) - (
                    0.0 if reference is None else dynamics.torque(q, v, a, reference))))
            gains = arm.factor()[0].shape[1]
            for number, column in enumerate(np.moveaxis(unknown, 2, 0)):
                yield f'{ARM_GAIN if number < gains else ARM} {number}', 1.0, column

    return _rows(
        columns, effort(delay.value) - known - own, own, valid,
        tuple(f'torque of {name}' for name in robot.joint_names), LOSSES, blocks,
        near_reversal=valid & scipy.ndimage.binary_dilation(~valid, [[1, 1, 1]]),
        frame=robot.tool_frame, units=('N·m',) * robot.n, nuisance_about=nuisance_about,
        delay=delay, recording=recording_check(blocks, robot.joint_names),
        limits=values.unexplained_torque(robot.effort_limit),
        causes=lambda: _torque_causes(robot, blocks, own))


def _rows(
    columns: Array, measured: Array, known: Array, valid: Flags, channels: tuple[str, ...],
    own: Sequence[str], blocks: Blocks, **more: Any,
) -> Rows:
    """Return the problem without nuisance parameters.

    Args:
        columns: Of the payload and of each channel's own unknowns, shape (k, channels, 10 + m).
        measured: Shape (k, channels).
        known: Shape (k, channels).
        valid: Shape (channels, k).
        channels: Names of the channels.
        own: Names of the m own unknowns.
        blocks: The motion.
        more: Further attributes of ``Rows``.

    """
    alone = columns[:, :, None, 10:] * np.eye(len(channels))[:, :, None]
    whole = np.concatenate((columns[:, :, :10], alone.reshape(*known.shape, -1)), axis=2)
    names = (*BODY, *(f'{channel}: {name}' for channel in channels for name in own))
    return Rows(
        names, np.full(len(names), np.inf), np.ascontiguousarray(np.moveaxis(whole, 1, 0)),
        measured.T, known.T, valid, channels=channels, fundamental=blocks.fundamental,
        repeats=blocks.repeats, **more)


def _torque_causes(robot: Robot, blocks: Blocks, own: Array) -> Mapping[str, Array]:
    """Return columns of effects missing in the joint torques, shape (n, k, q), by name."""
    q, v, a = (blocks.centre.position, blocks.centre.velocity, blocks.centre.acceleration)
    direction, time = np.sign(v), np.linspace(-0.5, 0.5, len(q))
    slope = derivatives(blocks, own)[1]
    single = {
        "the rotors' inertia (identify the arm)": a,
        'a wrong drive gain (calibrate the gains)': own,
        'friction that grows with the load': direction * np.abs(own),
        'friction that is not linear in speed': direction * np.sqrt(np.abs(v)),
        'friction that changes while the arm moves (let it warm up)': direction * time[:, None],
        'friction that builds up after a reversal': direction * np.exp(
            -_since_reversal(q, direction) / _HYSTERESIS),
        'a delay of the efforts': slope,
    }
    return {**{name: item.T[:, :, None] for name, item in single.items()},
            'links that differ from the URDF (identify the arm)':
                np.moveaxis(arm_regressor(robot, q, v, a), 1, 0)}


# Angle over which friction builds up after a reversal: gears and seals [rad].
_HYSTERESIS = 0.03


def _since_reversal(position: Array, direction: Array) -> Array:
    """Return the angle since each joint's last reversal, shape (k, n) [rad]."""
    turned = np.diff(direction, axis=0, prepend=direction[:1]) != 0.0
    row = np.arange(len(position))[:, None]
    last = np.maximum.accumulate(np.where(turned, row, 0), axis=0)
    return np.abs(position - np.take_along_axis(position, last, axis=0))


def friction_terms(
    joint_names: Sequence[str], blocks: Blocks, size: Array, values: PayloadParameters,
    torque: Array | None = None,
) -> Iterator[Term]:
    """Yield friction besides functions of speed: drift, and what reversals leave.

    After a reversal, friction builds up in phase with the acceleration, and resembles inertia.
    Friction that grows with load or less than with speed, its rise towards standstill, an offset
    that drifts, and ripple of few periods per turn, which resembles weight, are unknowns of their
    own where the torque is given; elsewhere, viscous friction that differs between the directions,
    which resembles centrifugal torque.

    Args:
        joint_names: Names of the joints.
        blocks: The motion.
        size: Friction of each joint, shape (n,) [N·m].
        values: For the prior standard deviations.
        torque: Torques that the joints transmit, shape (k, n) [N·m].

    """
    speed, direction = np.abs(blocks.centre.velocity), np.sign(blocks.centre.velocity)
    change = values.friction_change_std
    turned = _since_reversal(blocks.centre.position, direction)
    drift = size * np.linspace(-0.5, 0.5, len(speed))[:, None]
    shapes = [('drift of friction', change, drift),
              *((f'build-up of friction over {angle} rad', _DRY * change,
                 size * np.exp(-turned / angle)) for angle in _BUILD_UPS)]
    relative = speed / np.maximum(speed.max(axis=0), 1e-9)
    if torque is None:
        shapes.append((UNEVEN, change, direction * size * relative))
    else:
        shapes += [('load-dependent friction', values.load_friction_std, np.abs(torque)),
                   ('drift of offset', change, direction * drift),
                   ('sublinear friction', change, size * np.sqrt(relative)),
                   *((f'rise of friction below {limit} rad/s', _DRY * change,
                      size * np.exp(-speed / limit)) for limit in _RISES)]
    for name, std, shape in shapes:
        for joint, alone in zip(joint_names, np.eye(len(joint_names)), strict=True):
            yield f'{name} of {joint}', std, direction * shape * alone
    if torque is None or change == 0.0:
        return
    for place, joint in enumerate(joint_names):
        # Shapes that differ over the range of angles; the offset contains their mean.
        wave = waves(blocks.centre.position[:, place]) * SLOW_RIPPLE
        columns, sizes, _ = np.linalg.svd(wave - wave.mean(axis=0), full_matrices=False)
        for number in range(int((sizes > _SAME_SHAPE * sizes[0]).sum())):
            yield (f'{RIPPLE} {number} of {joint}', float(size[place] * sizes[number]),
                   np.outer(columns[:, number], np.eye(len(joint_names))[place]))


def wrench_rows(
    robot: Robot, samples: JointSamples, sensor: WrenchSamples, values: PayloadParameters
) -> Rows:
    """Build the regression of a wrist sensor; a bias is each channel's own column.

    The payload's parameters are expressed in the sensor frame.

    Args:
        robot: The arm without the payload.
        samples: Joint states; effort is not used.
        sensor: Readings.
        values: For the priors of the nuisance parameters.

    Raises:
        DataError: If the motion is not exciting, or the readings do not span it.

    """
    check_joints(samples, robot.joint_names)
    blocks = Blocks.of(samples, BAND, MIN_MOTION)
    if not len(sensor) or sensor.time[0] > blocks.edges[0] + _LATE or (
        sensor.time[-1] < blocks.edges[-1] - _LATE
    ):
        raise DataError(
            f"Readings of F/T sensor '{sensor.frame}' do not span the motion; is its topic "
            'published throughout, on the same clock?')
    for number, unit in enumerate(('N', 'N·m')):
        part = slice(3 * number, 3 * number + 3)
        check_range(samples, sensor.time, sensor.wrench[:, part], [
            f"The {channel} of F/T sensor '{sensor.frame}'" for channel in CHANNELS[part]], unit)
    distal = robot.distal_inertia(sensor.frame).to_pinocchio().toDynamicParameters()
    dynamics = NewtonEuler(robot, sensor.frame)

    # The sensor reads the wrench that the distal side exerts on it, the negative of the one
    # that moves the payload.
    payload = -blocks.means(dynamics.wrench_regressor)
    known = payload @ distal
    columns = np.concatenate((payload, np.ones((*known.shape, 1))), axis=2)

    def wrench(delay: float) -> Array:
        return blocks.sample_means(sensor.time - delay, sensor.wrench)

    every = np.tile(blocks.seen(sensor.time), (len(CHANNELS), 1))
    delay = Delay() if values.delay_std <= 0.0 else find_delay(
        wrench, list(np.moveaxis(columns, 1, 0)), known, blocks.period, every.T)

    def nuisance_about(body: Array, bias: Array) -> Iterator[Term]:
        torque = blocks.centre.values_of(partial(dynamics.torque, parameters=body))
        reading = partial(_read, dynamics, body + distal)
        angle, stiffness = blocks.centre.position[:, -1], values.cable_stiffness_std
        yield from joint_terms(robot, blocks, torque, reading, values, delay.value)
        yield from bending_terms(robot, blocks, sensor.frame, body, body + distal, values)
        yield from noise_terms(robot.joint_names, blocks, reading)
        yield from tilt_terms(blocks, [partial(_read, tilted, body + distal)
                                       for tilted in dynamics.tilts()], values.tilt_std)
        # A cable that the last joint winds up; biases that drift as far as residuals may.
        yield from _channel_terms(
            'cable', (stiffness / CABLE_LEVER, stiffness), (angle - angle.mean())[:, None])
        yield from _channel_terms(
            'sensor drift', (values.max_force_residual, values.max_torque_residual),
            np.linspace(-0.5, 0.5, len(known))[:, None])
        read = blocks.means(reading)
        yield from gain_terms(read, values.sensor_gain_std)
        # Hysteresis is stated as a share of the range, and is as large as errors of gains are.
        size = values.sensor_gain_std * rms(np.ptp(read[:, :3], axis=0))
        yield from _channel_terms('hysteresis', (size, size * lever_arm(read)), lagging(read))

    return _rows(
        columns, wrench(delay.value) - known, known, every, CHANNELS, ('bias',), blocks,
        near_reversal=np.zeros_like(every), frame=sensor.frame,
        units=('N',) * 3 + ('N·m',) * 3, nuisance_about=nuisance_about, delay=delay,
        recording=recording_check(blocks, robot.joint_names), readings=sensor.counted())


def _read(dynamics: NewtonEuler, load: Array, q: Array, v: Array, a: Array) -> Array:
    """Return the readings of a wrist sensor, shape (k, 6), given the parameters of its load."""
    return -dynamics.wrench(q, v, a, load)


def lever_arm(wrench: Array) -> float:
    """Return the arm of force that relates errors of torque channels to those of force [m].

    Args:
        wrench: Wrenches of a load, shape (k, 6) [N, N·m].

    """
    force, torque = (rms(part.ravel()) for part in np.split(wrench, 2, axis=1))
    return max(torque / max(force, 1e-9), _LEAST_ARM)


def _channel_terms(name: str, std: tuple[float, float], series: Array) -> Iterator[Term]:
    """Yield one parameter of each channel of a wrist sensor.

    Args:
        name: Name.
        std: Prior standard deviations for forces and for torques.
        series: Course of each channel, or of all, shape (k, 6) or (k, 1).

    """
    for channel, axis, size in zip(CHANNELS, np.eye(6), np.repeat(std, 3), strict=True):
        yield f'{name}, {channel}', float(size), series * axis


def lagging(reading: Array) -> Array:
    """Return how far each channel's hysteresis is built up, from -1 to 1, shape (k, 6).

    It grows with the change of the reading until it slips at a share of its standard deviation: a
    stop, the element of which Prandtl composes hysteresis (Brokate, Sprekels, Hysteresis and Phase
    Transitions, 1996, chapter 2, doi 10.1007/978-1-4612-4048-8).

    Args:
        reading: Predicted readings, shape (k, 6) [N, N·m].

    """
    slip = np.maximum(_SLIP * reading.std(axis=0), _LEAST_SCATTER)
    state = np.zeros_like(reading)
    for row, change in enumerate(np.diff(reading, axis=0) / slip, start=1):
        state[row] = np.clip(state[row - 1] + change, -1.0, 1.0)
    return state


def gain_terms(reading: Array, std: float) -> Iterator[Term]:
    """Yield gain errors of a wrist sensor: of force, of torque, and of the calibration matrix.

    Cross-talk between force and torque is scaled by the arm of the force; that of torque by force
    at least by the arm of sensors, whatever they carry.

    Args:
        reading: Predicted readings without bias, shape (k, 6) [N, N·m].
        std: Prior standard deviation, as a share.

    """
    lever = lever_arm(reading)
    to, of = (np.repeat([1.0, arm], 3) for arm in (max(lever, _SENSOR_ARM), lever))
    # Gains of force and of torque, by their mean and their difference, of which the data tell.
    sides = reading * np.repeat([1.0, -1.0], 3)
    for name, column in (('gain of both', reading), (_RATIO, sides)):
        yield name, np.sqrt(0.5) * std, column
    for row, column in np.ndindex(6, 6):
        alike = row // 3 == column // 3
        yield (f'{_CALIBRATION} of {CHANNELS[row]} by {CHANNELS[column]}', std,
               np.outer(reading[:, column] * (1.0 if alike else to[row] / of[column]),
                        np.eye(6)[row]))


def loss_columns(velocity: Array) -> Array:
    """Return the friction columns ``LOSSES`` at joint velocities [rad/s], shape (…, 4)."""
    return np.stack((np.ones_like(velocity), np.sign(velocity), velocity, np.abs(velocity)),
                    axis=-1)
