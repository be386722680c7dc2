# SPDX-License-Identifier: Apache-2.0
"""Result type of all calibrations: values, covariance, checks and verdict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import scipy

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import DataError
from robocal_ros.files import Finite, NonNegative, Positive

K = TypeVar('K', bound=Hashable)
T = TypeVar('T')

SCHEMA_VERSION = 1
# Values in the short form of a result.
_SHOWN = 12
# A number, because scipy.special takes long to import.
Z95 = 1.959963984540054
"""Half-width of a normal 95 % interval in standard deviations."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class State(str, Enum):
    """State of a parameter after estimation."""

    IDENTIFIED = 'identified'
    NOT_IDENTIFIED = 'not_identified'
    NOT_EVALUATED = 'not_evaluated'


class Verdict(str, Enum):
    """Verdict of the checks on a result."""

    PASS = 'pass'
    FAIL = 'fail'
    NOT_EVALUATED = 'not_evaluated'


@dataclass(frozen=True)
class Parameter:
    """Scalar parameter of a calibration.

    Attributes:
        name: Name, unique within the result.
        unit: SI unit, ``1`` for pure numbers.
        value: Value; None unless identified, given by the user, or a part of a covariance.
        std: Standard deviation; None if unknown.
        state: State after estimation.
        note: Reason for the state, or origin of a given value.
        freedom: Degrees of freedom of ``std`` (Student's distribution); None if it is exact.

    """

    name: str
    unit: str
    value: Finite | None = None
    std: NonNegative | None = None
    state: State = State.IDENTIFIED
    note: str = ''
    freedom: Positive | None = None

    def half_width(self, level: float = 0.95) -> float | None:
        """Return half the width of the confidence interval, None without value or std."""
        if self.value is None or self.std is None:
            return None
        share = 0.5 + level / 2.0
        return self.std * float(scipy.special.ndtri(share) if self.freedom is None
                                else scipy.special.stdtrit(self.freedom, share))

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Return the two-sided confidence interval of a level, None without value or std."""
        if self.value is None or (half := self.half_width(level)) is None:
            return None
        return self.value - half, self.value + half

    def text(self, digits: int, factor: float = 1.0) -> str:
        """Return value and half-width of the 95 % interval times a factor, without the unit.

        Args:
            digits: Number of decimals.
            factor: Factor of both, such as 1000 for millimetres.

        """
        if self.value is None:
            return self.state.value.replace('_', ' ')
        half = self.half_width()
        return f'{factor * self.value:.{digits}f}' + (
            f' ± {factor * half:.{digits}f}' if half else '')


@dataclass(frozen=True)
class Check:
    """Criterion of the verdict.

    Attributes:
        name: Name in words.
        passed: Whether the criterion is met.
        value: Measured figure.
        limit: Limit of the figure.
        unit: Unit of both.
        reason: Sentence for the user.
        question: Question that the check answers: ``informative`` (does the experiment observe
            the parameters?), ``adequate`` (does the model hold?), ``trustworthy`` (are the inputs
            reliable?), or empty.
        evaluated: Whether the data could decide it; otherwise the verdict is ``not_evaluated``.

    """

    name: str
    passed: bool
    value: float
    limit: float
    unit: str
    reason: str
    question: Literal['', 'informative', 'adequate', 'trustworthy'] = ''
    evaluated: bool = True


@dataclass(frozen=True)
class Fit:
    """Residuals of the model on a set of measurements.

    Attributes:
        what: Name of the measurements, e.g. ``torque of joint_6``.
        unit: Unit of the residuals.
        before: RMS of the measurements.
        after: RMS of the residuals.
        count: Number of measurements.
        pure_error: RMS of what differs between repeats; None without repeats.
        unexplained: RMS of what all repeats have in common and the model does not explain; None
            without repeats.

    """

    what: str
    unit: str
    before: Finite
    after: Finite
    count: Count
    pure_error: Finite | None = None
    unexplained: Finite | None = None


@dataclass(frozen=True)
class Series:
    """Data of a plot, thinned so that results stay small.

    Attributes:
        title: Title.
        x_label: Name and unit of the abscissa.
        y_label: Name and unit of the ordinate.
        x: Abscissa, shape (k,).
        curves: Ordinates by name, each of shape (k,).

    """

    title: str
    x_label: str
    y_label: str
    x: Array
    curves: dict[str, Array]


@dataclass(frozen=True)
class Input:
    """Result on which another one is built.

    Attributes:
        kind: Kind of the input, e.g. ``drive_gains``.
        name: Its method and source, in words; ``none`` for a kind that was not available.
        sha256: Its content hash, empty for a kind that was not available.

    """

    kind: str
    name: str
    sha256: str


@dataclass(frozen=True)
class Efforts:
    """What turned a driver's efforts into torques, before drive gains.

    Attributes:
        source: Parameter ``effort_source``.
        contents: Parameter ``effort_contains``.
        factor: Torque per effort of each joint: torque constant times gear ratio of currents.

    """

    source: str
    contents: str
    factor: tuple[Finite, ...]


@dataclass(frozen=True)
class RobotIdentity:
    """Robot of a result.

    Attributes:
        name: The URDF's robot name.
        urdf_sha256: Hash of the URDF text.
        joint_names: The arm's joints.
        mechanics_sha256: Hash of the URDF's links, joints, inertias and limits, which texts may
            have in common; empty in files of versions that did not write it.

    """

    name: str
    urdf_sha256: str
    joint_names: tuple[str, ...]
    mechanics_sha256: str = ''

    def is_described_as(self, other: RobotIdentity) -> bool:
        """Return whether the mechanics of both descriptions are the same."""
        if self.mechanics_sha256 and other.mechanics_sha256:
            return self.mechanics_sha256 == other.mechanics_sha256
        return self.urdf_sha256 == other.urdf_sha256


@dataclass(frozen=True)
class CalibrationResult:
    """Result of a calibration with its origin.

    Attributes:
        kind: Capability: ``payload``, ``friction`` …
        method: Method, e.g. ``two_plane``.
        robot: Robot of the result.
        frame: Frame of vector-valued parameters, empty for none.
        parameters: Parameters in order.
        covariance_names: Row order of ``covariance``.
        covariance: Covariance of the identified parameters, shape (p, p).
        fit: Residuals on the fitted data.
        validation: Residuals on held-out data; empty if not evaluated.
        checks: Criteria of the verdict.
        counts: Sample counts and drops.
        settings: Settings of the method.
        source: ``live`` or the name of the bag.
        time: Stamp of the newest sample [s].
        software_version: Version of this package.
        series: Plots.
        inputs: Results on which it is built.
        efforts: What turned efforts into torques; None if it is not built on efforts.

    """

    kind: str
    method: str
    robot: RobotIdentity
    frame: str
    parameters: tuple[Parameter, ...]
    covariance_names: tuple[str, ...]
    covariance: Array
    fit: tuple[Fit, ...]
    validation: tuple[Fit, ...]
    checks: tuple[Check, ...]
    counts: dict[str, Count]
    settings: dict[str, Any]
    source: str
    time: Finite
    software_version: str
    series: tuple[Series, ...] = field(default=())
    inputs: tuple[Input, ...] = ()
    efforts: Efforts | None = None

    def __post_init__(self) -> None:
        """Freeze and check the covariance; raises DataError."""
        object.__setattr__(self, 'covariance', frozen(self.covariance))
        size = len(self.covariance_names)
        if self.covariance.shape != (size, size):
            raise DataError(
                f'Covariance has shape {self.covariance.shape}, expected ({size}, {size}).')

    def __repr__(self) -> str:
        """Return verdict and first values with their 95 % intervals, one per line."""
        known = [
            f'  {p.name} {p.value:.6g}{f" ± {half:.2g}" if half else ""} {p.unit}'
            for p in self.parameters if p.value is not None for half in [p.half_width()]]
        if len(known) > _SHOWN:
            known[_SHOWN:] = [f'  … {len(known) - _SHOWN} more']
        return '\n'.join((f'{self.kind} by {self.method} of {self.robot.name}: '
                          f'{self.verdict.value.replace("_", " ")}', *known))

    @property
    def verdict(self) -> Verdict:
        """Verdict: fail if a check failed, not_evaluated without evidence, else pass."""
        if any(not check.passed for check in self.checks):
            return Verdict.FAIL
        evaluated = self.validation and all(check.evaluated for check in self.checks)
        return Verdict.PASS if evaluated else Verdict.NOT_EVALUATED

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of the failed checks, else of all checks."""
        failed = tuple(check.reason for check in self.checks if not check.passed)
        missing = tuple(check.reason for check in self.checks if not check.evaluated)
        if failed or missing or self.validation:
            return failed or missing or tuple(check.reason for check in self.checks)
        return ('No held-out data: the fit could not be validated.',)

    @cached_property
    def sha256(self) -> str:
        """Content hash: of all that another result may depend on, including its own inputs."""
        content = [
            self.kind, self.method, self.robot.name, self.robot.urdf_sha256,
            self.robot.joint_names, self.frame,
            [(p.name, p.unit, p.value, p.std, p.state.value) for p in self.parameters],
            self.covariance_names, self.covariance.tolist(), self.source, self.time,
            [(item.kind, item.sha256) for item in self.inputs]]
        if self.efforts is not None:
            content.append(asdict(self.efforts))
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def check_kind(self, *kinds: str) -> None:
        """Raise a DataError unless the result is of one of these kinds."""
        if self.kind not in kinds:
            expected = "' or '".join(kinds)
            raise DataError(f"Expected a result of kind '{expected}', got '{self.kind}'.")

    def as_input(self) -> Input:
        """Return the entry of this result among the inputs of another one."""
        return Input(self.kind, f'{self.method}, {self.source}', self.sha256)

    def covariance_of(self, names: Sequence[str]) -> Array:
        """Return the covariance of parameters, zero where there is none, shape (k, k)."""
        known = self.covariance_names
        rows = [known.index(name) if name in known else -1 for name in names]
        return np.pad(self.covariance, (0, 1))[np.ix_(rows, rows)]

    def parameter(self, name: str) -> Parameter:
        """Return a parameter by name; raises DataError with the existing names."""
        for candidate in self.parameters:
            if candidate.name == name:
                return candidate
        names = ', '.join(p.name for p in self.parameters)
        raise DataError(f"The {self.kind} result has no parameter '{name}'; it has {names}.")

    def values(self, names: Sequence[str]) -> Array:
        """Return identified or given values as an array; raises DataError if one is missing."""
        found = [self.parameter(name) for name in names]
        for parameter in found:
            if parameter.value is None:
                raise DataError(
                    f"Parameter '{parameter.name}' of the {self.kind} result is "
                    f'{parameter.state.value}: {parameter.note}'
                )
        return np.array([parameter.value for parameter in found], dtype=float)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by a key, in the order of their first ones."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def spread(count: int, most: int) -> npt.NDArray[np.intp]:
    """Return the indices of at most ``most`` evenly spread rows out of ``count``."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))


def rms(values: Array) -> float:
    """Return the root mean square, 0 for no values."""
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0
