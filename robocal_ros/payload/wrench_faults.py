# SPDX-License-Identifier: Apache-2.0
"""Physical causes of the residuals of a rigid load on a wrist sensor at rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.estimation import likely_cause
from robocal_ros.payload.model import CHANNELS

# Least deviation of the load's direction for a wrong posture rather than a push [°].
_LEAST_ANGLE = 1.0
# A channel is saturated if this number of postures read its extreme value within this share of
# its range.
_SATURATED, _SAME_READING = 3, 2e-3


@dataclass(frozen=True)
class Static:
    """A fitted set of postures at rest.

    Attributes:
        regressor: Columns of mass, first moments and biases, shape (n, 6, 10).
        load: Fitted wrench of the load, shape (n, 6) [N, N·m].
        tilt: Derivative of the wrench by tilts of gravity about two horizontal axes of the root
            frame, shape (n, 6, 2) [N/rad, N·m/rad].
        reading: Measured wrench, shape (n, 6) [N, N·m].
        residual: Measured minus fitted, shape (n, 6) [N, N·m].
        time: Shape (n,) [s].
        last_joint: Angle of the last joint, shape (n,) [rad].
        limits: Limits of the RMS residuals of force [N] and torque [N·m], which weight them.

    """

    regressor: Array
    load: Array
    tilt: Array
    reading: Array
    residual: Array
    time: Array
    last_joint: Array
    limits: Sequence[float]


@dataclass(frozen=True)
class _Cause:
    """Columns of one cause, shape (n, 6, q), and its sentence from their coefficients."""

    columns: Array
    kind: str
    number: int = 0

    def sentence(self, data: Static, value: Array, load: Array) -> str:
        """Return the cause in physical units and the remedy.

        Args:
            data: The postures.
            value: Coefficients of the columns.
            load: Wrench of the load fitted jointly with the cause, shape (n, 6) [N, N·m].

        """
        effect = self.columns @ value
        force, torque = (float(np.linalg.norm(part, axis=1).max())
                         for part in (effect[:, :3], effect[:, 3:]))
        size = f'{force:.2f} N and {torque:.3f} N·m'
        if self.kind == 'drift':
            return (f'a drift of the sensor over time, up to {size} within '
                    f'{float(np.ptp(data.time)):.0f} s: let it warm up, and measure again')
        if self.kind == 'gain':
            # A common gain of all three channels of a kind is not observable.
            value = (value.reshape(2, 3) - np.median(value.reshape(2, 3), axis=1)[:, None]).ravel()
            worst = int(np.argmax(np.abs(value)))
            return (f'a calibration error of the sensor: gain of {CHANNELS[worst]} '
                    f'{100.0 * value[worst]:+.1f} % against the other channels, up to {size}: '
                    'check its calibration file and units, or recalibrate it')
        if self.kind == 'rotation':
            return (f'a wrong orientation of the sensor in the URDF, by '
                    f'{np.degrees(np.linalg.norm(value)):.1f}° about axis '
                    f'({", ".join(f"{v:.2f}" for v in value / np.linalg.norm(value))}) of its '
                    'frame: correct sensor_frame in the URDF')
        if self.kind == 'tilt':
            return (f'a base tilted by {np.degrees(np.linalg.norm(value)):.1f}°: set '
                    'estimate_gravity, or the parameter gravity')
        if self.kind == 'cable':
            return (f'a cable or hose that pulls with the angle of the last joint, up to {size}: '
                    'route it with slack, or hold it')
        return self._posture_sentence(load, effect[self.number])

    def _posture_sentence(self, load: Array, effect: Array) -> str:
        """Return the sentence for a posture that contradicts all others.

        In a wrong posture, the load has another direction but the same weight, and its torque
        follows from its force; neither is true of a push.
        """
        force, extra = load[self.number, :3], effect[:3]
        lever = np.linalg.lstsq(load[:, :3], load[:, 3:], rcond=None)[0]
        turned = float(np.linalg.norm(effect[3:] - extra @ lever)) < 0.3 * float(
            np.linalg.norm(effect[3:]) + np.linalg.norm(extra @ lever))
        size, weight = float(np.linalg.norm(extra)), float(np.linalg.norm(force))
        where = f'posture {self.number + 1}'
        angle = 2.0 * float(np.degrees(np.arcsin(min(1.0, 0.5 * size / weight))))
        if turned and angle > _LEAST_ANGLE and (
            abs(float(np.linalg.norm(force + extra)) - weight) < 0.2 * size
        ):
            return (f'a wrong posture: in {where} the direction of the load is off by '
                    f'{angle:.1f}°; measure it again, with positions and wrench on the same clock')
        return (f'a contact or push in {where} of {size:.2f} N and '
                f'{float(np.linalg.norm(effect[3:])):.3f} N·m: clear the space, and measure again')


def most_likely_cause(data: Static) -> str:
    """Return the most likely physical cause of the residuals, with figures and a remedy.

    Each cause adds columns to those of the rigid load; see ``likely_cause`` for the choice.
    """
    saturated = _saturation(data)
    if saturated:
        return saturated
    weight = np.repeat(1.0 / np.maximum(data.limits, 1e-12), 3)

    def rows(columns: Array) -> Array:
        return np.asarray((columns * weight[:, None]).reshape(data.residual.size, -1))

    fitted, target = rows(data.regressor), (data.residual * weight).ravel()
    causes = {f'{cause.kind} {cause.number}': cause for cause in _causes(data)}
    found = likely_cause(
        target - fitted @ np.linalg.lstsq(fitted, target, rcond=None)[0], fitted,
        {name: rows(cause.columns) for name, cause in causes.items()})
    if found is None:
        return ('none of drift, calibration, orientation, cable or contact alone: check for '
                'several of them, and for a load that is not rigid')
    cause = causes[found[0]]
    both = np.column_stack((fitted, rows(cause.columns)))
    scale = np.maximum(np.linalg.norm(both, axis=0), 1e-300)
    value = np.linalg.lstsq(both / scale, target, rcond=1e-9)[0] / scale
    load = data.load + data.regressor[:, :, :4] @ value[:4]
    return cause.sentence(data, value[fitted.shape[1]:], load)


def _causes(data: Static) -> Sequence[_Cause]:
    count = len(data.load)
    channels = np.broadcast_to(np.eye(6), (count, 6, 6))
    time = (data.time - data.time.mean()) / max(float(np.ptp(data.time)), 1e-12)
    turned = np.stack([np.concatenate((np.cross(axis, data.load[:, :3]),
                                       np.cross(axis, data.load[:, 3:])), axis=1)
                       for axis in np.eye(3)], axis=2)
    return [
        _Cause(channels * time[:, None, None], 'drift'),
        _Cause(channels * data.load[:, :, None], 'gain'),
        _Cause(turned, 'rotation'),
        _Cause(data.tilt, 'tilt'),
        _Cause(channels * (data.last_joint - data.last_joint.mean())[:, None, None], 'cable'),
        *(_Cause(channels * (np.arange(count) == number)[:, None, None], 'posture', number)
          for number in range(count)),
    ]


def _saturation(data: Static) -> str:
    """Return a sentence if a channel reads the same extreme value in several postures."""
    for channel, name in enumerate(CHANNELS):
        reading = data.reading[:, channel]
        for sign in (1.0, -1.0):
            extreme = float((sign * reading).max())
            at = sign * reading > extreme - _SAME_READING * float(np.ptp(reading))
            expected = sign * (reading - data.residual[:, channel])[at]
            if at.sum() >= _SATURATED and np.ptp(expected) > 10.0 * np.ptp(reading[at]):
                unit = 'N' if channel < 3 else 'N·m'
                return (f'a saturated channel: {name} reads {sign * extreme:.2f} {unit} in '
                        f'{int(at.sum())} postures; use a lighter load, or a larger range')
    return ''
