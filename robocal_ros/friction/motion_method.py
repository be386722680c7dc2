# SPDX-License-Identifier: Apache-2.0
"""Friction from an arbitrary motion: what the identified arm leaves of the efforts.

An exciting motion identifies links, rotors, offsets and drive gains of the arm, with the bodies of
the URDF as a prior that is as wide as the motion asks (``friction_in_motion``). The rest of each
joint's efforts is its friction. Its means over bins of the speed are fitted like runs at constant
speeds. Passes of the motion through a speed are repeats, whose scatter is the pure error of a
lack-of-fit test (Draper, Smith, Applied Regression Analysis, sec. 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.friction.fit import CERTAIN, Choice, DirectionFit, JointFit, Side
from robocal_ros.friction.model import parameter_names
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.payload import MotionFriction
from robocal_ros.results import Z95, Check, rms
from robocal_ros.robot import DIRECTIONS

# Bins of the speed in each direction, and fewest blocks of a bin; fewest bins of a direction.
_BINS, _LEAST = 20, 4
_FEWEST = 6
_SIGNS = (1.0, -1.0)

_Rows = npt.NDArray[np.intp]


class MotionFit(JointFit):
    """Friction of one joint from a motion, with the evidence for and against it."""

    def __init__(
        self, joint: str, motion: MotionFriction, values: FrictionParameters, recording: Check
    ) -> None:
        """Fit a law, and test the fit.

        Args:
            joint: Name of the joint.
            motion: Its friction in the motion.
            values: The node's parameters.
            recording: Check of the recording.

        """
        self.joint = joint
        self.reference_load = float(np.abs(motion.load).mean()) if len(motion.load) else 0.0
        bins = {name: _bins(sign * motion.velocity)
                for name, sign in zip(DIRECTIONS, _SIGNS, strict=True)}
        reasons = [f'{sum(map(len, rows))} blocks of motion {name} (at least {_FEWEST * _LEAST} '
                   'needed)' for name, rows in bins.items() if len(rows) < _FEWEST]
        found = f"Joint '{joint}':"
        if not reasons:
            choice, scatter, reasons = self._fitted(motion, bins, values)
            self._scattered(choice)
            _, torque, fitted, _ = self.torques()
            misfit = rms(torque - fitted)
            self.fit_degree = _beyond(misfit, scatter, fitted)
            if choice.predicted is not None:
                errors = np.concatenate([fit.side.torque - choice.predicted[name]
                                         for name, fit in choice.fits.items()])
                self.held_out_degree = _beyond(rms(errors[np.isfinite(errors)]), scatter, fitted)
            found += (
                f' {choice.evidence()}; misfit over the speed {misfit:.3f} N·m, of which repeated '
                f'passes scatter by {scatter:.3f} N·m. Misfit beyond the scatter '
                f'{self.fit_degree:.2f} % of friction (limit {values.fit_threshold:.1f} %, '
                'fit_threshold).')
        degree = min(self.fit_degree, 100.0)
        good = not reasons and degree <= values.fit_threshold
        self.checks = [Check(
            f'{joint}: fit', good, degree, values.fit_threshold, '%', found
            + ('' if good or reasons else
               ' Friction that the law lacks, or a wrong coupling, may be the cause.')
            + ('' if good else ' measure_joints estimates the other joints alone.')
            + (f' Not identified: {"; ".join(reasons)}.' if reasons else '')
            + ('' if recording.evaluated else f' {recording.reason}'),
            evaluated=recording.evaluated)]

    def _fitted(
        self, motion: MotionFriction, bins: Mapping[str, Sequence[_Rows]],
        values: FrictionParameters,
    ) -> tuple[Choice, float, list[str]]:
        """Choose a law.

        Returns:
            The law, the RMS deviation of the bins by the scatter of passes [N·m], and reasons why
            friction is none.

        """
        stds = _scatter(motion, bins)
        sides, own, shared = {}, {}, {}
        for sign, (name, rows) in zip(_SIGNS, bins.items(), strict=True):
            velocity, torque, load, own[name], shared[name] = (
                np.array([series[some].mean(axis=0) for some in rows]) for series in (
                    sign * motion.velocity, sign * motion.torque,
                    np.abs(motion.load) - self.reference_load, sign * motion.own,
                    sign * motion.errors))
            sides[name] = Side(velocity, torque, stds[name], load, np.zeros(len(rows)))

        def chosen(model: str) -> tuple[Choice, list[str]]:
            choice = Choice(sides, model)
            self.effects, self.shared = (
                {name: fit.changes_by(errors[name]) for name, fit in choice.fits.items()}
                for errors in (own, shared))
            return choice, [reason for name, fit in choice.fits.items()
                            for reason in self._negative(name, fit)]

        choice, reasons = chosen(values.steady_model)
        without = choice.model.replace('coulomb_viscous', 'coulomb')
        if not reasons and without != choice.model and any(
                fit.named(fit.value)['viscous'] == 0.0 for fit in choice.fits.values()):
            # Viscous friction that is negative by chance is none, in both directions.
            choice, reasons = chosen(without)
            choice.unidentified['viscous'] = 'it is zero within its interval'
        return choice, rms(np.concatenate(list(stds.values()))), reasons

    def _negative(self, direction: str, fit: DirectionFit) -> Iterator[str]:
        """Yield which friction is negative, or may be none, if nothing keeps it above zero.

        Dry friction is judged at the lowest speed, where a law with an exponent hardly
        distinguishes it from viscous friction.
        """
        free = fit.changes_by(fit.residual[:, None])[:, 0]
        slowest = fit.slopes[:1]
        own, shared = self.effects[direction], self.shared[direction]
        covariance = fit.covariance + own @ own.T + shared @ shared.T
        names = parameter_names(fit.model)
        judged = [('Coulomb', fit.at(fit.side.speed[:1], 0.0)[0], slowest[0])] if (
            'exponent' in names) else [('Coulomb', fit.value[0], np.eye(len(names))[0])]
        if 'viscous' in names:
            at = names.index('viscous')
            judged.append(('viscous', fit.value[at], np.eye(len(names))[at]))
        for name, value, slopes in judged:
            value, std = value + slopes @ free, float(np.sqrt(slopes @ covariance @ slopes))
            certain = value < -CERTAIN * std
            found = 'is negative' if certain else 'may be none'
            if certain or (name == 'Coulomb' and value < 0.0):
                yield (f'{name} friction {direction} {found} ({value:.3g} ± {Z95 * std:.2g})')


def _bins(velocity: Array) -> list[_Rows]:
    """Return the blocks of each bin of the positive velocities, slow ones first."""
    rows = np.flatnonzero(velocity > 0.0)
    ordered = rows[np.argsort(velocity[rows])]
    return [np.sort(part) for part in np.array_split(
        ordered, min(_BINS, len(ordered) // _LEAST))] if len(ordered) >= _LEAST else []


def _scatter(
    motion: MotionFriction, bins: Mapping[str, Sequence[_Rows]]
) -> dict[str, Array]:
    """Return standard deviations of the means of bins by the scatter between passes [N·m].

    It is pooled over the bins. Repeats of the motion pass the same places, and count once.
    """
    square = freedom = 0.0
    shares: dict[str, list[float]] = {name: [] for name in bins}
    for name, parts in bins.items():
        for rows in parts:
            places = np.unique(motion.place[rows])
            number = np.cumsum(np.diff(places, prepend=places[0]) > 1)[
                np.searchsorted(places, motion.place[rows])]
            count = np.bincount(number)
            means = np.bincount(number, motion.left[rows]) / count
            weight = count / len(rows)
            shares[name].append(float(weight @ weight))
            square += float(weight @ (means - weight @ means)**2)
            freedom += 1.0 - shares[name][-1]
    # Single passes do not show their scatter.
    variance = square / freedom if freedom > 0.0 else np.mean(motion.left**2)
    return {name: np.sqrt(np.maximum(variance * np.array(own), 1e-18))
            for name, own in shares.items()}


def _beyond(misfit: float, scatter: float, torque: Array) -> float:
    """Return the misfit beyond the scatter, as a share of a torque [%]."""
    return 100.0 * float(np.sqrt(max(misfit**2 - scatter**2, 0.0))) / max(rms(torque), 1e-12)
