# SPDX-License-Identifier: Apache-2.0
"""All ten parameters of a payload from an exciting motion, by joint torques or a wrist sensor.

Samples → blocks → linear regressor → weighted least squares with what is doubted estimated
along → physical consistency → mass, centre of mass, inertia about it → checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.estimation.least_squares import solve
from robocal_ros.messages.samples import JointSamples
from robocal_ros.payload.checks import centre_checks, mass_check
from robocal_ros.payload.model import (
    BODY,
    PARAMETERS,
    UNITS,
    centred,
    centred_covariance,
    consistent,
    moving,
)
from robocal_ros.payload.nuisance import Doubts
from robocal_ros.payload.regression import DynamicSettings, Mask, Rows, condensed, scatter
from robocal_ros.results.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    Series,
    State,
    rms,
    spread,
)
from robocal_ros.robot.model import Robot

HELD_OUT_SHARE = 0.25
"""Share of an exciting record, its last part, that is held out of the validating fit."""

_MAX_CONDITION = 1e5
_HINT = 'Excite the arm more: faster, farther, with all joints turned.'
_PASSES = 3
_LEAST_HELD_OUT = 50
_PLOT_POINTS = 150
# How rarely ten true parameters are as far off as the nearest possible body may be.
_TOO_FAR = 1e-4


@dataclass(frozen=True)
class RowsFit:
    """A solved problem.

    Attributes:
        value: All parameters: payload, nuisances channel by channel, what was doubted.
        covariance: Of all parameters, scatter and correlation of the residuals allowed for.
        residual: Measured minus fitted, of all rows, shape (channels, k).
        noise: Standard deviation of each row, infinite where it does not count, shape
            (channels, k).
        doubts: The shared columns that were used.

    """

    value: Array
    covariance: Array
    residual: Array
    noise: Array
    doubts: Doubts

    @property
    def used(self) -> Mask:
        """Rows that count, shape (channels, k)."""
        return np.isfinite(self.noise)

    def doubt(self, name: str) -> tuple[float, float] | None:
        """Return value and standard deviation of a doubted quantity, None if there is none."""
        if name not in self.doubts.names:
            return None
        at = len(self.value) - len(self.doubts.names) + self.doubts.names.index(name)
        return float(self.value[at]), float(np.sqrt(self.covariance[at, at]))


def fit_rows(rows: Rows, doubts: Doubts | None = None) -> RowsFit:
    """Solve, with each channel weighted by the scatter that it turns out to have.

    Args:
        rows: The problem.
        doubts: The shared columns; worked out about the payload as it is found by default.

    Raises:
        DataError: If rows are too few.
        ExcitationError: If directions stay blind; they are named.

    """
    if doubts is None:
        doubts = rows.doubts(_reweighted(rows, Doubts.none(*rows.measured.shape)).value)
    return _reweighted(rows, doubts)


def _reweighted(rows: Rows, doubts: Doubts) -> RowsFit:
    """Solve with the scatter of the residuals as weights, until they fit each other."""
    noise = scatter(rows.measured, rows.valid, rows.shaken)
    used = np.isfinite(noise)
    channels = _condensed(rows, doubts, used)
    for _ in range(_PASSES):
        fit = _weighted_fit(rows, channels, noise, doubts)
        noise = scatter(fit.residual, rows.valid, rows.shaken)
        if (np.isfinite(noise) != used).any():
            used = np.isfinite(noise)
            channels = _condensed(rows, doubts, used)
    return _weighted_fit(rows, channels, noise, doubts)


def _own(rows: Rows) -> int:
    """Return the number of the payload's parameters and of the channels' nuisances."""
    return 10 + len(rows.channels) * len(rows.nuisances)


def _condensed(rows: Rows, doubts: Doubts, used: Mask) -> list[Array]:
    """Return a few rows of each channel: own columns, doubted ones, and what is measured."""
    unknowns = _own(rows) + len(doubts.names)
    return [
        condensed(np.column_stack((own[counted], doubted[counted], measured[counted])), unknowns)
        for own, doubted, measured, counted
        in zip(rows.regressor, doubts.columns, rows.measured, used, strict=True)]


def _weighted_fit(
    rows: Rows, channels: Sequence[Array], noise: Array, doubts: Doubts
) -> RowsFit:
    extra, own = len(rows.nuisances), _own(rows)
    width, count = 10 + extra, int(np.isfinite(noise).sum())
    names = [*BODY, *(f'{channel}: {name}' for channel in rows.channels
                      for name in rows.nuisances), *doubts.names]
    regressor, measured, std = [], [], []
    for channel, (part, scattered) in enumerate(zip(channels, noise, strict=True)):
        # Nuisance columns of a channel touch its rows only.
        full, at = np.zeros((len(part), len(names))), 10 + channel * extra
        full[:, :10] = part[:, :10]
        full[:, at:at + extra] = part[:, 10:width]
        full[:, own:] = part[:, width:-1]
        regressor.append(full)
        measured.append(part[:, -1])
        # Where rows of a channel count, they count alike.
        std.append(np.full(len(part), scattered.min()))
    fit = solve(
        np.vstack((*regressor, doubts.prior_rows(own))),
        np.concatenate((*measured, np.zeros(len(doubts.names)))),
        np.concatenate((*std, doubts.std)), names, max_condition=_MAX_CONDITION, hint=_HINT)
    freedom = count / max(count - own, 1)
    return RowsFit(fit.value, fit.covariance * freedom, _left(rows, doubts, fit.value), noise,
                   doubts)


def _left(rows: Rows, doubts: Doubts, value: Array) -> Array:
    """Return measured minus fitted, shape (channels, k)."""
    count, own = len(rows.channels), _own(rows)
    values = np.hstack((np.tile(value[:10], (count, 1)), value[10:own].reshape(count, -1)))
    fitted = (rows.regressor @ values[:, :, None])[:, :, 0] + doubts.columns @ value[own:]
    return np.asarray(rows.measured - fitted)


def estimate(
    robot: Robot,
    rows: Rows,
    frame: str,
    settings: DynamicSettings,
    *,
    samples: JointSamples,
    reference: CalibrationResult | None = None,
) -> CalibrationResult:
    """Estimate all ten parameters.

    Args:
        robot: The arm without the payload.
        rows: The problem, by ``torque_rows`` or ``wrench_rows``.
        frame: Frame in which the body's columns are expressed.
        settings: Settings of the estimation.
        samples: The record behind the rows.
        reference: Result of the same motion without the payload: what it found is the error of
            the arm's own model, and is subtracted.

    Raises:
        ConfigurationError: If the reference is none of this method and frame.
        DataError: If the record is no excitation, or the payload too heavy, or none.
        ExcitationError: If directions stay blind; they are named.

    """
    settings.check()
    fit = fit_rows(rows)
    body, covariance = _body_in_tool_frame(robot, frame, fit)
    if reference is not None:
        known, uncertainty = _reference_body(reference, robot)
        body, covariance = body - known, covariance + uncertainty
    body, distance = consistent(body, covariance)
    if 0.0 < settings.max_payload < body[0]:
        raise DataError(
            f'The payload weighs {body[0]:.2f} kg, more than max_payload allows '
            f'({settings.max_payload} kg). Take it off, or correct the limit.')
    value, spread = centred(body), centred_covariance(body, covariance)
    held_out = _held_out(rows, fit)
    checks = (
        mass_check(float(value[0]), float(np.sqrt(spread[0, 0])), settings.max_mass_interval),
        *centre_checks(value[1:4], spread[1:4, 1:4], settings.max_com_interval,
                       settings.max_com_distance),
        *_consistency_check(distance),
        *_held_out_checks(settings, rows, fit, held_out),
    )
    parameters = _parameters(value, spread, settings)
    told = [i for i, parameter in enumerate(parameters) if parameter.value is not None]
    return _result(robot, rows, settings, samples, fit, held_out, checks,
                   parameters=(*parameters, *_delay(fit)),
                   names=tuple(PARAMETERS[i] for i in told),
                   covariance=spread[np.ix_(told, told)], reference=reference)


def estimate_reference(
    robot: Robot, rows: Rows, frame: str, settings: DynamicSettings, *, samples: JointSamples
) -> CalibrationResult:
    """Estimate what the arm's own model lacks, from an excitation without payload.

    Arguments as of ``estimate``. The ten parameters are those of the body that would explain
    it, in the tool frame; they may be of either sign.
    """
    settings.check()
    fit = fit_rows(rows)
    body, covariance = _body_in_tool_frame(robot, frame, fit)
    held_out = _held_out(rows, fit)
    units = ('kg', *['kg·m'] * 3, *['kg·m²'] * 6)
    return _result(
        robot, rows, settings, samples, fit, held_out,
        tuple(_held_out_checks(settings, rows, fit, held_out)),
        parameters=tuple(
            Parameter(name, unit, float(number), float(sigma)) for name, unit, number, sigma
            in zip(BODY, units, body, np.sqrt(np.diag(covariance)), strict=True)),
        names=BODY, covariance=covariance, reference=None)


def _result(
    robot: Robot, rows: Rows, settings: DynamicSettings, samples: JointSamples, fit: RowsFit,
    held_out: _Predicted | None, checks: tuple[Check, ...], *,
    parameters: tuple[Parameter, ...], names: tuple[str, ...], covariance: Array,
    reference: CalibrationResult | None,
) -> CalibrationResult:
    plain: dict[str, Any] = {
        **asdict(settings), 'tool_frame': robot.tool_frame,
        'gravity': [float(g) for g in robot.gravity], 'channels': list(rows.channels),
        'reference_run': reference is not None}
    return CalibrationResult(
        kind='payload',
        method='excitation',
        robot=RobotIdentity(robot.name, robot.urdf_hash, robot.joint_names),
        frame=robot.tool_frame,
        parameters=parameters,
        covariance_names=names,
        covariance=covariance,
        fit=_fits(rows, fit.used, fit.residual),
        validation=() if held_out is None else _fits(
            held_out.rows, held_out.used, held_out.residual),
        checks=checks,
        counts={'samples': len(samples), 'rows': int(fit.used.sum()),
                **asdict(samples.counts), **rows.readings},
        settings=plain,
        source=samples.source,
        time=float(samples.time[-1]),
        software_version=__version__,
        series=_series(rows, fit),
    )


def _body_in_tool_frame(robot: Robot, frame: str, fit: RowsFit) -> tuple[Array, Array]:
    """Return the body's dynamic parameters in the tool frame, and their covariance."""
    move = moving(robot, frame)
    return move @ fit.value[:10], move @ fit.covariance[:10, :10] @ move.T


def _reference_body(reference: CalibrationResult, robot: Robot) -> tuple[Array, Array]:
    """Return the dynamic parameters that a run without payload found, and their covariance."""
    if reference.covariance_names != BODY or reference.frame != robot.tool_frame:
        raise ConfigurationError(
            f"The reference run is of method '{reference.method}' in frame '{reference.frame}'; "
            f"expected 'excitation' without payload in '{robot.tool_frame}'. Record it anew.")
    return reference.values(BODY), np.array(reference.covariance)


@dataclass(frozen=True)
class _Predicted:
    """Part of a motion, and what is left of it."""

    rows: Rows
    used: Mask
    residual: Array


def _held_out(rows: Rows, fit: RowsFit) -> _Predicted | None:
    """Fit the first part of the motion and predict the last; None if it is too short."""
    count = rows.measured.shape[1]
    border = int((1.0 - HELD_OUT_SHARE) * count)
    first, last = slice(0, border), slice(border, count)
    used = fit.used[:, last]
    if int(used.sum()) < _LEAST_HELD_OUT:
        return None
    try:
        part = fit_rows(rows.part(first), fit.doubts.part(first))
    except (DataError, ExcitationError):
        return None
    others = rows.part(last)
    return _Predicted(others, used, _left(others, fit.doubts.part(last), part.value))


def _fits(rows: Rows, used: Mask, residual: Array) -> tuple[Fit, ...]:
    return tuple(
        Fit(name, unit, rms(measured[counted]), rms(left[counted]), int(counted.sum()))
        for name, unit, measured, left, counted
        in zip(rows.channels, rows.units, rows.measured, residual, used, strict=True))


def _parameters(
    value: Array, covariance: Array, settings: DynamicSettings
) -> tuple[Parameter, ...]:
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    moment = float(value[[4, 7, 9]].mean())
    worst = float(std[4:].max()) / max(abs(moment), 1e-12)
    found = []
    for name, unit, number, sigma in zip(PARAMETERS, UNITS, value, std, strict=True):
        if name.startswith('inertia') and worst > settings.max_inertia_std:
            found.append(Parameter(
                name, unit, state=State.NOT_IDENTIFIED,
                note=f'standard deviation up to {100 * worst:.0f} % of the mean moment (limit '
                     f'{100 * settings.max_inertia_std:.0f} %)'))
        else:
            found.append(Parameter(name, unit, float(number), float(sigma)))
    return tuple(found)


def _delay(fit: RowsFit) -> tuple[Parameter, ...]:
    found = fit.doubt('delay')
    return () if found is None else (
        Parameter('delay', 's', *found, note='of the measured values against the positions'),)


def _consistency_check(distance: float) -> Sequence[Check]:
    if distance == 0.0:
        return []
    limit = float(np.sqrt(scipy.special.chdtri(10, _TOO_FAR)))
    return [Check(
        'physical consistency', distance <= limit, distance, limit, '1',
        'What fits best is no possible body; the nearest possible one, which was taken, is '
        f'{distance:.1f} standard deviations off (limit {limit:.1f}). If that is too far, the '
        "sign of a sensor or of an effort is wrong, or the arm's model.")]


def _held_out_checks(
    settings: DynamicSettings, rows: Rows, fit: RowsFit, held_out: _Predicted | None
) -> Sequence[Check]:
    if held_out is None:
        return []
    ratios = [after.after / max(before.after, 1e-12) for after, before
              in zip(_fits(held_out.rows, held_out.used, held_out.residual),
                     _fits(rows, fit.used, fit.residual), strict=True)]
    worst = int(np.argmax(ratios))
    limit = settings.max_held_out_ratio
    return [Check(
        'held-out part of the motion', ratios[worst] <= limit, ratios[worst], limit, '1',
        f'The last part of the motion is predicted with residuals up to {ratios[worst]:.2f} '
        f'times those of the fit, in {rows.channels[worst]} (limit {limit:.1f}).')]


def _series(rows: Rows, fit: RowsFit) -> tuple[Series, ...]:
    series = []
    for name, unit, measured, left, used in zip(
        rows.channels, rows.units, rows.measured, fit.residual, fit.used, strict=True
    ):
        places = np.flatnonzero(used)
        pick = places[spread(len(places), _PLOT_POINTS)]
        series.append(Series(
            f'{name[0].upper()}{name[1:]}, less the arm', 'block', f'{name} [{unit}]',
            pick.astype(float),
            {'measured': measured[pick], 'fit': (measured - left)[pick], 'residual': left[pick]}))
    return tuple(series)
