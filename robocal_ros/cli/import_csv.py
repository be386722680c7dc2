# SPDX-License-Identifier: Apache-2.0
"""`robocal import`: convert a CSV file by a column map into a bag for all estimators."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.cli.console import QUIET, ProgressView, print_line
from robocal_ros.errors import FileFormatError
from robocal_ros.files import Section, convert, load, read_text, refuse
from robocal_ros.messages import JOINT_STATE, SECOND, WRENCH, BagWriter, serialized

_TIME = {'s': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9}
_POSITION = {'rad': 1.0, 'deg': np.pi / 180.0, 'm': 1.0, 'mm': 1e-3}
_EFFORT = {'N·m': 1.0, 'Nm': 1.0, 'N': 1.0, 'A': 1.0, 'mA': 1e-3}
# Seconds of a ROS stamp are 32-bit integers with a sign.
_LATEST = 2.0**31 - 1.0
# Duration of a posture [s], rate [Hz], and speed between postures [rad/s], [m/s].
_HOLD, _RATE, _SPEED = 2.0, 50.0, 0.5
# Largest file [bytes].
_LARGEST = 256 * 10**6
# Stamp of the first sample without times [s].
_BEGIN = 1.0
# Share of the time that reading takes [%], and messages between two reports of progress.
_READING, _REPORTED = 35.0, 2000

Column = str | int
Sample = tuple[int, tuple[Array, Array, Array], Array | None]


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
    time_unit: str = 's'
    position_unit: tuple[str, ...] = ('rad',)
    effort_unit: str = 'N·m'
    delimiter: str = ','
    header: bool = True


def run(options: argparse.Namespace) -> int:
    """Import; the options are those of ``cli.arguments``."""
    columns = read_map(options.columns)
    with ProgressView('import', quiet=QUIET) as view:
        view.update(0.0, 'reading')
        table = Table(options.file, columns, lambda share: view.update(
            _READING * share, 'reading'))
        # Checks all columns before the bag is created.
        count = _write(options.bag, table.rows, _samples(table, columns), columns, view)
    print_line(f'{table.rows} lines of {options.file} as {count} joint states in {options.bag}.')
    if columns.postures:
        print_line(f'Assumed: each posture is held for {_HOLD:g} s, and the arm moves between '
                   f'them at {_SPEED:g} rad/s.')
        if columns.wrench:
            force, torque = columns.wrench_noise
            print_line(f'Assumed: readings scatter by {force:g} N and {torque:g} N·m about each '
                       'line (wrench_noise).')
    return 0


def _write(
    path: Path, rows: int, samples: Iterator[Sample], columns: ColumnMap, view: ProgressView
) -> int:
    """Write the bag and return the number of joint states."""
    expected = rows * (_HOLD * _RATE if columns.postures else 1.0)
    count = 0
    with BagWriter(path) as bag:
        bag.add('/joint_states', JOINT_STATE)
        topic = f'/{columns.wrench_topic.strip("/")}'
        if columns.wrench:
            bag.add(topic, WRENCH)
        for stamp, joints, reading in samples:
            if count % _REPORTED == 0:
                view.update(_READING + (100.0 - _READING) * min(count / expected, 1.0), 'writing')
            bag.write('/joint_states', stamp, _joint_state(stamp, columns.joints, joints))
            if reading is not None:
                bag.write(topic, stamp, _wrench(stamp, columns.wrench_frame, reading))
            count += 1
    return count


def read_map(path: Path) -> ColumnMap:
    """Read a column map; raises ConfigurationError or FileFormatError with the key."""
    name = str(path)
    columns = convert(load(read_text(path, 'column map'), name), ColumnMap, name)
    n = len(columns.joints)
    for key, expected in (('position', (n,)), ('velocity', (0, n)), ('effort', (0, n)),
                          ('wrench', (0, 6)), ('position_unit', (1, n))):
        if len(getattr(columns, key)) not in expected or not n:
            raise refuse(name, key, f'{" or ".join(map(str, expected))} entries for {n} joints',
                         list(getattr(columns, key)))
    for key, units in (('time_unit', _TIME), ('effort_unit', _EFFORT)):
        if getattr(columns, key) not in units:
            raise refuse(name, key, f'one of {", ".join(units)}', getattr(columns, key))
    for unit in columns.position_unit:
        if unit not in _POSITION:
            raise refuse(name, 'position_unit', f'one of {", ".join(_POSITION)}', unit)
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
    """Numbers of a CSV file; errors name column and line."""

    def __init__(self, path: Path, columns: ColumnMap, progress: Callable[[float], None]) -> None:
        """Read the file.

        Args:
            path: The file.
            columns: The column map.
            progress: Called with the share of its columns that have been converted, 0 … 1.

        Raises:
            FileFormatError: If it is empty or no CSV file, or its lines differ in length.

        """
        self._path = path
        self._progress = progress
        self._mapped = sum(map(len, (columns.position, columns.velocity, columns.effort,
                                     columns.wrench))) + (columns.time != '')
        self._converted = 0
        lines: list[tuple[int, list[str]]] = []
        try:
            lines.extend(enumerate(csv.reader(
                read_text(path, 'CSV file', limit=_LARGEST).splitlines(),
                delimiter=columns.delimiter), start=1))
        except csv.Error as error:
            raise FileFormatError(
                f'{path}, line {len(lines) + 1}: {error}. Expected one line of text per sample; '
                'export the log as CSV.') from error
        self._lines = [(number, fields) for number, fields in lines if fields]
        if not self._lines:
            raise FileFormatError(f'{path} is empty; expected one line per sample.')
        self._names = [item.strip() for item in self._lines[0][1]] if columns.header else []
        if columns.header:
            del self._lines[0]
        width = len(self._names) or len(self._lines[0][1])
        self._width = width
        for number, fields in self._lines:
            if len(fields) != width:
                raise FileFormatError(
                    f'{path}, line {number}: {len(fields)} columns, expected {width}. Correct the '
                    'line, or the delimiter of the column map.')
        self.rows = len(self._lines)

    def numbers(self, columns: Sequence[Column]) -> Array:
        """Return columns, shape (k, len(columns)); raises FileFormatError."""
        return np.column_stack([self._column(column) for column in columns])

    def _column(self, column: Column) -> Array:
        if isinstance(column, int):
            known = 1 <= column <= self._width
            place = column - 1
        else:
            known = column in self._names
            place = self._names.index(column) if known else 0
        if not known:
            there = ', '.join(self._names) or f'{self._width} columns without names'
            raise FileFormatError(
                f"{self._path} has no column '{column}'; it has {there}. Correct the column map.")
        found = np.empty(self.rows)
        for row, (number, fields) in enumerate(self._lines):
            try:
                found[row] = float(fields[place])
            except ValueError:
                found[row] = np.nan
            if not np.isfinite(found[row]):
                raise FileFormatError(
                    f"{self._path}, line {number}, column '{column}': '{fields[place]}' is not a "
                    'finite number. Correct or remove the line.')
        self._converted += 1
        self._progress(self._converted / self._mapped)
        return found

    def stamps(self, columns: ColumnMap) -> list[int]:
        """Return the stamp of each line [ns]; raises FileFormatError."""
        if columns.time == '':
            return [round(1e9 * (_BEGIN + row / columns.rate)) for row in range(self.rows)]
        time = _TIME[columns.time_unit] * self._column(columns.time)
        for row, (number, _) in enumerate(self._lines):
            if not abs(time[row]) < _LATEST:
                raise FileFormatError(
                    f"{self._path}, line {number}, column '{columns.time}': {time[row]:g} s is "
                    f'outside the range of stamps, ±{_LATEST:.0f} s. Correct the line, or '
                    f"time_unit ('{columns.time_unit}').")
            if row and time[row] <= time[row - 1]:
                raise FileFormatError(
                    f"{self._path}, line {number}, column '{columns.time}': {time[row]:.9g} s "
                    f'does not follow {time[row - 1]:.9g} s; times must increase. Correct or '
                    'remove the line.')
        return [round(1e9 * value) for value in time.tolist()]


def _samples(table: Table, columns: ColumnMap) -> Iterator[Sample]:
    """Return stamps [ns], joint states in SI units, and readings or None.

    All columns are checked at once, before the first sample is taken.
    """
    factor = np.array([_POSITION[unit] for unit in columns.position_unit])
    position = factor * table.numbers(columns.position)
    none = np.empty((table.rows, 0))
    velocity = factor * table.numbers(columns.velocity) if columns.velocity else none
    effort = _EFFORT[columns.effort_unit] * table.numbers(columns.effort) \
        if columns.effort else none
    readings = table.numbers(columns.wrench) if columns.wrench else None
    if columns.postures:
        return _held(position, effort, readings, columns.wrench_noise)
    return ((stamp, (position[row], velocity[row], effort[row]),
             None if readings is None else readings[row])
            for row, stamp in enumerate(table.stamps(columns)))


def _held(
    position: Array, effort: Array, readings: Array | None, noise: Sequence[float]
) -> Iterator[Sample]:
    """Yield the samples of an arm that rests in each posture and moves to the next one."""
    count, none = round(_HOLD * _RATE), np.empty(0)
    scatter = np.repeat(noise, 3) if readings is not None else none
    tick = 0
    for row, posture in enumerate(position):
        if row:
            step = posture - position[row - 1]
            ticks = int(np.ceil(_RATE * np.abs(step).max() / _SPEED))
            for i in range(1, ticks):
                yield (_tick(tick), (position[row - 1] + step * i / ticks, none, effort[row]),
                       None)
                tick += 1
        for i in range(count):
            # Alternating readings have the mean of the line and the given standard deviation.
            reading = None if readings is None else readings[row] + (-1) ** i * scatter
            yield _tick(tick), (posture, none, effort[row]), reading
            tick += 1


def _tick(number: int) -> int:
    return round(1e9 * (_BEGIN + number / _RATE))


def _header(stamp: int, frame: str = '') -> dict[str, Any]:
    seconds, nanoseconds = divmod(stamp, SECOND)
    return {'stamp': {'sec': seconds, 'nanosec': nanoseconds}, 'frame_id': frame}


def _joint_state(stamp: int, names: Sequence[str], values: tuple[Array, Array, Array]) -> bytes:
    return serialized(JOINT_STATE, header=_header(stamp), name=list(names), **dict(
        zip(('position', 'velocity', 'effort'), values, strict=True)))


def _wrench(stamp: int, frame: str, values: Array) -> bytes:
    force, torque = (dict(zip('xyz', part, strict=True)) for part in values.reshape(2, 3).tolist())
    return serialized(WRENCH, header=_header(stamp, frame),
                      wrench={'force': force, 'torque': torque})
