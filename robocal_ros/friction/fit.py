# SPDX-License-Identifier: Apache-2.0
"""Friction law of one joint, fitted to torque against speed and tested on left-out speeds.

Both directions are fitted separately, on |v| and |F|, by laws such as Fc + D exp(−(v/vs)²) + B v
or Fc + B v^α, with or without a term μ |τ| of the transmitted load. For given vs and α they are
linear in the rest, so these are searched on a grid and then between its points, with non-negative
least squares inside (variable projection; Golub, Pereyra, Inverse Problems 19 (2003) R1, doi
10.1088/0266-5611/19/2/201). The law is chosen by an information criterion over held-out runs.

In presliding, friction acts as a spring: dz/dt = v − σ0 |v| z / g(v), F = σ0 z + σ1 dz/dt
+ B v, with g(v) the steady level (Canudas de Wit et al., IEEE TAC 40 (1995) 419, doi
10.1109/9.376053). Constant speeds identify g, small slow reversals identify the stiffness σ0 and
damping σ1 of the bristles. The state z is simulated along the measured motion, exactly for a
constant speed within each step. Nonlinear least squares on the torque estimate σ0 and σ1 jointly
with nuisance parameters: a factor of the level in each direction, an offset of gravity, and the
initial z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import exp, log
from typing import NamedTuple

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.estimation import autocorrelation_time, low_passed, runs
from robocal_ros.friction.model import (
    MODELS,
    SHAPES,
    complete,
    evaluate,
    jacobian,
    of_speed,
    parameter_names,
)
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.positions import PositionTorques, Told, unexplained
from robocal_ros.friction.runs import (
    GravityComparison,
    SpeedPoint,
    compare_gravity,
    ripple_of,
    with_delay_correction,
    without_build_up,
    without_ripple,
)
from robocal_ros.messages import JointSamples
from robocal_ros.results import Z95, Check, rms, spread
from robocal_ros.robot import (
    DIRECTIONS,
    LAW_PARAMETERS,
    LOAD_FACTOR_STD,
    Robot,
    SteadyFriction,
    bristle_springs,
)

GRAVITY_ERROR = 0.2
"""Largest gravity-like torque missing from the model, as a share of the joint's friction."""
MIN_POINTS = 3
"""Fewest usable runs in each direction that leave a residual for the simplest laws."""
CERTAIN = 3.29
"""Standard deviations beyond which a value is no chance (99.9 %)."""

_GRID = 48
_MAX_RELATIVE_STD = 0.5
# Fall of the weighted squares that shows a rise towards low speed and its speed (likelihood ratio,
# 95 % of χ² with two degrees of freedom).
_RISE = -2.0 * log(0.05)
# Largest standard deviation of an identified exponent, and the range that is searched.
_MAX_EXPONENT_STD = 0.15
_EXPONENTS = (0.1, 0.95)
# Largest share of the load that a gear loses to friction and can still be driven by it.
_LARGEST_FACTOR = 0.5
# Runs whose speeds differ by less than this share are repetitions.
_SAME = 0.02
_HELD_OUT_EVERY = 4
# Standard deviation of the change of friction while a joint's runs last, as a share.
_DRIFT_STD = 0.1
# Candidate times of all runs over the time constant of the change; 0 for a steady change.
_RATES = (0.0, 1.5, 3.0, 6.0)
# Most steps in which it is found.
_DRIFT_STEPS = 5
# Most rounds in which law, torques of positions, and scatter are found.
_ROUNDS = 3
# Number of rises towards standstill beside which the change is estimated.
_RISES = 3
# Smallest and largest angle between two turning points of a reversal [rad].
_SHORTEST, _FARTHEST = 3e-4, 0.03
_LONGEST = 10.0
_FEWEST_TURNS = 6
_STILL = 5e-4
# Positions are smoothed up to this frequency [Hz].
_BAND = 22.0
# Standard deviation of the delay between efforts and positions [s].
_DELAY_STD = 5e-4
# Presliding angles to start the fit from [rad].
_WAYS = np.geomspace(1e-6, 1e-2, 25)
# Limits for stiffness and damping.
_MAX_BRISTLE_STD = (0.3, 0.5)
_FEWEST_STEPS = 3.0
_MAX_DEGREE = 10.0
_BLOCK = 10
_PLOT_POINTS = 150


class Side(NamedTuple):
    """Runs of one direction, sorted by speed; arrays of shape (k,).

    Attributes:
        speed: |v| [rad/s].
        torque: |F| (negative where noise or a wrong gravity model makes it so) [N·m].
        std: Standard deviation of ``torque`` [N·m].
        load: Mean transmitted torque minus the joint's reference load [N·m].
        age: Time from the run to the last one, as a share of the time of all runs of the joint.

    """

    speed: Array
    torque: Array
    std: Array
    load: Array
    age: Array


class DirectionFit:
    """Fitted law of one direction.

    Attributes:
        model: Name of the model.
        side: The fitted runs.
        value: Parameters in the order of ``parameter_names(model)``, shape (p,).
        covariance: Their covariance, shape (p, p).
        std: Their standard deviations, shape (p,).
        residual: Measured minus fitted |F|, shape (k,) [N·m].
        slopes: Derivatives of |F| by the parameters, shape (k, p).

    """

    def __init__(self, side: Side, model: str) -> None:
        """Fit one direction.

        Args:
            side: Its runs.
            model: One of ``MODELS``.

        Raises:
            DataError: If there are not more points than parameters.

        """
        count = len(parameter_names(model))
        if len(side.speed) <= count:
            raise DataError(
                f"Model '{model}' has {count} parameters in each direction, so it needs more than "
                f'{count} usable runs; got {len(side.speed)}. Add speeds.')
        self.model, self.side = model, side
        self.value = _projected(side, model)
        self.residual = side.torque - self.at(side.speed, side.load)
        self.slopes = jacobian(model, self.value, side.speed, side.load)
        weighted = self.slopes / side.std[:, None]
        information = weighted.T @ weighted
        scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
        self.covariance = np.linalg.pinv(
            information / np.outer(scale, scale)) / np.outer(scale, scale)
        self.std = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def chi_square(self) -> float:
        """Sum of the squared residuals, in standard deviations."""
        return float(((self.residual / self.side.std) ** 2).sum())

    def named(self, numbers: Array) -> dict[str, float]:
        """Return numbers of the parameters, in their order, by name."""
        return dict(zip(parameter_names(self.model), numbers.tolist(), strict=True))

    def changes_by(self, torque: Array) -> Array:
        """Return the changes of the parameters by changes of |F| of the runs.

        Args:
            torque: Changes of all runs, one in each column, shape (k, m) [N·m].

        """
        std = self.side.std[:, None]
        return np.asarray(np.linalg.lstsq(self.slopes / std, torque / std, rcond=1e-9)[0])

    def at(self, speed: Array, load: Array | float) -> Array:
        """Return |F| of the law; arguments as for ``evaluate``."""
        return evaluate(self.model, self.value, speed, load)

    @property
    def open_load_factor(self) -> float:
        """Standard deviation of the load factor that the runs leave open.

        A law without load factor may lack one that the loads of the runs are too alike to show.
        """
        if 'load_factor' in parameter_names(self.model):
            return float(self.std[-1])
        load = self.side.load
        # A rise by the load that the law's residual would show.
        scatter = rms(self.residual) / np.sqrt(max(1.0 - len(self.value) / len(load), 0.1))
        information = float(((load - load.mean())**2).sum()) / max(scatter, 1e-12)**2
        return float((LOAD_FACTOR_STD**-2 + information) ** -0.5)


def _constrained(side: Side, model: str, shape: Array) -> tuple[float, Array]:
    """Fit with Fs ≥ Fc ≥ 0, B ≥ 0 and μ ≥ 0; return the norm of the weighted residual too.

    Args:
        side: The runs.
        model: Name of the model.
        shape: Those of ``SHAPES`` that the model has, shape (s,).

    """
    speed, torque, std, load, _ = side
    names = parameter_names(model)
    nonlinear = dict(zip((name for name in SHAPES if name in names), shape.tolist(), strict=True))
    # The static friction is replaced by the rise above Coulomb friction.
    columns = {
        'coulomb': np.ones_like(speed),
        'static': np.exp(-((speed / nonlinear.get('stribeck_velocity', 1.0)) ** 2)),
        'viscous': speed ** nonlinear.get('exponent', 1.0), 'load_factor': load}
    found, norm = scipy.optimize.nnls(np.column_stack(
        [columns[name] / std for name in names if name in columns]), torque / std)
    for name, value in nonlinear.items():
        found = np.insert(found, names.index(name), value)
    if 'static' in names:
        found[names.index('static')] += found[names.index('coulomb')]
    return float(norm), found


def _projected(side: Side, model: str) -> Array:
    """Fit a law by ``_constrained`` over the ranges of its ``SHAPES``."""
    slow, fast = side.speed.min(), side.speed.max()
    ranges = {
        'stribeck_velocity': (0.3 * slow, 2.0 * fast, np.geomspace(0.5 * slow, fast, _GRID)),
        'exponent': (*_EXPONENTS, np.linspace(*_EXPONENTS, 18))}
    own = [ranges[name] for name in SHAPES if name in parameter_names(model)]
    # Two dimensions are searched on every third point.
    shapes = np.array(list(product(*(grid[::2 * len(own) - 1] for *_, grid in own))))
    fits = [_constrained(side, model, shape) for shape in shapes]
    best = int(np.argmin([norm for norm, _ in fits]))
    norm, value = fits[best]

    def left(shape: Array) -> float:
        return _constrained(side, model, shape)[0] ** 2

    if len(own) == 1:
        low, high, grid = own[0]
        ends = [low, *grid, high]
        shape = np.array([scipy.optimize.minimize_scalar(
            lambda shape: left(np.array([shape])), method='bounded',
            bounds=(ends[best], ends[best + 2]), options={'xatol': 1e-6 * grid[best]}).x])
    elif own:
        shape = scipy.optimize.minimize(
            left, shapes[best], method='L-BFGS-B', bounds=[ends[:2] for ends in own]).x
    else:
        return value
    refined = _constrained(side, model, shape)
    return refined[1] if refined[0] < norm else value


def distinct(speed: Array) -> Array:
    """Return one speed for each group of repeated speeds, which differ by noise, ascending.

    Args:
        speed: |v|, shape (k,) [rad/s].

    """
    ordered = np.sort(speed)
    return ordered[np.diff(ordered, prepend=-np.inf) > _SAME * ordered]


def unidentified(fit: DirectionFit) -> dict[str, str]:
    """Return reasons why parts of a law are not identified, by parameter; empty if all are."""
    value, std, reasons = fit.named(fit.value), fit.named(fit.std), {}
    if 'static' in value and (reason := _stribeck_unidentified(fit)):
        reasons['stribeck_velocity'] = reason
    if 'exponent' in value:
        if value['viscous'] < 2.0 * std['viscous']:
            reasons['exponent'] = 'the viscous part is within two deviations of zero'
        elif std['exponent'] > _MAX_EXPONENT_STD:
            reasons['exponent'] = (
                f"the exponent of the speed has a standard deviation of {std['exponent']:.2f} "
                f'(limit {_MAX_EXPONENT_STD})')
        elif 1.0 - value['exponent'] < 2.0 * std['exponent']:
            reasons['exponent'] = 'the exponent of the speed is within two deviations of 1'
    if 'load_factor' in value and value['load_factor'] <= 2.0 * std['load_factor']:
        reasons['load_factor'] = (
            f"the load factor is within two standard deviations ({std['load_factor']:.3f}) of "
            f'zero; the load varies by ±{float(np.std(fit.side.load)):.2f} N·m between the runs')
    return reasons


def _stribeck_unidentified(fit: DirectionFit) -> str:
    """Return the reason why the Stribeck part is not identified, empty if it is identified."""
    velocity = fit.value[2]
    different = distinct(fit.side.speed)
    # A tenth of the rise is left at 1.5 vs, so faster runs carry no information about it.
    slow, informative = (int((different < factor * velocity).sum()) for factor in (1.0, 1.5))
    if slow < 1 or informative < 2:
        return (f'{slow} of the speeds lie below the Stribeck velocity ({velocity:.4f} rad/s) and '
                f'{informative} below 1.5 times that (at least 1 and 2 needed); add lower speeds')
    # The deviation of the rise alone is large where Coulomb friction is an extrapolation.
    without = DirectionFit(fit.side, fit.model.replace('stribeck_power', 'coulomb_power').replace(
        'stribeck', 'coulomb_viscous'))
    if without.chi_square - fit.chi_square < _RISE:
        return 'a law without a rise of friction towards low speed explains the runs as well'
    if fit.std[2] > _MAX_RELATIVE_STD * velocity:
        return (f'the Stribeck velocity is uncertain by {100 * fit.std[2] / velocity:.0f} % '
                f'(limit {100 * _MAX_RELATIVE_STD:.0f} %)')
    return ''


def information_criterion(
    fits: Mapping[str, DirectionFit], predicted: Mapping[str, Array] | None
) -> float:
    """Return the Bayesian information criterion of all directions together.

    n ln(χ²/n) + p ln n, for noise of unknown scale (Schwarz, Ann. Statist. 6 (1978) 461, doi
    10.1214/aos/1176344136). With ``predicted``, χ² contains the errors of runs predicted from the
    others, and the residuals of outer runs. Their optimism, twice their share of p on average
    (Stone, J. R. Stat. Soc. B 39 (1977) 44), is measured instead: n ln(χ²/n) + p ln n − 2 Σ h,
    with their leverages h.

    Args:
        fits: The fit of each direction.
        predicted: As for ``Choice``; None to count residuals.

    """
    count = sum(len(fit.residual) for fit in fits.values())
    parameters = sum(len(fit.value) for fit in fits.values())
    chi_square = known = 0.0
    for name, fit in fits.items():
        error, std = fit.residual, fit.side.std
        if predicted is not None:
            held_out = np.isfinite(predicted[name])
            error = np.where(held_out, fit.side.torque - predicted[name], error)
            slopes = (fit.slopes / std[:, None])[held_out]
            known += float(np.einsum('ij,jk,ik->', slopes, fit.covariance, slopes))
        chi_square += float(((error / std)**2).sum())
    return count * float(np.log(max(chi_square, 1e-12) / count)) + (
        parameters * float(np.log(count)) - 2.0 * known)


def fit_degree(torque: Array, fitted: Array) -> float:
    """Return 100 · sqrt(Σ (f − f̂)² / Σ f²) [%]; smaller is better."""
    total = float((torque**2).sum())
    return 100.0 * float(np.sqrt(((torque - fitted) ** 2).sum() / total)) if total else np.inf


class Choice:
    """A law, and the evidence for its choice among the models.

    Attributes:
        model: Name of the chosen model.
        fits: Fit of each direction with enough runs.
        criteria: Information criterion of each model, over held-out runs if ``held_out``.
        held_out: Whether the runs sufficed for predicting held-out ones.
        unidentified: Reasons why parameters are not identified, by parameter without direction.
        predicted: Torque of each run predicted from the others by direction, NaN for outer runs,
            shape (k,) [N·m]; None with too few runs.

    """

    def __init__(self, sides: Mapping[str, Side], wanted: str) -> None:
        """Fit the models, and choose the one with the least information criterion.

        Models with a part that is not identified take no part in the choice.

        Args:
            sides: Runs of each direction.
            wanted: Name of the model, or ``auto`` to choose.

        Raises:
            DataError: If there are too few runs for every model.

        """
        fitted, refusal = {}, ''
        # No gear loses so much that a load which hardly varies shows.
        constant = all(_LARGEST_FACTOR * np.std(side.load) < np.median(side.std)
                       for side in sides.values())
        for model in MODELS if wanted == 'auto' else (wanted,):
            if wanted == 'auto' and constant and model != of_speed(model):
                continue
            try:
                fitted[model] = {name: DirectionFit(side, model) for name, side in sides.items()}
            except DataError as error:
                refusal = str(error)
        if not fitted:
            raise DataError(refusal)
        reasons = {model: _reasons(fits) for model, fits in fitted.items()}
        candidates = [model for model in fitted if not reasons[model]] or list(fitted)
        predicted = {model: _held_out(sides, model) for model in candidates}
        self.held_out = all(found is not None for found in predicted.values())
        self.criteria = {
            model: information_criterion(
                fitted[model], predicted[model] if self.held_out else None)
            for model in candidates}
        best = min(self.criteria, key=self.criteria.__getitem__)
        self.model, self.fits, self.predicted = best, fitted[best], predicted[best]
        self.unidentified = dict(reasons[best])
        # Parameters that only other models have: why those models were not chosen.
        for parameter, model in (('stribeck_velocity', 'stribeck'), ('exponent', 'coulomb_power'),
                                 ('load_factor', f'{of_speed(best)}_load')):
            if parameter not in parameter_names(best):
                self.unidentified[parameter] = 'not requested' if wanted != 'auto' else (
                    reasons.get(model, {}).get(parameter)
                    or ('the load hardly varies between the runs'
                        if constant and parameter == 'load_factor' else '')
                    or ('' if model in fitted else refusal)
                    or 'a model without it has the lower information criterion')

    def evidence(self) -> str:
        """Return the evidence for the choice, in a sentence."""
        others = sorted((value, name) for name, value in self.criteria.items()
                        if name != self.model)
        if not others:
            return f'law {self.model}, the only one'
        return (f'law {self.model}, information criterion '
                f'{"over held-out runs " if self.held_out else ""}'
                f'{self.criteria[self.model]:.1f}, next {others[0][1]} {others[0][0]:.1f}')


class JointFit:
    """Friction of one joint, with the evidence for and against it.

    Attributes:
        joint: Name of the joint.
        checks: Check of its data and its fit, and of the model's gravity if there are pairs of
            runs.
        choice: Fitted law; None if nothing could be fitted.
        missing: Reason why a direction is not identified; empty if both are.
        reference_load: Mean transmitted torque [N·m].
        fit_degree: 100 · sqrt(Σ(f − f̂)²/Σf²) over the points [%].
        held_out_degree: The same for left-out speeds; None with too few speeds.
        std: Standard deviation of the points about the law, for its degrees of freedom, with
            torques that pairs of runs share [N·m].
        presliding: Bristle parameters; None if not requested or without reversals.
        drift: Share by which friction was larger in the first run than in the last one.
        span: Stamps of the first and the last sample of its data, infinite for all of
            a recording; None without data [s].
        effects: Changes of the parameters of each direction by one standard deviation of what its
            points have in common, shape (p, m).
        shared: The same by what all joints have in common, shape (p, s).

    """

    joint: str
    checks: list[Check]
    reference_load: float
    std: float
    effects: dict[str, Array]
    shared: dict[str, Array]
    choice: Choice | None = None
    missing = ''
    fit_degree = np.inf
    held_out_degree: float | None = None
    presliding: Presliding | None = None
    drift = 0.0
    span: tuple[float, float] | None = (-np.inf, np.inf)

    def _scattered(self, choice: Choice, common: float = 0.0) -> None:
        """Take a law, and the standard deviation about it with that of shared torques [N·m]."""
        self.choice = choice
        left = np.concatenate([fit.residual for fit in choice.fits.values()])
        freedom = len(left) - sum(len(fit.value) for fit in choice.fits.values())
        self.std = float(np.hypot(rms(left) * np.sqrt(len(left) / freedom), common))

    @property
    def passed(self) -> bool:
        """True if the joint is accepted."""
        return not self.objections

    @property
    def objections(self) -> tuple[str, ...]:
        """All reasons why the joint is not accepted, as sentences."""
        return tuple(check.reason for check in self.checks if not check.passed)

    @property
    def stribeck_unidentified(self) -> str:
        """Reason why the Stribeck part is not identified; empty if it is."""
        return '' if self.choice is None else self.choice.unidentified.get('stribeck_velocity', '')

    @property
    def speeds(self) -> list[float]:
        """Range of speeds that all fitted directions have in common [rad/s]."""
        sides = [fit.side.speed for fit in self.choice.fits.values()] if self.choice else []
        return [max(float(speed.min()) for speed in sides),
                min(float(speed.max()) for speed in sides)]

    def torques(self) -> tuple[Array, Array, Array, Array]:
        """Return the points of the fitted directions, ascending, shape (k,) each.

        Returns:
            Signed speeds [rad/s], friction, that of the law, and standard deviations [N·m].

        """
        fits = self.choice.fits if self.choice else {}
        points = np.hstack([np.zeros((4, 0)), *(
            np.array([[1.0 - 2.0 * (name == DIRECTIONS[1])]] * 3 + [[1.0]]) * (
                fit.side.speed, fit.side.torque, fit.side.torque - fit.residual, fit.side.std)
            for name, fit in fits.items())])
        speed, torque, fitted, std = points[:, np.argsort(points[0])]
        return speed, torque, fitted, std

    def law(self) -> SteadyFriction:
        """Return the fitted law of both directions.

        Raises:
            DataError: If one of them was not fitted.

        """
        if self.choice is None or len(self.choice.fits) < len(DIRECTIONS):
            raise DataError(f"Friction of joint '{self.joint}' was not fitted: "
                            f'{" ".join((*self.objections, self.missing)).strip()}')
        fits = [self.choice.fits[name] for name in DIRECTIONS]
        sides = np.array([complete(fit.model, fit.value) for fit in fits])
        return SteadyFriction(
            **dict(zip(LAW_PARAMETERS, sides.T, strict=True)),
            std=self.std, reference_load=self.reference_load, holds_zero=True)


class FrictionFit(JointFit):
    """Friction of one joint from runs at constant speeds.

    ``effects`` are by drift, gravity and the delay of the efforts, ``shared`` by the tilts of the
    base.

    Attributes:
        points: All its runs as they were read.
        rejected: Those that are rejected.
        usable: The other ones, sorted by speed, with torque ripple removed, delay and gravity
            corrected, and friction as at the time of the last one.
        common: Standard deviation of torques that both runs of a pair share beside gravity and
            slow ripple [N·m].

    """

    common = 0.0

    def __init__(
        self, joint: str, points: Sequence[SpeedPoint], values: FrictionParameters
    ) -> None:
        """Fit one joint and test the fit.

        A direction with too few usable runs is left out if the other one has enough.

        Args:
            joint: Name of the joint.
            points: Its runs.
            values: The node's parameters.

        """
        self.joint, self.points = joint, points
        self.span = (points[0].begin, points[-1].end) if points else None
        self.rejected = rejected = [p for p in points if p.rejected]
        used: Sequence[SpeedPoint] = without_build_up([p for p in points if not p.rejected])
        used = with_delay_correction(without_ripple(used, ripple_of(used)))
        gravity = compare_gravity(used)
        self.usable = _with_ages(used)
        self.reference_load = float(np.mean([p.load for p in used])) if used else 0.0
        sides = _sides(self.usable, self.reference_load)
        few = [f'{len(side.speed)} usable runs {direction} (at least {MIN_POINTS} needed)'
               for direction, side in sides.items() if len(side.speed) < MIN_POINTS]
        rejections = '' if not rejected else (
            f' {len(rejected)} of {len(points)} runs were rejected, first at '
            f'{rejected[0].speed:+.4g} rad/s: {rejected[0].rejected}.')
        if len(few) == len(DIRECTIONS):
            self.checks = [Check(f'{joint}: fit', False, 100.0, values.fit_threshold, '%',
                                 f"Joint '{joint}': {' and '.join(few)}.{rejections}")]
            return
        self.missing = f'{few[0]}.{rejections}' if few else ''
        choice = self._fitted({name: side for name, side in sides.items()
                               if len(side.speed) >= MIN_POINTS}, values, gravity)
        self._scattered(choice, self.common)
        _, torque, fitted, _ = self.torques()
        self.fit_degree = fit_degree(torque, fitted)
        self.checks = [self._check(choice, values.fit_threshold, rejections)]
        if gravity is not None:
            self.checks.append(_gravity_check(joint, gravity, rms(fitted), values))

    def _fitted(
        self, sides: Mapping[str, Side], values: FrictionParameters,
        gravity: GravityComparison | None,
    ) -> Choice:
        """Choose a law, with the drift of friction and the scatter between runs."""
        choice = Choice(sides, values.steady_model)
        course, drift_std = find_drift(list(choice.fits.values()))
        if abs(course.drift) > drift_std:
            self.drift = course.drift
            self.usable = [p.changed(
                torque=p.torque / float(1.0 + course.drift * course.share(p.age)))
                for p in self.usable]
            sides = {name: side for name, side in _sides(
                self.usable, self.reference_load).items() if name in sides}
            choice = Choice(sides, values.steady_model)
        else:
            drift_std = float(np.hypot(course.drift, drift_std))
        choice, told = self._beside_torques(sides, choice, values, gravity)
        if choice.predicted is not None:
            # Of all parts the first, every fourth speed, which has runs of every direction.
            part = slice(2, -1, _HELD_OUT_EVERY)
            self.held_out_degree = fit_degree(
                np.concatenate([fit.side.torque[part] for fit in choice.fits.values()]),
                np.concatenate([choice.predicted[name][part] for name in choice.fits]))
        self.effects, self.shared = {}, {}
        for name, fit in choice.fits.items():
            law = fit.at(fit.side.speed, fit.side.load)
            built = np.array([p.built for p in _by_speed(self.usable, name)])
            self.effects[name] = fit.changes_by(np.column_stack((
                drift_std * law * course.share(fit.side.age), course.doubt * law,
                law[:, None] * built, told.left[name])))
            self.shared[name] = fit.changes_by(told.by_tilt[name])
        return choice

    def _beside_torques(
        self, sides: Mapping[str, Side], choice: Choice, values: FrictionParameters,
        gravity: GravityComparison | None,
    ) -> tuple[Choice, Told]:
        """Choose a law beside the scatter between runs, and beside torques of their positions."""
        used = {name: _by_speed(self.usable, name) for name in sides}
        torques = PositionTorques(used, gravity, values.tilt_std, max(
            float(np.hypot(fit.named(fit.value).get('load_factor', 0.0), fit.open_load_factor))
            for fit in choice.fits.values()))
        # The scatter is first that about the fullest law: the misfit of a lesser one is none.
        by_load = any(model != of_speed(model) for model in choice.criteria)
        law, fits, full = choice.model, choice.fits, 'stribeck_power' + by_load * '_load'
        if values.steady_model == 'auto' and all(
                len(side.speed) > len(parameter_names(full)) for side in sides.values()):
            law, fits = full, {name: DirectionFit(side, full) for name, side in sides.items()}
        for _ in range(_ROUNDS):
            told = torques.told(
                {name: side.torque - fits[name].at(side.speed, side.load)
                 for name, side in sides.items()},
                {name: fit.slopes for name, fit in fits.items()},
                {name: side.std for name, side in sides.items()})
            choice = Choice({name: side._replace(
                torque=side.torque - told.torque[name], std=np.hypot(side.std, told.extra))
                for name, side in sides.items()}, values.steady_model)
            if choice.model == law:
                break
            law, fits = choice.model, choice.fits
        by_run = {id(p): np.sign(p.speed) * torque for name, points in used.items()
                  for p, torque in zip(points, told.torque[name], strict=True)}
        self.usable = [p.changed(torque=p.torque - float(by_run.get(id(p), 0.0)))
                       for p in self.usable]
        self.common = told.common
        return choice, told

    def _check(self, choice: Choice, limit: float, rejections: str) -> Check:
        """Check the fit; ``rejections`` is a sentence on rejected runs, after a space."""
        joint, degree, held_out, failures = self.joint, self.fit_degree, self.held_out_degree, ''
        if degree > limit:
            failures = (f" Joint '{joint}': fit degree {degree:.1f} % (limit {limit:.1f} %)."
                        f'{rejections}')
        if held_out is not None and held_out > limit:
            failures += (f" Joint '{joint}': speeds left out of the fit are predicted with a fit "
                         f'degree of {held_out:.1f} % (limit {limit:.1f} %).')
        named = '; '.join(f'{p.speed:+.4g} rad/s, {p.rejected}' for p in self.rejected[:3])
        left_out = 'not evaluated' if held_out is None else f'{held_out:.2f} %'
        evidence = (
            f"Joint '{joint}': {choice.evidence()}, fit degree {degree:.2f} %, on left-out speeds "
            f'{left_out} (limit {limit:.1f} %), {len(self.usable)} runs used, '
            f'{len(self.rejected)} rejected{named and f": {named}"}.'
            + (f' Friction {"fell" if self.drift > 0.0 else "rose"} by '
               f'{100.0 * abs(self.drift):.1f} % during the runs; the law holds for their end.'
               if self.drift else '')
            + (f' {self.missing}' if self.missing else ''))
        return Check(f'{joint}: fit', not failures, degree if np.isfinite(degree) else 100.0,
                     limit, '%', failures.strip() or evidence)

    @property
    def wrong_gravity(self) -> bool:
        """True if the model's gravity is wrong."""
        return not all(check.passed for check in self.checks[1:])


def _gravity_check(
    joint: str, gravity: GravityComparison, friction: float, values: FrictionParameters
) -> Check:
    """Check the model's gravity; what is stated of its errors is no sign of a wrong model.

    The intervals contain such errors, and those that the runs make likely.
    """
    limit = max(GRAVITY_ERROR * friction, CERTAIN * float(
        np.hypot(values.tilt_std * gravity.tilted, gravity.stated)))
    wrong = gravity.significant and gravity.error > limit
    return Check(
        f'{joint}: gravity', not wrong, gravity.error, limit, 'N·m',
        f"Joint '{joint}': the runs forward and back show {gravity.error:.2f} N·m of gravity "
        'that the model lacks: its payload, link masses, drive gains or gravity direction are '
        'wrong. Identify the payload first or remove the tool; calibrate the drive gains, correct '
        'gravity, or identify the arm.' if wrong else
        f"Joint '{joint}': gravity by the model and by averaging forward and backward runs differ "
        f'by {gravity.error:.3f} ± {Z95 * gravity.std:.3f} N·m over {gravity.pairs} pairs.')


def _with_ages(points: Sequence[SpeedPoint]) -> list[SpeedPoint]:
    """Return the runs sorted by speed, with the time from each to the last one as in ``Side``."""
    middles = [0.5 * (p.begin + p.end) for p in points]
    span = max(float(np.ptp(middles)), 1e-9) if middles else 1.0
    return sorted((p.changed(age=(max(middles) - middle) / span) for p, middle in zip(
        points, middles, strict=True)), key=lambda p: p.speed)


def _by_speed(points: Sequence[SpeedPoint], direction: str) -> list[SpeedPoint]:
    """Return the runs of a direction, sorted by the size of their speed."""
    return sorted((p for p in points if p.direction == direction), key=lambda p: abs(p.speed))


def _sides(points: Sequence[SpeedPoint], reference: float) -> dict[str, Side]:
    """Return the usable runs of each direction, sorted by speed."""
    return {direction: Side(*np.array([
        (abs(p.speed), np.sign(p.speed) * p.torque, p.std, p.load - reference, p.age)
        for p in _by_speed(points, direction)]).reshape(-1, len(Side._fields)).T)
        for direction in DIRECTIONS}


class Course(NamedTuple):
    """Course of friction that changes from run to run: F(v) (1 + drift share(age)).

    Attributes:
        drift: Share by which friction was larger in the first run than in the last one.
        rate: Time of all runs over the time constant of the change; 0 for a steady change.
        doubt: Relative standard deviation of friction in the last run because the rate is not
            known exactly.

    """

    drift: float
    rate: float = 0.0
    doubt: float = 0.0

    def share(self, age: Array | float) -> Array:
        """Return the part of the change that is still to come, 1 in the first run, 0 in the last.

        Args:
            age: Time to the last run, as a share of that of the first run, any shape.

        """
        return np.asarray(np.expm1(self.rate * age) / np.expm1(self.rate) if self.rate else age)


def find_drift(fits: Sequence[DirectionFit]) -> tuple[Course, float]:
    """Return the course of a drift, and the standard deviation of its size.

    Warming up, gears lose up to a third of their friction within an hour, and approach their warm
    state exponentially. The drift has a prior, and is found beside the parameters of the law, at
    several rates, of which the most likely one counts. Runs in the order of their speeds hardly
    distinguish a drift from the law.

    Args:
        fits: The fit of each direction without drift.

    """
    courses, stds, left, units = zip(*(
        _at_rate(fits, Course(0.0, rate)) for rate in _RATES), strict=True)
    best = int(np.argmin(left))
    weights = np.exp(-0.5 * (np.array(left) - left[best]) / units[best])
    age = np.concatenate([fit.side.age for fit in fits])
    ends = np.array([1.0 / (1.0 + item.drift * np.mean(item.share(age))) for item in courses])
    doubt = np.sqrt(np.average((ends / ends[best] - 1.0) ** 2, weights=weights))
    return courses[best]._replace(doubt=float(doubt)), stds[best]


def _at_rate(fits: Sequence[DirectionFit], course: Course) -> tuple[Course, float, float, float]:
    """Return the course with its size, the size's standard deviation, and what it leaves.

    That is the sum of squared residuals, in standard deviations, and its unit: the variance of
    the runs, which may scatter by more than the noise within them.
    """
    drift, std, sides = course.drift, _DRIFT_STD, [fit.side for fit in fits]
    for _ in range(_DRIFT_STEPS):
        column, residual = (np.concatenate(parts) for parts in zip(*(
            _beside_the_law(side, fit, course) for side, fit in zip(sides, fits, strict=True)),
            strict=True))
        size, shared = float(column @ column), float(column @ residual)
        free = residual - column * shared / max(size, 1e-12)
        left = float(free @ free)
        freedom = len(column) - 1
        variance = np.inf if freedom < 1 else (max(left / freedom, 1.0) * _student(freedom)**2)
        std = (size / variance + _DRIFT_STD**-2.0)**-0.5
        change = std**2 * (shared / variance - drift / _DRIFT_STD**2)
        drift = float(np.clip(drift + change, -0.5, 1.0))
        course = course._replace(drift=drift)
        if abs(change) < 0.1 * std:
            break
        fits = [DirectionFit(side._replace(
            torque=side.torque / (1.0 + drift * course.share(side.age))), fit.model)
            for side, fit in zip(sides, fits, strict=True)]
    return course, std, left, variance


def _beside_the_law(side: Side, fit: DirectionFit, course: Course) -> tuple[Array, Array]:
    """Return drift and residual in coordinates, weighted, that no law of the speed can follow.

    A law without Stribeck part does not show that there is none: what looks like drift may be the
    rise towards standstill, if the speeds grew from run to run.
    """
    law = fit.at(side.speed, side.load)
    share = course.share(side.age)
    growth = 1.0 + course.drift * share
    slopes = fit.slopes
    if 'static' not in parameter_names(fit.model):
        bends = np.geomspace(side.speed.min(), side.speed.max(), _RISES + 2)[1:-1]
        slopes = np.column_stack((slopes, np.exp(-(side.speed[:, None] / bends) ** 2)))
    free = unexplained(slopes * growth[:, None], side.std) / side.std
    return free @ (law * share), free @ (side.torque - growth * law)


def _reasons(fits: Mapping[str, DirectionFit]) -> dict[str, str]:
    """Return the reasons why parameters of a model are not identified, of all directions."""
    found: dict[str, list[str]] = {}
    for direction, fit in fits.items():
        for name, reason in unidentified(fit).items():
            found.setdefault(name, []).append(f'{direction}: {reason}')
    return {name: '; '.join(reasons) for name, reasons in found.items()}


def _student(freedom: int) -> float:
    """Return by how much a 95 % interval widens if its scatter is known by few values."""
    return float(scipy.stats.t.ppf(0.975, freedom)) / Z95


def _held_out(sides: Mapping[str, Side], model: str) -> dict[str, Array] | None:
    """Predict interior runs from the others, every fourth at a time; returns as ``Choice``.

    Nothing is extrapolated: the slowest two runs and the fastest are not held out.

    Args:
        sides: Runs of each direction.
        model: The model.

    """
    predicted = {}
    for name, side in sides.items():
        count = len(side.speed)
        if count < 4:
            return None
        predicted[name] = np.full(count, np.nan)
        for part in range(min(_HELD_OUT_EVERY, count - 3)):
            out = np.isin(np.arange(count), np.arange(2 + part, count - 1, _HELD_OUT_EVERY))
            try:
                fit = DirectionFit(Side(*(column[~out] for column in side)), model)
            except DataError:
                return None
            predicted[name][out] = fit.at(side.speed[out], side.load[out])
    return predicted


class Presliding:
    """Bristle parameters of one joint, estimated from its reversals.

    Attributes:
        value: Stiffness σ0 [N·m/rad] and damping σ1 [N·m·s/rad], shape (2,).
        covariance: Covariance of both, shape (2, 2).
        unidentified: Reason why each of them is not identified; empty if it is.
        angle: Joint angles, thinned, shape (k,) [rad].
        torque: Friction torque measured there, shape (k,) [N·m].
        fitted: Friction torque of the model there, shape (k,) [N·m].

    """

    def __init__(self, robot: Robot, part: JointSamples, joint: int, law: SteadyFriction) -> None:
        """Estimate; arguments as for ``estimate_presliding``, ``part`` with reversals alone."""
        data = _Reversals(robot, part, joint, law, _BAND)
        value, covariance = data.fitted()
        self.value = np.exp(value[:2])
        stiffness = float(self.value[0])
        # The change with half the band bounds the effect of smoothing.
        coarse, _ = _Reversals(robot, part, joint, law, 0.5 * _BAND).fitted()
        change = value[:2] - coarse[:2]
        relative = covariance[:2, :2] + np.outer(change, change)
        # Presliding spans few encoder steps; smoothing spreads their error over whole reversals,
        # so that it does not average out.
        steps = np.abs(np.diff(part.position[:, joint]))
        step = float(steps[steps > 0.0].min())
        relative[0, 0] += (step * stiffness / data.size) ** 2 / 12.0
        self.covariance = relative * np.outer(self.value, self.value)
        # A delay δ of the torque is equivalent to a damping of σ0 δ.
        self.covariance[1, 1] += (stiffness * _DELAY_STD) ** 2
        torque, fitted = data.torque - value[4], data.predicted(value) - value[4]
        degree = 100.0 * rms(_block_means(torque - fitted)) / max(rms(_block_means(torque)), 1e-12)
        self.unidentified = _bristles_unidentified(
            self.value, self.covariance, degree, data.size / stiffness, step)
        pick = spread(len(torque), _PLOT_POINTS)
        self.angle, self.torque, self.fitted = data.angle[pick], torque[pick], fitted[pick]


def find_reversals(samples: JointSamples, joint: int) -> tuple[int, int] | None:
    """Return the longest stretch of repeated small reversals of one joint.

    Args:
        samples: Joint states.
        joint: Column of the joint.

    Returns:
        First row and one past the last; None if there are no reversals.

    """
    # Turning points at least _SHORTEST apart.
    turns = sorted(row for sign in (1.0, -1.0) for row in scipy.signal.find_peaks(
        sign * samples.position[:, joint], prominence=_SHORTEST)[0].tolist())
    others = np.delete(samples.position, joint, axis=1)
    alone = np.array([(np.ptp(others[before:after + 1], axis=0) < _STILL).all()
                      for before, after in pairwise(turns)], dtype=bool)
    small = ((np.abs(np.diff(samples.position[turns, joint])) <= _FARTHEST)
             & (np.diff(samples.time[turns]) <= _LONGEST))
    first, last = max(runs(small & alone), key=lambda run: run[1] - run[0], default=(0, 0))
    return (turns[first], turns[last] + 1) if last - first >= _FEWEST_TURNS else None


class _Reversals:
    """Reversals of a joint, evenly sampled and smoothed; arrays of shape (k,).

    Attributes:
        angle: Joint angles [rad].
        speed: Joint speeds [rad/s].
        torque: Drive torque minus rigid-body torque [N·m].
        side: 0 for forward and 1 for backward motion.
        level: Steady level g of the law, |F| without its viscous part [N·m].
        viscous: Viscous part [N·m].
        size: Typical level, a number [N·m].

    """

    def __init__(
        self, robot: Robot, samples: JointSamples, joint: int, law: SteadyFriction, band: float
    ) -> None:
        """Low-pass the positions at a frequency [Hz] without phase error, and read the torque."""
        step = float(np.median(np.diff(samples.time)))
        time = np.arange(samples.time[0], samples.time[-1], step)
        position, effort = (np.column_stack([np.interp(time, samples.time, c) for c in columns.T])
                            for columns in (samples.position, samples.effort))
        if band * step < 0.4:
            position = low_passed(position, step, band)
        velocity = np.gradient(position, step, axis=0)
        acceleration = np.gradient(velocity, step, axis=0)
        rigid = np.array([robot.inverse_dynamics(q, v, a)[joint] for q, v, a
                          in zip(position, velocity, acceleration, strict=True)])
        self.angle, self.speed = position[:, joint], velocity[:, joint]
        self.torque = effort[:, joint] - rigid
        self.side = (self.speed < 0.0).astype(np.intp)
        self.level = law.level(self.speed, rigid)
        self.viscous = law.torque(self.speed, rigid) - self.level * np.sign(self.speed)
        self.size = float(np.mean(self.level))

    def predicted(self, x: Array) -> Array:
        """Return the torque for (ln σ0, ln σ1, two level factors, offset, initial z)."""
        level = self.level * x[2:4][self.side]
        springs = bristle_springs(self.angle, level, exp(x[0]), x[5] * self.size)
        rate = self.speed - np.abs(self.speed) * springs / level
        return np.asarray(x[4] + self.viscous + springs + exp(x[1]) * rate)

    def fitted(self) -> tuple[Array, Array]:
        """Return those six numbers and their covariance, shapes (6,) and (6, 6)."""
        def residual(x: Array) -> Array:
            return self.predicted(x) - self.torque

        # Logarithms keep stiffness and damping positive over many orders of magnitude.
        starts = [np.array([np.log(self.size / way), np.log(1e-3 * self.size / way), 1.0, 1.0,
                            0.0, 0.0]) for way in _WAYS]
        start = min(starts, key=lambda x: float((residual(x) ** 2).sum()))
        solution = scipy.optimize.least_squares(
            residual, start, x_scale=[0.3, 0.5, 0.05, 0.05, 0.1 * self.size, 0.5],
            bounds=([-5.0, -15.0, 0.3, 0.3, -np.inf, -3.0], [25.0, 20.0, 3.0, 3.0, np.inf, 3.0]))
        left, slopes = solution.fun, np.asarray(solution.jac)
        scatter = float((left**2).sum()) / max(len(left) - len(start), 1)
        covariance = np.linalg.pinv(slopes.T @ slopes)
        return solution.x, covariance * scatter * autocorrelation_time(left)


def estimate_presliding(
    robot: Robot, samples: JointSamples, joint: int, law: SteadyFriction
) -> Presliding | None:
    """Estimate the bristle stiffness and damping of a joint from its reversals.

    Args:
        robot: The arm with its payload.
        samples: Joint states.
        joint: Column of the joint.
        law: Its steady friction.

    Returns:
        None if no reversals are recorded.

    """
    found = find_reversals(samples, joint)
    return None if found is None else Presliding(robot, samples.rows(*found), joint, law)


def _block_means(values: Array) -> Array:
    """Average over short blocks, so that noise of single samples is no misfit."""
    count = len(values) // _BLOCK
    return np.asarray(values[:count * _BLOCK].reshape(count, _BLOCK).mean(axis=1))


def _bristles_unidentified(
    values: Array, covariance: Array, degree: float, way: float, resolution: float
) -> tuple[str, str]:
    """Return reasons why stiffness and damping are not identified, empty if they are."""
    reason = (f'the model leaves {degree:.0f} % of the torque at the reversals unexplained '
              f'(limit {_MAX_DEGREE:.0f} %)' if degree > _MAX_DEGREE else
              f'the joint slides after {1e6 * way:.1f} µrad, less than {_FEWEST_STEPS:.0f} '
              f'encoder steps of {1e6 * resolution:.1f} µrad'
              if way < _FEWEST_STEPS * resolution else '')
    if reason:
        return reason, reason
    shares = np.sqrt(np.diag(covariance)) / values
    stiffness, damping = (
        '' if share <= limit else
        f'its standard deviation is {100.0 * share:.0f} % (limit {100.0 * limit:.0f} %)'
        for share, limit in zip(shares, _MAX_BRISTLE_STD, strict=True))
    return stiffness, damping
