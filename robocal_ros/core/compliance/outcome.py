# SPDX-License-Identifier: Apache-2.0
"""A fit as a result: sag before and after, parameters with notes, checks, settings, plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robocal_ros import __version__
from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.fit import ComplianceFit
from robocal_ros.core.compliance.load import Load
from robocal_ros.core.compliance.model import Target, predicted
from robocal_ros.core.compliance.problem import believed_angles
from robocal_ros.core.compliance.registration import Registration
from robocal_ros.core.compliance.sets import Displacements
from robocal_ros.core.compliance.settings import ComplianceSettings
from robocal_ros.core.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    Series,
    State,
    rms,
)
from robocal_ros.core.robot import Robot

KIND, METHOD = 'compliance', 'loaded_unloaded'
UNIT = 'rad/(N·m)'
WEAK = 0.05
"""Relative standard deviation above which a compliance is called weak."""
CORRELATED = 0.8

_MAX_REJECTED = 0.2
_NEGATIVE = 3.0
_SEEN = 3.0


@dataclass(frozen=True)
class Sag:
    """Sag before and after correction: lengths of displacements, shape (k,) [m]."""

    before: Array
    after: Array

    @property
    def removed(self) -> float:
        """Share of the sag that the model explains."""
        return 1.0 - rms(self.after) / rms(self.before) if rms(self.before) > 0.0 else 0.0


def _sag(
    robot: Robot, arm: Robot, target: Target, data: Displacements, fit: ComplianceFit
) -> Sag:
    """Compare displacements, less what encoders saw and the tracker moved, with the model."""
    rows = data.value.shape[1]
    before, after = [], []
    believed = believed_angles(data, fit.encoder_share)
    offset = np.zeros(3) if fit.offset is None else fit.offset
    for k in range(len(data)):
        seen, model = (
            predicted(robot, arm, target, data.unloaded[k], believed[k], c, rows)[0][:3]
            for c in (np.zeros(robot.n), fit.value))
        measured = data.value[k, :3] - offset
        before.append(np.linalg.norm(measured - seen))
        after.append(np.linalg.norm(measured - model))
    return Sag(np.array(before), np.array(after))


def assemble(
    robot: Robot, arm: Robot, load: Load, settings: ComplianceSettings,
    registration: Registration, data: Displacements, fit: ComplianceFit, furthest: float,
    counts: dict[str, int], source: str, time: float,
) -> CalibrationResult:
    """Put everything that is known after a fit into a result.

    Args:
        robot: The arm without the load.
        arm: The arm with it.
        load: What was mounted.
        settings: Settings of the estimation.
        registration: Where the tracker stands.
        data: All displacements.
        fit: The fit to those that are not held out.
        furthest: Largest distance of a target from where the arm says [m].
        counts: Sample counts and drops.
        source: ``live``, or the name of the bag.
        time: Stamp of the newest end position [s].

    """
    fitted, held_out = (data.rows(which) for which in (~data.held_out, data.held_out))
    sag_fitted = _sag(robot, arm, settings.target, fitted, fit)
    sag_held_out = _sag(robot, arm, settings.target, held_out, fit)
    names = robot.joint_names
    seen = list(fit.seen)
    return CalibrationResult(
        kind=KIND,
        method=METHOD,
        robot=RobotIdentity(robot.name, robot.urdf_hash, names),
        frame='',
        parameters=_parameters(names, fit),
        covariance_names=tuple(f'{names[i]}.compliance' for i in seen),
        covariance=fit.covariance[np.ix_(seen, seen)],
        fit=(Fit('sag', 'm', rms(sag_fitted.before[fit.kept]), rms(sag_fitted.after[fit.kept]),
                 int(fit.kept.sum())),),
        validation=(Fit('sag', 'm', rms(sag_held_out.before), rms(sag_held_out.after),
                        len(held_out)),) if len(held_out) else (),
        checks=_checks(names, settings, fit, sag_held_out, furthest),
        counts=counts,
        settings=_settings(robot, load, settings, registration, fit, names),
        source=source,
        time=time,
        software_version=__version__,
        series=_series(data, sag_fitted, sag_held_out),
    )


def _parameters(names: Sequence[str], fit: ComplianceFit) -> tuple[Parameter, ...]:
    relative, correlation = fit.relative_std(), fit.correlation()
    parameters = []
    for joint, name in enumerate(names):
        full = f'{name}.compliance'
        if joint not in fit.seen:
            parameters.append(Parameter(full, UNIT, state=State.NOT_IDENTIFIED,
                                        note=f'unobservable: {fit.blind[joint]}'))
            continue
        notes = []
        if joint in fit.clipped:
            notes.append('at its bound of zero: too stiff to be seen')
        else:
            weak = ', weak' if relative[joint] > WEAK else ''
            notes.append(f'relative standard deviation {100.0 * relative[joint]:.2g} %{weak}')
        notes += [f'correlation {correlation[joint, other]:+.2f} with {names[other]}'
                  for other in fit.seen
                  if other != joint and abs(correlation[joint, other]) > CORRELATED]
        parameters.append(Parameter(full, UNIT, float(fit.value[joint]),
                                    float(fit.std()[joint]), note='; '.join(notes)))
    return tuple(parameters)


def _checks(
    names: Sequence[str], settings: ComplianceSettings, fit: ComplianceFit, sag: Sag,
    furthest: float,
) -> tuple[Check, ...]:
    checks = []
    if len(sag.before):
        checks.append(Check(
            'sag removed on held-out postures', sag.removed >= settings.min_sag_removed,
            sag.removed, settings.min_sag_removed, '1',
            f'On {len(sag.before)} held-out postures the model removes '
            f'{100.0 * sag.removed:.1f} % of the sag: {1e6 * rms(sag.before):.0f} µm before, '
            f'{1e6 * rms(sag.after):.0f} µm after (at least '
            f'{100.0 * settings.min_sag_removed:.0f} % wanted).'))
        ratio = rms(sag.before) / max(rms(sag.after), 1e-12)
        checks.append(Check(
            'load is seen', ratio >= _SEEN, ratio, _SEEN, '1',
            f'The load moves the target by {1e6 * rms(sag.before):.0f} µm (RMS), '
            f'{ratio:.1f} times what the model leaves (at least {_SEEN:.0f} times wanted)'
            + ('.' if ratio >= _SEEN else ': was the load really mounted between the sets, and is '
               'its mass right?')))
    share = float((~fit.kept).mean())
    checks.append(Check(
        'displacements that fit', share <= _MAX_REJECTED, share, _MAX_REJECTED, '1',
        f'{int((~fit.kept).sum())} of {len(fit.kept)} displacements do not fit the others and '
        f'were left out (limit {100.0 * _MAX_REJECTED:.0f} %).'))
    depths = {joint: -value / max(float(fit.std()[joint]), 1e-30)
              for joint, value in fit.clipped.items()}
    depth = max(depths.values(), default=0.0)
    told = 'No compliance comes out negative.' if not depths else (
        f"The compliance of '{names[max(depths, key=depths.__getitem__)]}' comes out "
        f'{depth:.1f} standard deviations below zero (limit {_NEGATIVE:.0f}): check the load, its '
        'centre, and the tracker frame.')
    checks.append(Check('compliances not negative', depth <= _NEGATIVE, depth, _NEGATIVE, '1',
                        told))
    limit = settings.max_registration_residual
    checks.append(Check(
        'tracker frame', furthest <= limit, furthest, limit, 'm',
        f'The registered tracker sees the target at most {1e3 * furthest:.2f} mm from where the '
        f'arm says it is (limit {1e3 * limit:.2f} mm).'))
    return tuple(checks)


def _settings(
    robot: Robot, load: Load, settings: ComplianceSettings, registration: Registration,
    fit: ComplianceFit, names: Sequence[str],
) -> dict[str, object]:
    correlation = fit.correlation()
    pairs = {
        f'{names[i]}, {names[j]}': round(float(correlation[i, j]), 3)
        for i in fit.seen for j in fit.seen
        if i < j and abs(correlation[i, j]) > CORRELATED
    }
    return {
        'load_mass': float(load.body.mass),
        'load_com': [float(x) for x in load.body.com],
        'load_frame': load.frame,
        'load_source': load.source,
        'target_frame': settings.target_frame,
        'target_xyz': [float(x) for x in settings.target_xyz],
        'match_tolerance': settings.match_tolerance,
        'max_drift': settings.max_drift,
        'gravity': [float(g) for g in robot.gravity],
        'registration': registration.method,
        'registration_rms': registration.rms,
        'tracker_rotation': [float(x) for x in registration.rotation.ravel()],
        'tracker_translation': [float(x) for x in registration.translation],
        'offset_between_sets': [] if fit.offset is None else [float(x) for x in fit.offset],
        'angle_scatter': fit.angle_std,
        'encoder_share': fit.encoder_share,
        'reduced_chi_square': fit.chi_square,
        'condition': fit.condition,
        'correlated': pairs,
    }


def _series(data: Displacements, fitted: Sag, held_out: Sag) -> tuple[Series, ...]:
    number = np.arange(1.0, len(data) + 1.0)
    return tuple(
        Series(f'Sag before and after correction, {what}', 'posture', 'sag [mm]', number[which],
               {'measured before correction': 1e3 * sag.before,
                'measured after correction': 1e3 * sag.after})
        for what, which, sag in (('held-out postures', data.held_out, held_out),
                                 ('postures of the fit', ~data.held_out, fitted))
        if len(sag.before))


def summary(result: CalibrationResult) -> str:
    """Return compliances with 95 % intervals, the share of sag removed, and what stays blind."""
    told, blind = [], []
    for parameter in result.parameters:
        joint = parameter.name.rpartition('.')[0]
        if parameter.value is None:
            blind.append(joint)
        else:
            told.append(f'{joint} {1e6 * parameter.value:.2f} ± '
                        f'{1.96e6 * (parameter.std or 0.0):.2f}')
    sag = next((f for f in result.validation if f.what == 'sag'), None)
    removed = '' if sag is None or sag.before <= 0.0 else (
        f' Sag on held-out postures {1e6 * sag.before:.0f} µm, after correction '
        f'{1e6 * sag.after:.0f} µm ({100.0 * (1.0 - sag.after / sag.before):.1f} % removed).')
    unseen = f' Unobservable: {", ".join(blind)}.' if blind else ''
    return f'Compliance in µrad/(N·m) (95 %): {"; ".join(told)}.{removed}{unseen}'
