# SPDX-License-Identifier: Apache-2.0
"""Biases of F/T sensors at rest, weight taken off first; wrong signs and swapped sensors.

At rest a sensor reads its bias and the weight of what is beyond it, which the model knows in
every orientation. A bias beyond what a sensor can have is no bias: the reading may have the
opposite sign, be another sensor's, or hold a load that the model lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, Check, Fit, Parameter, RobotIdentity, rms
from robocal_ros.wrench.model import SensedArm
from robocal_ros.wrench.parameters import WrenchParameters

KIND = 'tare'
METHOD = 'orientation_aware'
_AXES = ('force_x', 'force_y', 'force_z', 'torque_x', 'torque_y', 'torque_z')
_UNITS = ('N', 'N', 'N', 'N·m', 'N·m', 'N·m')
_FEWEST = 20
# Largest joint travel [rad], and largest mean rate of an IMU [rad/s], that is still rest.
_MAX_TRAVEL, _MAX_RATE = 0.002, 0.02
# A change of posture shows a sign when it changes the weight by so many noise sigmas.
_CLEAR = 10.0
# Least share of the largest bias that all sensors have in common if a load is missing.
_LOAD = 0.3


class TareRecord:
    """Collects what a tare needs."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.stamps: list[float] = []
        self._postures: list[Array] = []
        self._readings: list[Array] = []
        self._held: list[Array] = []
        self._valid: list[list[bool]] = []
        self._spans: dict[int, list[float]] = {}
        self._nets: dict[int, list[Array]] = {}
        self._rates: dict[int, list[Array]] = {}

    def add(
        self, stamp: float, posture: Array, readings: Array, held: Array, valid: list[bool]
    ) -> None:
        """Take one instant.

        Args:
            stamp: Its stamp [s].
            posture: Joint angles, shape (n,) [rad].
            readings: Of all sensors, in their measurement frames, shape (k, 6).
            held: As of ``SensedArm.held``, shape (k, 6).
            valid: Which sensors' readings are good.

        """
        self.stamps.append(stamp)
        self._postures.append(posture.copy())
        self._readings.append(readings.copy())
        self._held.append(held)
        self._valid.append(valid)

    def add_link(self, index: int, stamp: float, net: Array, rate: Array) -> None:
        """Take one instant of a link with an IMU: its net wrench and its angular velocity."""
        self._spans.setdefault(index, [stamp, stamp])[1] = stamp
        self._nets.setdefault(index, []).append(net.copy())
        self._rates.setdefault(index, []).append(rate.copy())

    @property
    def duration(self) -> float:
        """Time between the first and the last instant [s]."""
        return self.stamps[-1] - self.stamps[0] if self.stamps else 0.0

    @property
    def link_duration(self) -> float:
        """The same for the link with an IMU that has been recorded shortest, 0 for none [s]."""
        return min((end - begin for begin, end in self._spans.values()), default=0.0)

    @property
    def covered(self) -> float:
        """Time covered by joint states and sensors, else by links with IMUs [s]."""
        return self.duration if self.stamps else self.link_duration

    @property
    def posture(self) -> Array:
        """Mean joint angles, shape (n,) [rad]."""
        return np.mean(self._postures, axis=0)

    @property
    def travel(self) -> float:
        """Largest travel of a joint [rad]."""
        return float(np.ptp(np.array(self._postures), axis=0).max())

    @property
    def readings(self) -> Array:
        """Readings, shape (m, k, 6)."""
        return np.array(self._readings)

    @property
    def held(self) -> Array:
        """Mean of what the sensors hold, shape (k, 6)."""
        return np.mean(self._held, axis=0)

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Which sensors were good throughout, shape (k,)."""
        return np.asarray(np.all(np.array(self._valid), axis=0))

    def links(self) -> dict[int, tuple[Array, Array]]:
        """Return net wrenches and rates of the links with IMUs, shapes (m, 6) and (m, 3)."""
        return {index: (np.array(nets), np.array(self._rates[index]))
                for index, nets in self._nets.items()}


@dataclass(frozen=True)
class Tare:
    """What a tare found.

    Attributes:
        bias: Bias of each sensor, in its measurement frame, shape (k, 6) [N, N·m].
        std: Standard deviations of their means, shape (k, 6).
        scatter: Scatter of single readings, shape (k, 6).
        agreement: RMS difference of the two halves of the record, shape (k, 6).
        count: Number of instants.
        stamp: Stamp of the last one [s].
        remarks: What could not be checked, in sentences.

    """

    bias: Array
    std: Array
    scatter: Array
    agreement: Array
    count: int
    stamp: float
    remarks: tuple[str, ...] = ()


class Taring:
    """Tares sensors, and remembers postures to check the signs of lightly loaded ones.

    Attributes:
        arm: The arm cut at its sensors.
        names: Measurement frames of the sensors, for sentences and in results.

    """

    def __init__(self, arm: SensedArm) -> None:
        """Start without earlier postures."""
        self.arm = arm
        self.names = [mount.frame for mount in arm.mounts]
        self._seen: list[tuple[Array, Array]] = []

    def forget(self) -> None:
        """Forget earlier postures, as when the load has changed."""
        self._seen.clear()

    def find(self, record: TareRecord, values: WrenchParameters) -> Tare:
        """Return the biases.

        Args:
            record: What was collected at rest.
            values: The parameters: what is accepted.

        Raises:
            DataError: If the arm moved, readings are missing or scatter, or a sensor reads
                what no bias explains; with the names of swapped or reversed sensors.

        """
        readings = self.rest_readings(record, values)
        # What the sensors should read without bias, in measurement frames, (k, 6).
        expected = self.arm.in_measurement(-record.held)
        mean = readings.mean(axis=0)
        limits = np.repeat([values.tare_force_limit, values.tare_torque_limit], 3)
        self._check_identity(mean, expected, record, limits)
        remarks = self._check_signs(mean, expected, readings.std(axis=0) + 1e-3, limits)
        half = len(readings) // 2
        return Tare(
            bias=mean - expected,
            std=readings.std(axis=0, ddof=1) / np.sqrt(len(readings)),
            scatter=readings.std(axis=0, ddof=1),
            agreement=np.abs(readings[:half].mean(axis=0) - readings[half:].mean(axis=0)),
            count=len(readings), stamp=record.stamps[-1], remarks=remarks)

    def find_links(self, record: TareRecord, values: WrenchParameters) -> dict[int, Array]:
        """Return what links with IMUs read in all, for arms without joint states.

        The sum of weight and biases is taken off, so it holds for rigid links, whose biases
        turn with them. Arguments as of ``find``.

        Raises:
            DataError: If a link turned or its wrench scatters.

        """
        found = {}
        for index, (nets, rates) in record.links().items():
            link = self.arm.chains[index].link
            rate = float(np.linalg.norm(rates.mean(axis=0)))
            if rate > _MAX_RATE:
                raise DataError(
                    f"'{link}' turned at {rate:.3f} rad/s during the tare; expected rest, less "
                    f'than {_MAX_RATE:g} rad/s. Hold the arm still and call again.')
            _check_scatter(nets.std(axis=0), values, f"Link '{link}'")
            found[index] = nets.mean(axis=0)
        return found

    # ----------------------------------------------------------------------- checks

    def rest_readings(self, record: TareRecord, values: WrenchParameters) -> Array:
        """Return the readings of a record, shape (m, k, 6) [N, N·m]; arguments as of ``find``.

        Raises:
            DataError: If it is no rest: too few instants, the arm moved, readings are missing
                or scatter.

        """
        if len(record.stamps) < _FEWEST:
            raise DataError(
                f'Only {len(record.stamps)} complete instants came during the tare; expected '
                f'{_FEWEST} or more. Check joint states and sensors in ~/status.')
        if record.travel > _MAX_TRAVEL:
            raise DataError(
                f'A joint moved by {record.travel:.4f} rad during the tare; expected rest, less '
                f'than {_MAX_TRAVEL:g} rad. Hold the arm still and call again.')
        for name, good in zip(self.names, record.valid, strict=True):
            if not good:
                raise DataError(f"Sensor '{name}' gave no usable readings during the tare; see "
                                '~/status for the reason.')
        readings = record.readings
        for i, name in enumerate(self.names):
            _check_scatter(readings[:, i].std(axis=0), values, f"Sensor '{name}'")
        return readings

    def _check_identity(
        self, mean: Array, expected: Array, record: TareRecord, limits: Array
    ) -> None:
        """Refuse readings that no bias explains, and say what does."""
        bias = mean - expected
        odd = [i for i in range(len(mean)) if _share(bias[i], limits) > 1.0]
        if not odd:
            return
        found = []
        explained: set[int] = set()
        for i in odd:
            if _share(mean[i] + expected[i], limits) <= 1.0:
                found.append(f"'{self.names[i]}' reads the opposite of the weight that it "
                             'carries: change its sign in sensor_signs')
                explained.add(i)
        for i in odd:
            for j in range(len(mean)):
                if j == i or {i, j} & explained:
                    continue
                crossed = (mean[i] - expected[j], mean[j] - expected[i])
                size = max(_share(crossed[0], limits), _share(crossed[1], limits))
                if size <= 1.0 and size < max(_share(bias[i], limits), _share(bias[j], limits)):
                    found.append(f"'{self.names[i]}' and '{self.names[j]}' read each other's "
                                 'weight: they are swapped, exchange their topics or cables')
                    explained |= {i, j}
        if explained >= set(odd):
            raise DataError(f'The tare was refused: {"; ".join(found)}. Then call tare again.')
        rest = [i for i in odd if i not in explained]
        load = self._missing_load(bias, rest, record, limits[0])
        if load:
            raise DataError(f'The tare was refused: {load}')
        worst = max(rest, key=lambda i: _share(bias[i], limits))
        force, torque = np.abs(bias[worst, :3]).max(), np.abs(bias[worst, 3:]).max()
        also = f' Besides, {"; ".join(found)}.' if found else ''
        raise DataError(
            f"The tare was refused: sensor '{self.names[worst]}' would have a bias of "
            f'{force:.1f} N and {torque:.2f} N·m; expected at most '
            f'{limits[0]:g} N and {limits[3]:g} N·m. '
            'Is something touching the arm, is its frame as in the robot description, is the '
            f'load identified? A larger bias is allowed by tare_force_limit.{also}')

    def _missing_load(
        self, bias: Array, odd: Sequence[int], record: TareRecord, limit: float
    ) -> str:
        """Return a sentence if all that is odd is one weight that the model lacks.

        Args:
            bias: Apparent biases, shape (k, 6) [N, N·m].
            odd: The sensors concerned.
            record: What was collected at rest.
            limit: Largest bias of a force component [N].

        """
        gravity = np.array(self.arm.robot.gravity)
        size = float(np.linalg.norm(gravity))
        if size == 0.0:
            return ''
        down = gravity / size
        turned = np.einsum('kij,kj->ki', self.arm.rotations_to_root(record.posture),
                           self.arm.in_links(bias)[:, :3])
        weight = float((turned[list(odd)] @ down).mean())
        left = turned[list(odd)] - weight * down
        if weight < _LOAD * limit or np.abs(left).max() > limit:
            return ''
        outermost = min(odd, key=lambda i: len(self._beyond(i)))
        names = ', '.join(f"'{self.names[i]}'" for i in odd)
        return (f'{names} carry about {weight / size:.1f} kg more than the model knows, beyond '
                f"'{self.names[outermost]}'. Identify the payload first, or take it off.")

    def _beyond(self, index: int) -> list[int]:
        """Return all sensors beyond one."""
        found: list[int] = []
        waiting = list(self.arm.chains[index].distal)
        while waiting:
            d = waiting.pop()
            found.append(d)
            waiting += self.arm.chains[d].distal
        return found

    def _check_signs(
        self, mean: Array, expected: Array, noise: Array, limits: Array
    ) -> tuple[str, ...]:
        """Check signs that one posture does not show against earlier postures."""
        open_signs = []
        for i, name in enumerate(self.names):
            if _share(mean[i] + expected[i], limits) > 1.0:
                continue
            checked = False
            for before, expected_before in self._seen:
                change = (expected[i] - expected_before[i]) / noise[i]
                if np.linalg.norm(change) < _CLEAR:
                    continue
                checked = True
                seen = (mean[i] - before[i]) / noise[i]
                if np.linalg.norm(seen + change) < np.linalg.norm(seen - change):
                    raise DataError(
                        f"The tare was refused: between two postures '{name}' changed by the "
                        'opposite of what the weight beyond it did: change its sign in '
                        'sensor_signs. Then call tare again.')
            if not checked:
                open_signs.append(name)
        self._seen.append((mean, expected))
        if not open_signs:
            return ()
        carry = 'carries' if len(open_signs) == 1 else 'carry'
        return (f'{", ".join(open_signs)} {carry} less than a bias may be, so the sign is '
                'unchecked: tare once more in another posture to check it.',)


def _share(bias: Array, limits: Array) -> float:
    """Return the largest share that a component of a bias has of its limit; both (6,)."""
    return float((np.abs(bias) / limits).max())


def _check_scatter(scatter: Array, values: WrenchParameters, who: str) -> None:
    limits = np.repeat([values.tare_force_std, values.tare_torque_std], 3)
    excess = scatter / limits
    worst = int(np.argmax(excess))
    if excess[worst] > 1.0:
        raise DataError(
            f'{who} scatters by {scatter[worst]:.3g} {_UNITS[worst]} ({_AXES[worst]}) during '
            f'the tare; expected at most {limits[worst]:g} {_UNITS[worst]}. Let nothing touch '
            'or shake the arm and call again.')


def to_result(
    tare: Tare, frames: Sequence[str], robot: RobotIdentity, values: WrenchParameters,
    source: str,
) -> CalibrationResult:
    """Return a tare as a result to be filed.

    Args:
        tare: What was found.
        frames: The sensors' measurement frames.
        robot: For which robot.
        values: The parameters: what was accepted.
        source: ``live``, or the name of the bag.

    """
    parameters = [
        Parameter(f'{frame}.{axis}', unit, float(tare.bias[i, c]), float(tare.std[i, c]))
        for i, frame in enumerate(frames)
        for c, (axis, unit) in enumerate(zip(_AXES, _UNITS, strict=True))
    ]
    fits, held_out, checks = [], [], []
    for i, frame in enumerate(frames):
        for what, unit, part, limit in (
            ('force', 'N', slice(0, 3), values.tare_force_limit),
            ('torque', 'N·m', slice(3, 6), values.tare_torque_limit),
        ):
            before = rms(tare.bias[i, part])
            fits.append(Fit(f'{what} of {frame}', unit, before, rms(tare.scatter[i, part]),
                            tare.count))
            held_out.append(Fit(f'{what} of {frame}, one half against the other', unit, before,
                                rms(tare.agreement[i, part]), tare.count // 2))
            worst = float(np.abs(tare.bias[i, part]).max())
            checks.append(Check(f'{frame}: {what} bias', worst <= limit, worst, limit, unit,
                                f'The {what} bias of {frame} is {worst:.3g} {unit}.'))
    return CalibrationResult(
        kind=KIND, method=METHOD, robot=robot, frame='', parameters=tuple(parameters),
        covariance_names=tuple(p.name for p in parameters),
        covariance=np.diag(tare.std.ravel()**2), fit=tuple(fits), validation=tuple(held_out),
        checks=tuple(checks), counts={'samples': tare.count},
        settings={'duration': values.tare_duration, 'max_force_bias': values.tare_force_limit,
                  'max_torque_bias': values.tare_torque_limit},
        source=source, time=tare.stamp, software_version=__version__)


def biases(result: CalibrationResult, frames: Sequence[str]) -> Array:
    """Return the biases of a tare result, shape (k, 6) [N, N·m].

    Args:
        result: The result.
        frames: The sensors' measurement frames.

    Raises:
        DataError: If it is no tare, or lacks a sensor.

    """
    if result.kind != KIND:
        raise DataError(f"Expected a result of kind '{KIND}', got '{result.kind}'.")
    return result.values([f'{frame}.{axis}' for frame in frames for axis in _AXES]).reshape(-1, 6)
