# SPDX-License-Identifier: Apache-2.0
"""Result files: one strict YAML schema for all calibrations, and the store on disk."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import numpy as np
import yaml

from robocal_ros import files
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, FileFormatError
from robocal_ros.files import Finite, convert, refuse
from robocal_ros.results.provenance import FAILED
from robocal_ros.results.result import (
    SCHEMA_VERSION,
    CalibrationResult,
    Count,
    Parameter,
    RobotIdentity,
    Series,
    State,
    Verdict,
)

_LOGGER = logging.getLogger(__name__)

_END = '\n...'
"""End marker of a YAML document, which reveals truncated files."""

_KIND = r'[a-z][a-z0-9_]*'
# Room that a result needs on the disk [bytes].
_ROOM = 1 << 20
_RELATIVE = 1e-6
"""Relative tolerance of redundant figures, such as a variance and its interval."""

# ---------------------------------------------------------------------------- schema
#
# The schema of a file is the type of a result: each field of its dataclasses is a key, in their
# order, at the same place or at one of these.

_PLACES = {'checks': 'verdict.checks', 'covariance_names': 'covariance.names',
           'covariance': 'covariance.matrix', 'counts': 'samples', 'series': 'plots'}
_TYPES = {**get_type_hints(CalibrationResult, include_extras=True),
          'kind': Annotated[str, msgspec.Meta(pattern=f'^{_KIND}$')],
          'covariance': list[list[Finite]], 'counts': dict[str, Any]}
# Keys that files of earlier versions lack.
_ADDED = {'freedom', 'pure_error', 'unexplained', 'question', 'evaluated', 'inputs', 'efforts'}
_MISSING = object()
_INTERVAL: Any = tuple[Finite, Finite] | None


# ---------------------------------------------------------------------------- writing

_BaseDumper: Any = getattr(yaml, 'CSafeDumper', yaml.SafeDumper)


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Block style with lists of numbers on one line and without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Write equal values out in full."""
        return True


def _represent_list(dumper: Any, items: Sequence[object]) -> Any:
    return dumper.represent_sequence(
        'tag:yaml.org,2002:seq', items,
        flow_style=all(isinstance(item, int | float) for item in items))


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(tuple, _represent_list)


def to_yaml(result: CalibrationResult) -> str:
    """Return a result as YAML, from which ``from_yaml`` restores identical numbers.

    Raises:
        DataError: If the result is not valid: a number that is not finite, an inconsistent
            covariance, or a setting that is not plain data.

    """
    try:
        document = _document(result)
        _result(document, 'the result')
        return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True,
                         width=99, default_flow_style=False, explicit_end=True)
    except (FileFormatError, TypeError, UnicodeEncodeError) as error:
        raise DataError(
            f'The {result.kind} result is not valid and was not written: {error}'
        ) from error


def _document(result: CalibrationResult) -> dict[str, Any]:
    """Return the content of a result's file as plain values."""
    content = msgspec.to_builtins(result, enc_hook=_plain, str_keys=True)
    document: dict[str, Any] = {'schema_version': SCHEMA_VERSION}
    for field in fields(result):
        *groups, key = _PLACES.get(field.name, field.name).split('.')
        place = document
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = content[field.name]
    # Derived, for readers without this package.
    for entry, parameter in zip(document['parameters'], result.parameters, strict=True):
        entry['interval_95'] = parameter.interval()
    document['verdict'].update(value=result.verdict.value, reasons=list(result.reasons))
    return document


def _plain(value: object) -> object:
    """Return NumPy scalars and arrays as plain values; raises TypeError for other types."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(
        f'it contains a {type(value).__name__}; expected strings, numbers, flags, lists and '
        'mappings.'
    )


# ---------------------------------------------------------------------------- reading


def from_yaml(
    text: str, robot: RobotIdentity | None = None, name: str = 'text'
) -> CalibrationResult:
    """Return the result of a YAML text.

    Args:
        text: The YAML.
        robot: Required robot; any by default. Name and joints must match; a different URDF is
            logged as a warning.
        name: Name of the file, for error messages.

    Raises:
        FileFormatError: If the text is not a consistent result of this version and robot.

    """
    document = files.load(text, name)
    # Checked first, because another version may differ in every key.
    version = document.get('schema_version') if isinstance(document, dict) else None
    if isinstance(document, dict) and (version != SCHEMA_VERSION or isinstance(version, bool)):
        raise refuse(
            name, 'schema_version', str(SCHEMA_VERSION), version,
            'Read it with the version of this package that wrote it, or calibrate again.')
    if not text.rstrip().endswith(_END):
        raise FileFormatError(
            f"{name} is truncated: expected '...' in its last line. Restore it from the history "
            'folder, or calibrate again.'
        )
    result = _result(document, name)
    if robot is not None:
        _check_robot(result.robot, robot, name)
    return result


def _result(document: object, name: str) -> CalibrationResult:
    """Return the result of a document; raises FileFormatError if it is inconsistent."""
    content: dict[str, Any] = {}
    for field in fields(CalibrationResult):
        place = _PLACES.get(field.name, field.name)
        value = _at(document, place, name)
        if value is _MISSING and field.name not in _ADDED:
            raise refuse(name, place, 'a value', 'nothing')
        if value is not _MISSING:
            content[field.name] = convert(value, _TYPES[field.name], name, place,
                                          # Arrays are checked and converted later.
                                          lambda _, values: np.array(values, dtype=object))
    for row, parameter in enumerate(content['parameters']):
        if parameter.state is State.IDENTIFIED and parameter.value is None:
            raise refuse(name, f'parameters[{row}].value',
                         f"a number, because '{parameter.name}' is identified", None)
    for key, names in (('parameters', [item.name for item in content['parameters']]),
                       ('covariance.names', content['covariance_names']),
                       ('robot.joint_names', content['robot'].joint_names)):
        if len(set(names)) != len(names):
            raise refuse(name, key, 'names that all differ', list(names))
    _check_plain(content['settings'], name, 'settings')
    for row, check in enumerate(content['checks']):
        _check_plain(asdict(check), name, f'verdict.checks[{row}]')
    for key, count in content['counts'].items():
        convert(count, Count, name, f'samples.{key}')
    content['covariance'] = _covariance(
        content['covariance_names'], content['covariance'], content['parameters'], name)
    content['series'] = tuple(_series(item, name, f'plots[{row}]')
                              for row, item in enumerate(content['series']))
    result = CalibrationResult(**content)
    _check_keys(document, _document(result), name)
    convert(_at(document, 'verdict.reasons', name), list[str], name, 'verdict.reasons')
    if (value := _at(document, 'verdict.value', name)) != result.verdict.value:
        raise refuse(name, 'verdict.value',
                     f"'{result.verdict.value}', which follows from the checks", value)
    for row, (entry, parameter) in enumerate(zip(
            _at(document, 'parameters', name), result.parameters, strict=True)):
        key, interval = f'parameters[{row}].interval_95', parameter.interval()
        found = convert(entry['interval_95'], _INTERVAL, name, key)
        # Relative to the larger of value and interval: the ends are differences of the two.
        if found != interval and not (found and interval and np.allclose(
                found, interval, rtol=0.0, atol=_RELATIVE * max(
                    abs(interval[1] - interval[0]), 1e-9 * abs(interval[0])))):
            raise refuse(name, key, f'{list(interval) if interval else "null"}, which follows '
                         'from value and std', entry['interval_95'])
    return result


def _at(document: object, place: str, name: str) -> Any:
    """Return the value at a place of a document, ``_MISSING`` without the key."""
    found, path = document, ''
    for key in place.split('.'):
        if not isinstance(found, dict):
            raise refuse(name, path or 'the whole file', f'a mapping with {key}', found)
        found, path = found.get(key, _MISSING), f'{path}.{key}'.lstrip('.')
    return found


def _check_keys(read: Any, written: Any, name: str, at: str = '') -> None:
    """Raise a FileFormatError for keys that are unknown, or missing.

    Args:
        read: Content of a file.
        written: Content of the file that would be written for it.
        name: Name of the file.
        at: Place of both in the file.

    """
    if isinstance(read, list) and isinstance(written, list | tuple):
        for row, (item, other) in enumerate(zip(read, written, strict=False)):
            _check_keys(item, other, name, f'{at}[{row}]')
    elif isinstance(read, dict) and isinstance(written, dict):
        for key in {**read, **written}:
            place = f'{at}.{key}'.lstrip('.')
            if key not in written:
                raise FileFormatError(f"{name}, key '{place}' is unknown; expected only "
                                      f'{", ".join(written)}. {files.REMEDY}')
            if key in read:
                _check_keys(read[key], written[key], name, place)
            elif key not in _ADDED:
                raise refuse(name, place, 'a value', 'nothing')


def _covariance(
    names: Sequence[str], rows: list[list[float]], parameters: Sequence[Parameter], name: str
) -> Array:
    key, size = 'covariance.matrix', len(names)
    if len(rows) != size:
        raise refuse(name, key, f'{size} rows', f'{len(rows)} rows')
    for row, values in enumerate(rows):
        if len(values) != size:
            raise refuse(name, f'{key}[{row}]', f'{size} numbers', f'{len(values)} numbers')
    matrix = np.array(rows, dtype=float).reshape(size, size)
    deviations = {parameter.name: parameter.std for parameter in parameters}
    for row, own in enumerate(names):
        std = deviations.get(own)
        if std is None:
            raise refuse(name, f'covariance.names[{row}]',
                         'the name of a parameter that has a std', own)
        if not np.isclose(matrix[row, row], std**2, rtol=_RELATIVE, atol=0.0):
            raise refuse(name, f'{key}[{row}][{row}]', f"{std**2!r}, the squared std of '{own}'",
                         float(matrix[row, row]))
    if not size:
        return matrix
    deviation = np.sqrt(np.diag(matrix))
    scale = np.outer(deviation, deviation)
    correlation = matrix / np.where(scale > 0.0, scale, 1.0)
    asymmetry = float(np.abs(correlation - correlation.T).max())
    if asymmetry > _RELATIVE:
        raise refuse(name, key, 'a symmetric matrix',
                     f'one whose correlations differ by {asymmetry:.3g}')
    smallest = float(np.linalg.eigvalsh(0.5 * (correlation + correlation.T))[0])
    if smallest < -_RELATIVE:
        raise refuse(name, key, 'a positive semidefinite matrix',
                     f'one whose smallest eigenvalue, as correlations, is {smallest:.3g}')
    return matrix


def _series(item: Series, name: str, at: str) -> Series:
    """Return a series with its lists as arrays."""
    def array(values: Any, key: str) -> Array:
        return np.array(convert(values.tolist(), list[Finite], name, f'{at}.{key}'), dtype=float)

    x = array(item.x, 'x')
    curves = {curve: array(values, f'curves.{curve}') for curve, values in item.curves.items()}
    for curve, values in curves.items():
        if len(values) != len(x):
            raise refuse(name, f'{at}.curves.{curve}', f'{len(x)} numbers',
                         f'{len(values)} numbers')
    return replace(item, x=x, curves=curves)


def _check_plain(value: object, name: str, at: str) -> None:
    """Raise a FileFormatError for NaN, dates, numeric keys and other values of YAML only."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise refuse(name, at, 'a mapping with strings as keys', key)
            _check_plain(item, name, f'{at}.{key}')
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check_plain(item, name, f'{at}[{i}]')
    elif isinstance(value, float) and np.isnan(value):
        raise refuse(name, at, 'a number', value)
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise refuse(name, at, 'a string, number, flag, list or mapping', value)


def _check_robot(written: RobotIdentity, robot: RobotIdentity, name: str) -> None:
    remedy = ('Use the files of this robot, or calibrate it. Two robots need a robot_name or a '
            'results_dir each.')
    if written.name != robot.name:
        raise refuse(name, 'robot.name', f"'{robot.name}', the present robot", written.name,
                     remedy)
    if written.joint_names != robot.joint_names:
        raise FileFormatError(
            f"{name}, key 'robot.joint_names': expected {', '.join(robot.joint_names)}, the "
            f'joints of the present robot, got {", ".join(written.joint_names)}. {remedy}')
    if not written.is_described_as(robot):
        _LOGGER.warning(
            "%s was identified with another description of robot '%s': links, joints, inertias or "
            'limits differ. Calibrate again if those of the arm have changed.', name, robot.name)


# ---------------------------------------------------------------------------- keeping


def read_result(
    path: Path, robot: RobotIdentity | None = None, *, passed: bool = False
) -> CalibrationResult:
    """Read a result file.

    Args:
        path: The file.
        robot: Required robot; any by default.
        passed: Whether its verdict must be pass.

    Raises:
        ConfigurationError: If it cannot be read.
        FileFormatError: If it is not a result for this robot, or did not pass.

    """
    text = files.read_text(path, 'result file',
                     'Check its name, or restore it from the history folder.')
    result = from_yaml(text, robot, str(path))
    if passed and result.verdict is not Verdict.PASS:
        raise refuse(str(path), 'verdict.value', "'pass'", result.verdict.value,
                     'Calibrate again, or restore a file from the history folder.')
    return result


def write_result(result: CalibrationResult, path: Path) -> None:
    """Write a result file atomically, replacing an existing one.

    Raises:
        ConfigurationError: If it cannot be written.
        DataError: If the result is not valid.

    """
    files.write_output(path, to_yaml(result), f'{result.kind} result')


def default_directory(robot_name: str) -> Path:
    """Return the default results folder of a robot, its name with ``_`` for other characters."""
    home = Path(os.environ.get('ROS_HOME') or '~/.ros').expanduser()
    folder = re.sub(r'[^\w.-]', '_', robot_name).strip('.') or 'robot'
    return home / 'robocal' / folder


def check_writable(folder: Path) -> None:
    """Raise a ConfigurationError if results cannot be written to a folder, which is created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigurationError(
            f'Results cannot be written to {folder} ({error.strerror or error}). Make the folder '
            'writable, free some space, or set results_dir (or ROS_HOME).') from error


class ResultStore:
    """Results of one robot in a folder.

    ``<kind>.yaml`` is the newest result that passed, ``history/`` contains all that passed, and
    ``<kind>.failed.yaml`` is the newest that did not. Files are written atomically, so readers and
    several writers need no lock.
    """

    def __init__(self, directory: Path, robot: RobotIdentity) -> None:
        """Set the folder, which is created with the first result, and the robot."""
        self.directory = directory.expanduser()
        self.robot = robot

    def path(self, kind: str) -> Path:
        """Return the file of the newest passed result of a kind; raises ConfigurationError."""
        if not re.fullmatch(_KIND, kind):
            raise ConfigurationError(
                f"'{kind}' is not a kind of result; expected lower-case letters, digits and "
                'underscores, such as payload.'
            )
        return self.directory / f'{kind}.yaml'

    def save(self, result: CalibrationResult) -> Path:
        """Save a result and return its file; a failed result never replaces a passed one.

        Raises:
            ConfigurationError: If the folder cannot be written, or the result is another robot's.
            DataError: If the result is not valid.

        """
        own, other = self.robot, result.robot
        if (own.name, own.joint_names) != (other.name, other.joint_names):
            raise ConfigurationError(
                f"The {result.kind} result is of robot '{other.name}' with joints "
                f"{', '.join(other.joint_names)}; {self.directory} contains those of "
                f"'{own.name}' with {', '.join(own.joint_names)}. Nothing was saved; give each "
                'robot a results_dir of its own.')
        text = to_yaml(result)
        path = self.path(result.kind)
        try:
            if result.verdict is not Verdict.PASS:
                path = path.with_suffix(f'{FAILED}.yaml')
            else:
                # A unique name, from the present time.
                now = datetime.now(timezone.utc)
                files.write_atomically(
                    self.directory / 'history' / f'{result.kind}-{now:%Y%m%dT%H%M%S.%fZ}-'
                    f'{uuid.uuid4().hex[:8]}.yaml', text)
            files.write_atomically(path, text)
        except OSError as error:
            raise ConfigurationError(
                f'The {result.kind} result could not be written to {self.directory} '
                f'({error.strerror or error}); an earlier result is unchanged. Make the '
                'folder writable or name another one as results_dir.'
            ) from error
        return path

    def load(self, kind: str) -> CalibrationResult | None:
        """Return the newest passed result of a kind such as ``payload``, None without one.

        Args:
            kind: The kind; with ``FAILED`` behind it, the newest result that did not pass.

        Raises:
            ConfigurationError: If the folder cannot be read.
            FileFormatError: If the file is not a passing result of this kind and robot.

        """
        own = kind.removesuffix(FAILED)
        path = self.path(own).with_suffix('.yaml' if own == kind else f'{FAILED}.yaml')
        if not files.exists(path, 'result file'):
            return None
        result = read_result(path, self.robot, passed=own == kind)
        if result.kind != own:
            raise refuse(str(path), 'kind', f"'{own}'", result.kind)
        return result
