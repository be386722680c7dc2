# SPDX-License-Identifier: Apache-2.0
"""`robocal import`: convert a CSV file by a column map into a bag for all estimators."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from robocal_ros.arrays import Array, Flags
from robocal_ros.cli.console import QUIET, ProgressView, print_line
from robocal_ros.errors import FileFormatError
from robocal_ros.files import Section, read_as, read_text, refuse
from robocal_ros.messages import JOINT_STATE, SECOND, WRENCH, BagWriter, Stamps, serialized

_TIME = {'s': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9}
_POSITION = {'rad': 1.0, 'deg': np.pi / 180.0, 'm': 1.0, 'mm': 1e-3}
_EFFORT = {'N·m': 1.0, 'Nm': 1.0, 'N': 1.0, 'A': 1.0, 'mA': 1e-3}
# Seconds of a ROS stamp are 32-bit integers with a sign.
_LATEST = 2.0**31 - 1.0
# Duration of a posture [s], rate [Hz], and speed between postures [rad/s], [m/s].
_HOLD, _RATE, _SPEED = 2.0, 50.0, 0.5
# Farthest posture, many turns [rad], [m].
_FARTHEST = 1e3
_OTHER_DELIMITERS = ';\t,|'
# Largest file [bytes].
_LARGEST = 256 * 10**6
# Stamp of the first sample without times [s].
_BEGIN = 1.0
# Share of the time that reading takes [%], and messages between two reports of progress.
_READING, _REPORTED = 35.0, 2000

Column = str | int


class Samples(NamedTuple):
    """Samples in SI units.

    Attributes:
        stamps: Stamps, shape (k,) [ns].
        position: Joint positions, shape (k, n).
        velocity: Joint velocities, shape (k, n) or (k, 0).
        effort: Joint efforts, shape (k, n) or (k, 0).
        readings: Force and torque, shape (k, 6) or (k, 0), NaN where there is no reading.

    """

    stamps: Stamps
    position: Array
    velocity: Array
    effort: Array
    readings: Array


class ColumnMap(Section):
    """Columns of a CSV file, by header or by number from 1.

    Attributes:
        joints: Names of the joints, as in the robot description.
        position: Column of each joint's position.
        velocity: Column of each joint's velocity; empty for none.
        effort: Column of each joint's torque or current; empty for none.
        time: Column of the time of measurement; required unless ``rate`` or ``postures`` is set.
        rate: Rate of a log without times [Hz].
        postures: True if each line is one posture at rest.
        wrench: Columns of force and torque, six; empty for none.
        wrench_topic: Topic of the readings.
        wrench_frame: Frame of the F/T sensor; required with ``wrench``.
        wrench_noise: Standard deviations of force [N] and torque [N·m] of a reading; required
            with ``wrench`` and ``postures``, where a line is one reading.
        time_unit: ``s``, ``ms``, ``us`` or ``ns``.
        position_unit: ``rad``, ``deg``, ``m`` or ``mm``; one for all joints, or one per joint.
        effort_unit: ``N·m``, ``Nm``, ``N``, ``A`` or ``mA``.
        delimiter: Character between columns.
        header: False for a file without a line of column names.

    """

    joints: tuple[str, ...]
    position: tuple[Column, ...]
    velocity: tuple[Column, ...] = ()
    effort: tuple[Column, ...] = ()
    time: Column = ''
    rate: float = 0.0
    postures: bool = False
    wrench: tuple[Column, ...] = ()
    wrench_topic: str = 'ft_wrist/wrench'
    wrench_frame: str = ''
    wrench_noise: tuple[float, ...] = ()
    time_unit: Literal['s', 'ms', 'us', 'ns'] = 's'
    position_unit: tuple[Literal['rad', 'deg', 'm', 'mm'], ...] = ('rad',)
    effort_unit: Literal['N·m', 'Nm', 'N', 'A', 'mA'] = 'N·m'
    delimiter: str = ','
    header: bool = True


def run(options: argparse.Namespace) -> int:
    """Import; the options are those of ``cli.main``."""
    columns = read_map(options.columns)
    with ProgressView('import', quiet=QUIET) as view:
        view.update(0.0, 'reading')
        table = Table(options.file, columns)
        # Checks all columns before the bag is created.
        samples = _samples(table, columns)
        _write(options.bag, samples, columns, view)
    print_line(f'{table.rows} lines of {options.file} as {len(samples.stamps)} joint states in '
               f'{options.bag}; position_unit {", ".join(dict.fromkeys(columns.position_unit))}.')
    if columns.postures:
        print_line(f'Assumed: each posture is held for {_HOLD:g} s, and the arm moves between '
                   f'them at {_SPEED:g} rad/s.')
        if columns.wrench:
            force, torque = columns.wrench_noise
            print_line(f'Assumed: readings scatter by {force:g} N and {torque:g} N·m about each '
                       'line (wrench_noise).')
    return 0


def _write(path: Path, samples: Samples, columns: ColumnMap, view: ProgressView) -> None:
    topic, names = f'/{columns.wrench_topic.strip("/")}', list(columns.joints)
    with BagWriter(path) as bag:
        bag.add('/joint_states', JOINT_STATE)
        if columns.wrench:
            bag.add(topic, WRENCH)
        for row, stamp in enumerate(samples.stamps.tolist()):
            if row % _REPORTED == 0:
                view.update(_READING + (100.0 - _READING) * row / len(samples.stamps), 'writing')
            seconds, nanoseconds = divmod(stamp, SECOND)
            header: dict[str, Any] = {'stamp': {'sec': seconds, 'nanosec': nanoseconds}}
            bag.write('/joint_states', stamp, serialized(
                JOINT_STATE, header=header, name=names, position=samples.position[row],
                velocity=samples.velocity[row], effort=samples.effort[row]))
            if columns.wrench and not np.isnan(samples.readings[row, 0]):
                force, torque = (dict(zip('xyz', part, strict=True))
                                 for part in samples.readings[row].reshape(2, 3).tolist())
                bag.write(topic, stamp, serialized(
                    WRENCH, header={**header, 'frame_id': columns.wrench_frame},
                    wrench={'force': force, 'torque': torque}))


def read_map(path: Path) -> ColumnMap:
    """Read a column map; raises ConfigurationError or FileFormatError with the key."""
    name, columns = str(path), read_as(path, 'column map', ColumnMap)
    n = len(columns.joints)
    for key, expected in (('position', (n,)), ('velocity', (0, n)), ('effort', (0, n)),
                          ('wrench', (0, 6)), ('position_unit', (1, n))):
        if len(getattr(columns, key)) not in expected or not n:
            raise refuse(name, key, f'{" or ".join(map(str, expected))} entries for {n} joints',
                         list(getattr(columns, key)))
    if columns.wrench and not columns.wrench_frame:
        raise refuse(name, 'wrench_frame', 'the frame of the F/T sensor', '')
    if columns.wrench and columns.postures and (
            len(columns.wrench_noise) != 2 or min(columns.wrench_noise) <= 0.0):
        raise refuse(name, 'wrench_noise', 'two positive standard deviations [N, N·m]',
                     list(columns.wrench_noise))
    if columns.time == '' and columns.rate <= 0.0 and not columns.postures:
        raise refuse(name, 'time', 'the column of the time, or rate, or postures: true', '')
    return columns


class Table:
    """Numbers of a CSV file; errors name column and line.

    Attributes:
        rows: Number of lines with samples.

    """

    def __init__(self, path: Path, columns: ColumnMap) -> None:
        """Read the file.

        Args:
            path: The file.
            columns: The column map.

        Raises:
            FileFormatError: If it is empty or no CSV file, or its lines differ in length.

        """
        self._path = path
        reader = csv.reader(read_text(path, 'CSV file', limit=_LARGEST).splitlines(),
                            delimiter=columns.delimiter)
        try:
            self._lines = [(reader.line_num, fields) for fields in reader if fields]
        except csv.Error as error:
            raise FileFormatError(
                f'{path}, line {reader.line_num}: {error}. Expected one line of text per sample; '
                'export the log as CSV.') from error
        if len(self._lines) <= columns.header:
            raise FileFormatError(f'{path} is empty; expected one line per sample.')
        first = self._lines[0][1]
        other = [mark for mark in _OTHER_DELIMITERS if mark in first[0]]
        if len(first) == 1 and other:
            raise FileFormatError(
                f'{path} has one column by delimiter {columns.delimiter!r}. Its columns seem to '
                f'be separated by {other[0]!r}: set delimiter in the column map.')
        # Columns are named by number from 1, or by header.
        self._places: dict[Column, int] = {place + 1: place for place in range(len(first))}
        self._known = f'{len(first)} columns without names'
        if columns.header:
            names = [item.strip() for item in self._lines.pop(0)[1]]
            self._places |= {name: names.index(name) for name in names}
            self._known = ', '.join(names)
        for number, fields in self._lines:
            if len(fields) != len(first):
                raise FileFormatError(
                    f'{path}, line {number}: {len(fields)} columns, expected {len(first)}. '
                    'Correct the line, or the delimiter of the column map.')
        self.rows = len(self._lines)

    def numbers(self, columns: Sequence[Column]) -> Array:
        """Return columns, shape (k, len(columns)); raises FileFormatError."""
        found = np.array([self._column(item) for item in columns]).reshape(-1, self.rows)
        return np.ascontiguousarray(found.T)

    def _column(self, column: Column) -> Array:
        if column not in self._places:
            raise FileFormatError(f"{self._path} has no column '{column}'; it has {self._known}. "
                                  'Correct the column map.')
        texts = [fields[self._places[column]] for _, fields in self._lines]
        found = np.array([_number(text) for text in texts])
        self.refuse(column, ~np.isfinite(found), lambda row: (
            f"'{texts[row]}' is not a finite number. " + (
                'Export the log with decimal points.' if ',' in texts[row]
                else 'Correct or remove the line.')))
        return found

    def refuse(self, column: Column, wrong: Flags, what: Callable[[int], str]) -> None:
        """Raise a FileFormatError of the first row that is wrong, if there is one."""
        for row in np.flatnonzero(wrong)[:1].tolist():
            raise FileFormatError(f"{self._path}, line {self._lines[row][0]}, column '{column}': "
                                  f'{what(row)}')

    def stamps(self, columns: ColumnMap) -> Stamps:
        """Return the stamp of each line [ns]; raises FileFormatError."""
        if columns.time == '':
            return _stamps(_BEGIN + np.arange(self.rows) / columns.rate)
        time = _TIME[columns.time_unit] * self._column(columns.time)
        self.refuse(columns.time, np.abs(time) >= _LATEST, lambda row: (
            f'{time[row]:g} s is outside the range of stamps, ±{_LATEST:.0f} s. Correct the line, '
            f"or time_unit ('{columns.time_unit}')."))
        self.refuse(columns.time, np.diff(time, prepend=-np.inf) <= 0.0, lambda row: (
            f'{time[row]:.9g} s does not follow {time[row - 1]:.9g} s; times must increase. '
            'Correct or remove the line.'))
        return _stamps(time)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _stamps(time: Array) -> Stamps:
    return np.rint(1e9 * time).astype(np.int64)


def _samples(table: Table, columns: ColumnMap) -> Samples:
    """Return the samples of a file; all columns are checked."""
    factor = np.array([_POSITION[unit] for unit in columns.position_unit])
    position, effort = factor * table.numbers(columns.position), table.numbers(columns.effort)
    effort *= _EFFORT[columns.effort_unit]
    readings = table.numbers(columns.wrench)
    if columns.postures:
        far = np.abs(position) > _FARTHEST
        place = int(far.any(axis=0).argmax())
        table.refuse(columns.position[place], far[:, place], lambda row: (
            f'{position[row, place]:.4g} rad or m is no posture of an arm. Correct or remove the '
            'line, or correct position_unit.'))
        return _held(position, effort, readings, columns.wrench_noise)
    velocity = table.numbers(columns.velocity)
    return Samples(table.stamps(columns), position, factor[:velocity.shape[1]] * velocity, effort,
                   readings)


def _held(position: Array, effort: Array, readings: Array, noise: Sequence[float]) -> Samples:
    """Return the samples of an arm that rests in each posture and moves to the next one."""
    rest, step = round(_HOLD * _RATE), np.diff(position, axis=0, prepend=position[:1])
    ticks = np.maximum(np.ceil(_RATE * np.abs(step).max(axis=1) / _SPEED), 1.0).astype(int)
    # Line and time of each sample, and how many ticks before the posture it is.
    line = np.repeat(np.arange(len(position)), ticks - 1 + rest)
    tick = np.arange(len(line))
    before = np.maximum(np.cumsum(ticks - 1 + rest)[line] - rest - tick, 0)
    path = position[line] - (before / ticks[line])[:, None] * step[line]
    # Alternating readings have the mean of the line and the given standard deviation.
    scatter = np.outer((-1.0) ** tick, np.repeat(noise, 3))[:, :readings.shape[1]]
    readings = np.where(before[:, None] == 0, readings[line] + scatter, np.nan)
    return Samples(_stamps(_BEGIN + tick / _RATE), path, np.empty((len(line), 0)), effort[line],
                   readings)
