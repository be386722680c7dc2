# SPDX-License-Identifier: Apache-2.0
"""Results as YAML: one schema for all calibrations, strict reading, and safe keeping on disk."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, FileFormatError
from robocal_ros.results.result import (
    SCHEMA_VERSION,
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    Series,
    State,
    Verdict,
)
from robocal_ros.results.strict import Section, load, refuse

_LOGGER = logging.getLogger(__name__)

_KEYS = (
    'schema_version', 'kind', 'method', 'verdict', 'robot', 'frame', 'parameters', 'covariance',
    'fit', 'validation', 'samples', 'settings', 'source', 'time', 'software_version', 'plots',
)
_PARAMETER_KEYS = ('name', 'unit', 'value', 'std', 'interval_95', 'state', 'note')
_CHECK_KEYS = ('name', 'passed', 'value', 'limit', 'unit', 'reason')
_FIT_KEYS = ('what', 'unit', 'before', 'after', 'count')
_PLOT_KEYS = ('title', 'x_label', 'y_label', 'x', 'curves')

_END = '\n...'
"""YAML's sign for the end of a document: without it a file cut between two keys looks whole."""

_KIND = re.compile(r'[a-z][a-z0-9_]*')
_RELATIVE = 1e-6
"""Agreement asked of figures that a file states twice, such as a variance and its interval."""


# ---------------------------------------------------------------------------- writing


class _Flow(list):  # type: ignore[type-arg]
    """A list that is written in one line."""


_BaseDumper: Any = getattr(yaml, 'CSafeDumper', yaml.SafeDumper)


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Block style, but numeric arrays in flow style; no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Write equal values out in full."""
        return True


_Dumper.add_representer(
    _Flow,
    lambda dumper, data: dumper.represent_sequence('tag:yaml.org,2002:seq', data, flow_style=True),
)


def to_yaml(result: CalibrationResult) -> str:
    """Write a result as YAML; ``from_yaml`` gives back the same numbers to the last bit.

    Args:
        result: The result.

    Raises:
        DataError: If the result holds what no reader would take: a number that is not finite, a
            covariance that is none, a setting that is not plain data.

    """
    document = _document(result)
    try:
        _result(document, 'the result')
        text: str = yaml.dump(
            document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=99,
            default_flow_style=False, explicit_end=True,
        )
    except (FileFormatError, UnicodeEncodeError) as error:
        raise DataError(
            f'The {result.kind} result cannot be written because no reader would take it: {error}'
        ) from error
    return text


def _document(result: CalibrationResult) -> dict[str, Any]:
    return {
        'schema_version': SCHEMA_VERSION,
        'kind': result.kind,
        'method': result.method,
        'verdict': {
            'value': result.verdict.value,
            'reasons': list(result.reasons),
            'checks': [
                {'name': c.name, 'passed': bool(c.passed), 'value': float(c.value),
                 'limit': float(c.limit), 'unit': c.unit, 'reason': c.reason}
                for c in result.checks
            ],
        },
        'robot': {
            'name': result.robot.name,
            'urdf_sha256': result.robot.urdf_sha256,
            'joint_names': list(result.robot.joint_names),
        },
        'frame': result.frame,
        'parameters': [_parameter_document(p) for p in result.parameters],
        'covariance': {
            'names': list(result.covariance_names),
            'matrix': [_Flow(row) for row in result.covariance.tolist()],
        },
        'fit': [_fit_document(fit) for fit in result.fit],
        'validation': [_fit_document(fit) for fit in result.validation],
        'samples': {name: int(count) for name, count in result.counts.items()},
        'settings': _plain(result.settings, 'settings'),
        'source': result.source,
        'time': float(result.time),
        'software_version': result.software_version,
        'plots': [
            {'title': s.title, 'x_label': s.x_label, 'y_label': s.y_label,
             'x': _Flow(np.asarray(s.x, dtype=float).tolist()),
             'curves': {name: _Flow(np.asarray(y, dtype=float).tolist())
                        for name, y in s.curves.items()}}
            for s in result.series
        ],
    }


def _parameter_document(parameter: Parameter) -> dict[str, Any]:
    interval = parameter.interval()
    return {
        'name': parameter.name,
        'unit': parameter.unit,
        'value': None if parameter.value is None else float(parameter.value),
        'std': None if parameter.std is None else float(parameter.std),
        'interval_95': None if interval is None else _Flow(float(end) for end in interval),
        'state': parameter.state.value,
        'note': parameter.note,
    }


def _fit_document(fit: Fit) -> dict[str, Any]:
    return {'what': fit.what, 'unit': fit.unit, 'before': float(fit.before),
            'after': float(fit.after), 'count': int(fit.count)}


def _plain(value: object, path: str) -> Any:
    """Turn a setting into what YAML knows: NumPy's scalars and arrays, tuples; or refuse it."""
    if isinstance(value, dict):
        return {str(key): _plain(item, f'{path}.{key}') for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist(), path)
    if isinstance(value, list | tuple):
        items = [_plain(item, path) for item in value]
        numeric = all(isinstance(item, int | float) for item in items)
        return _Flow(items) if numeric else items
    if isinstance(value, Enum):
        return _plain(value.value, path)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(
        f"'{path}' of the result holds a {type(value).__name__}; expected texts, numbers, flags "
        'and lists or mappings of them. Give the settings of a method plain values.'
    )


# ---------------------------------------------------------------------------- reading


def from_yaml(
    text: str, robot: RobotIdentity | None = None, name: str = 'text'
) -> CalibrationResult:
    """Read a result, and refuse whatever is not one, of this version and for this robot.

    Args:
        text: The YAML.
        robot: For which robot it must be; any by default. Name and joints must be the same; if
            only the URDF differs, a warning is logged.
        name: Name of the file, for the sentences.

    Raises:
        FileFormatError: With file, key, what was expected, what is there, and the cure.

    """
    document = load(text, name)
    _check_version(document, name)
    if not text.rstrip().endswith(_END):
        raise FileFormatError(
            f"{name} is cut off: expected '...' in its last line, where a result ends. Restore "
            'it from the history folder, or calibrate again.'
        )
    result = _result(document, name)
    if robot is not None:
        _check_robot(result.robot, robot, name)
    return result


def _result(document: object, name: str) -> CalibrationResult:
    root = Section(name, '', document, _KEYS)
    kind = root.text('kind')
    if not _KIND.fullmatch(kind):
        raise root.refuse('kind', 'lower-case letters, digits and underscores')
    parameters = tuple(_parameter(item) for item in root.sections('parameters', _PARAMETER_KEYS))
    names = [parameter.name for parameter in parameters]
    if len(set(names)) != len(names):
        raise refuse(name, 'parameters', 'names that all differ', names)
    covariance_names, covariance = _covariance(root, parameters)
    robot = root.section('robot', ('name', 'urdf_sha256', 'joint_names'))
    verdict = root.section('verdict', ('value', 'reasons', 'checks'))
    verdict.texts('reasons')
    counts = root.section('samples')
    result = CalibrationResult(
        kind=kind,
        method=root.text('method'),
        robot=RobotIdentity(
            robot.text('name'), robot.text('urdf_sha256'), robot.unique_texts('joint_names')
        ),
        frame=root.text('frame'),
        parameters=parameters,
        covariance_names=covariance_names,
        covariance=covariance,
        fit=_fits(root, 'fit'),
        validation=_fits(root, 'validation'),
        checks=tuple(_check(item) for item in verdict.sections('checks', _CHECK_KEYS)),
        counts={key: counts.count(key) for key in root.names('samples')},
        settings=_settings(root),
        source=root.text('source'),
        time=root.number('time'),
        software_version=root.text('software_version'),
        series=tuple(_series(item) for item in root.sections('plots', _PLOT_KEYS)),
    )
    if verdict.one_of('value', [v.value for v in Verdict]) != result.verdict.value:
        raise verdict.refuse('value', f"'{result.verdict.value}', which follows from the checks")
    return result


def _check_version(document: object, name: str) -> None:
    """Look at the version before anything else: in another one all may be different."""
    version = document.get('schema_version') if isinstance(document, dict) else None
    if isinstance(document, dict) and (version != SCHEMA_VERSION or isinstance(version, bool)):
        raise refuse(
            name, 'schema_version', str(SCHEMA_VERSION), version,
            'Read it with the version of this package that wrote it, or calibrate again.',
        )


def _parameter(item: Section) -> Parameter:
    parameter = Parameter(
        name=item.text('name'),
        unit=item.text('unit'),
        value=item.optional_number('value'),
        std=item.optional_number('std'),
        state=State(item.one_of('state', [state.value for state in State])),
        note=item.text('note'),
    )
    if parameter.state is State.IDENTIFIED and parameter.value is None:
        raise item.refuse('value', f"a number, because '{parameter.name}' is identified")
    if parameter.std is not None and parameter.std < 0.0:
        raise item.refuse('std', 'a number that is not negative')
    interval = parameter.interval()
    if interval is None:
        if item.raw('interval_95') is not None:
            raise item.refuse('interval_95', 'null, because value or std is missing')
        return parameter
    written = item.vector('interval_95', 2)
    # Relative to the larger of value and interval: the ends are differences of the two.
    tolerance = _RELATIVE * max(abs(interval[1] - interval[0]), 1e-9 * abs(interval[0]))
    if not np.allclose(written, interval, rtol=0.0, atol=tolerance):
        raise item.refuse('interval_95', f'{list(interval)}, which follows from value and std')
    return parameter


def _covariance(
    root: Section, parameters: Sequence[Parameter]
) -> tuple[tuple[str, ...], Array]:
    item = root.section('covariance', ('names', 'matrix'))
    names = item.unique_texts('names')
    matrix = item.matrix('matrix', len(names))
    known = {parameter.name: parameter for parameter in parameters}
    for row, name in enumerate(names):
        parameter = known.get(name)
        if parameter is None or parameter.std is None:
            raise refuse(item.name, f'{item.path("names")}[{row}]',
                         'the name of a parameter that has a std', name)
        if not np.isclose(matrix[row, row], parameter.std**2, rtol=_RELATIVE, atol=0.0):
            raise refuse(item.name, f'{item.path("matrix")}[{row}][{row}]',
                         f"{parameter.std**2!r}, the squared std of '{name}'",
                         float(matrix[row, row]))
    _check_covariance(item, matrix)
    return names, matrix


def _check_covariance(item: Section, matrix: Array) -> None:
    """Refuse what cannot be a covariance: asymmetric, or with a negative variance somewhere."""
    if not len(matrix):
        return
    deviation = np.sqrt(np.diag(matrix))
    scale = np.outer(deviation, deviation)
    scale = np.where(scale > 0.0, scale, 1.0)
    correlation = matrix / scale
    asymmetry = float(np.abs(correlation - correlation.T).max())
    if asymmetry > _RELATIVE:
        raise refuse(item.name, item.path('matrix'), 'a symmetric matrix',
                     f'one whose correlations differ by {asymmetry:.3g}')
    smallest = float(np.linalg.eigvalsh(0.5 * (correlation + correlation.T))[0])
    if smallest < -_RELATIVE:
        raise refuse(item.name, item.path('matrix'), 'a positive semidefinite matrix',
                     f'one whose smallest eigenvalue, as correlations, is {smallest:.3g}')


def _check(item: Section) -> Check:
    # A ratio to a scatter of zero is infinite, and so is a limit that was switched off.
    return Check(item.text('name'), item.flag('passed'), item.number('value', infinite=True),
                 item.number('limit', infinite=True), item.text('unit'), item.text('reason'))


def _fits(root: Section, key: str) -> tuple[Fit, ...]:
    return tuple(
        Fit(item.text('what'), item.text('unit'), item.number('before'), item.number('after'),
            item.count('count'))
        for item in root.sections(key, _FIT_KEYS)
    )


def _series(item: Section) -> Series:
    x = item.vector('x')
    curves = item.section('curves')
    return Series(
        item.text('title'), item.text('x_label'), item.text('y_label'), x,
        {name: curves.vector(name, len(x)) for name in item.names('curves')},
    )


def _settings(root: Section) -> dict[str, Any]:
    root.names('settings')
    settings: dict[str, Any] = root.raw('settings')
    _check_setting(root.name, 'settings', settings)
    return settings


def _check_setting(name: str, path: str, value: object) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise refuse(name, path, 'a mapping with texts for keys', key)
            _check_setting(name, f'{path}.{key}', item)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_setting(name, f'{path}[{i}]', item)
    elif isinstance(value, float) and np.isnan(value):
        raise refuse(name, path, 'a number', value)
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise refuse(name, path, 'a text, number, flag, list or mapping', value)


def _check_robot(written: RobotIdentity, robot: RobotIdentity, name: str) -> None:
    cure = ('Use the files of this robot, or calibrate it. Two robots need a robot_name or a '
            'results_dir each.')
    if written.name != robot.name:
        raise refuse(name, 'robot.name', f"'{robot.name}', the robot at hand", written.name, cure)
    if written.joint_names != robot.joint_names:
        raise FileFormatError(
            f"{name}, key 'robot.joint_names': expected {', '.join(robot.joint_names)}, the "
            f'joints of the robot at hand, got {", ".join(written.joint_names)}. {cure}'
        )
    if written.urdf_sha256 != robot.urdf_sha256:
        _LOGGER.warning(
            "%s was made with another robot description of '%s' (SHA-256 %.12s…, now %.12s…). "
            'Calibrate again if links, frames or masses have changed.',
            name, robot.name, written.urdf_sha256, robot.urdf_sha256,
        )


# ---------------------------------------------------------------------------- keeping


def read_result(path: Path, robot: RobotIdentity | None = None) -> CalibrationResult:
    """Read a result file.

    Args:
        path: The file.
        robot: For which robot it must be; any by default.

    Raises:
        FileFormatError: If it cannot be read, or is not a result for this robot.

    """
    try:
        text = path.read_text(encoding='utf-8')
    except OSError as error:
        raise FileFormatError(
            f'{path} cannot be read ({error.strerror}); expected a result file. '
            'Check the name and the permissions.'
        ) from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f'{path} is not text in UTF-8 ({error.reason} at byte {error.start}); expected a '
            'result file. Restore it from the history folder beside it.'
        ) from error
    return from_yaml(text, robot, str(path))


def write_result(result: CalibrationResult, path: Path) -> None:
    """Write a result file of the user's choice, whole or not at all.

    Args:
        result: The result.
        path: The file; one that is there is replaced.

    Raises:
        ConfigurationError: If it cannot be written.
        DataError: If the result is not fit for a file.

    """
    text = to_yaml(result)
    try:
        _write_atomically(path, text)
    except OSError as error:
        raise ConfigurationError(
            f'The {result.kind} result could not be written to {path} '
            f'({error.strerror or error}). Make the folder writable or name another file.'
        ) from error


def default_directory(robot_name: str) -> Path:
    """Return where a robot's results are kept unless the user says otherwise.

    Args:
        robot_name: The URDF's robot name; signs that don't belong in a folder name become ``_``.

    """
    home = Path(os.environ.get('ROS_HOME') or '~/.ros').expanduser()
    folder = re.sub(r'[^\w.-]', '_', robot_name).strip('.') or 'robot'
    return home / 'robocal' / folder


class ResultStore:
    """The results of one robot, in a folder: the good ones, their history, the last failure.

    ``<kind>.yaml`` is the newest result that passed, ``history/`` every one that did, and
    ``<kind>.failed.yaml`` the newest that did not. Files appear whole or not at all, so readers
    and several writers need no lock.
    """

    def __init__(self, directory: Path, robot: RobotIdentity) -> None:
        """Name the folder; it is made when the first result is saved.

        Args:
            directory: The folder.
            robot: Whose results it holds.

        """
        self.directory = directory.expanduser()
        self.robot = robot

    def path(self, kind: str) -> Path:
        """Return the file of the newest good result of a kind; raises ConfigurationError."""
        if not _KIND.fullmatch(kind):
            raise ConfigurationError(
                f"'{kind}' is no kind of result; expected lower-case letters, digits and "
                'underscores, such as payload.'
            )
        return self.directory / f'{kind}.yaml'

    def save(self, result: CalibrationResult) -> Path:
        """Keep a result; one that did not pass never replaces one that did.

        Args:
            result: The result.

        Returns:
            The file that was written.

        Raises:
            ConfigurationError: If the folder cannot be written, or the result is another robot's.
            DataError: If the result is not fit for a file.

        """
        if (result.robot.name, result.robot.joint_names) != (
            self.robot.name, self.robot.joint_names
        ):
            raise ConfigurationError(
                f"The {result.kind} result is of robot '{result.robot.name}' with joints "
                f"{', '.join(result.robot.joint_names)}; {self.directory} holds those of "
                f"'{self.robot.name}' with {', '.join(self.robot.joint_names)}. Nothing was "
                'saved; give each robot a results_dir of its own.'
            )
        text = to_yaml(result)
        path = self.path(result.kind)
        try:
            if result.verdict is not Verdict.PASS:
                path = path.with_suffix('.failed.yaml')
            else:
                _write_atomically(self._history_path(result.kind), text)
            _write_atomically(path, text)
        except OSError as error:
            raise ConfigurationError(
                f'The {result.kind} result could not be written to {self.directory} '
                f'({error.strerror or error}); an earlier result is left as it was. Make the '
                'folder writable or name another one as results_dir.'
            ) from error
        return path

    def load(self, kind: str) -> CalibrationResult | None:
        """Return the newest good result of a kind, None if there is none.

        Args:
            kind: Capability, e.g. ``payload``.

        Raises:
            FileFormatError: If the file is not a passing result of this kind and robot.

        """
        path = self.path(kind)
        if not path.exists():
            return None
        result = read_result(path, self.robot)
        if result.kind != kind:
            raise refuse(str(path), 'kind', f"'{kind}'", result.kind)
        if result.verdict is not Verdict.PASS:
            raise refuse(str(path), 'verdict.value', "'pass'", result.verdict.value,
                         'Calibrate again, or restore a file from the history folder.')
        return result

    def _history_path(self, kind: str) -> Path:
        """Name a file of the history after the present time, and apart from other writers'."""
        now = datetime.now(timezone.utc)
        name = f'{kind}-{now:%Y%m%dT%H%M%S.%fZ}-{uuid.uuid4().hex[:8]}.yaml'
        return self.directory / 'history' / name


def _write_atomically(path: Path, text: str) -> None:
    """Write a file so that, whenever the machine stops, the old or the new one is there whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f'.{path.name}.', suffix='.tmp'
    )
    try:
        with os.fdopen(descriptor, 'w', encoding='utf-8') as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; a result is as readable as any file of the user.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Bring the renaming itself to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
