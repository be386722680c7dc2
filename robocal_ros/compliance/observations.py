# SPDX-License-Identifier: Apache-2.0
"""Observations of the tool in many postures, as files hold them.

A CSV file is one set: each line has the arm's joint angles and a reading of the tool.

========  ====================================================  =========================
kind      reading                                               unknown fixture
========  ====================================================  =========================
socket    none: a ball on the tool rests in a socket            position of the socket
plane     none: a ball or tip on the tool touches a plane       the plane
point     x, y, z of a target in the tracker's frame [m]        pose of the tracker
pose      x, y, z and quaternion x, y, z, w of the target       pose of the tracker
========  ====================================================  =========================

A YAML file lists sets with what their files do not show, and known distances between sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError, FileFormatError
from robocal_ros.files import Positive, Section, convert, load, read_text
from robocal_ros.robot import Robot

Kind = Literal['', 'socket', 'plane', 'point', 'pose']

READING = {'socket': 0, 'plane': 0, 'point': 3, 'pose': 7}
"""Number of columns behind the joint angles, by kind."""

# Largest distance of a target from the tracker [m].
_FARTHEST = 100.0
# Excess over the limits of a joint above which an angle is not one of the arm's [rad].
_BEYOND = 0.5


class ListedSet(Section):
    """One file of a list.

    Attributes:
        file: CSV file, relative to the list.
        kind: Kind of observation; empty: by the number of columns, ``socket`` without a reading.
        placement: Sets of one placement are held out together; empty: the file's folder.
        fixture: Sets with one name have the same socket, plane or pose of the tracker; empty: a
            socket of its own, or the same plane or tracker for all.
        target: Sets with one name have the same point on the tool; empty: ``ball`` for sockets
            and planes, ``target`` for trackers.
        loaded: Whether the load is mounted.

    """

    file: str
    kind: Kind = ''
    placement: str = ''
    fixture: str = ''
    target: str = ''
    loaded: bool = False


class KnownDistance(Section):
    """Distance between two sockets, by the names of their fixtures [m]."""

    between: tuple[str, str]
    distance: Positive
    std: Positive


class ListOfSets(Section):
    """List of sets.

    Attributes:
        sets: The files.
        distances: Known distances between sockets.
        angle_unit: Unit of the joint angles.
        length_unit: Unit of the readings.

    """

    sets: tuple[ListedSet, ...]
    distances: tuple[KnownDistance, ...] = ()
    angle_unit: Literal['rad', 'deg'] = 'rad'
    length_unit: Literal['m', 'mm'] = 'm'


@dataclass(frozen=True, eq=False)
class ObservedSet:
    """Observations of one kind that have their unknowns in common.

    Attributes:
        name: Name, of folder and file.
        kind: Kind of observation.
        placement: Name of what is held out together.
        fixture: Name of the socket, plane or tracker.
        target: Name of the point on the tool.
        loaded: Whether the load is mounted.
        posture: Encoder angles, shape (k, n) [rad].
        reading: Readings in SI units, shape (k, 0), (k, 3) or (k, 7).
        lines: Line of each observation in its file, shape (k,).

    """

    name: str
    kind: str
    placement: str
    fixture: str
    target: str
    loaded: bool
    posture: Array
    reading: Array
    lines: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.posture)


@dataclass(frozen=True)
class Observations:
    """All sets, and known distances between sockets."""

    sets: tuple[ObservedSet, ...]
    distances: tuple[KnownDistance, ...] = ()


def read_observations(files: Sequence[Path], robot: Robot) -> Observations:
    """Read CSV files and lists of such.

    Args:
        files: CSV files, each of which is one set, folders of such, and YAML files that list sets.
        robot: The arm, whose joints the columns are.

    Raises:
        FileFormatError: If a file is neither, or a line is not readable.
        DataError: If angles are none of the arm, a fixture has sets of several kinds, or a
            distance is not between two sockets.

    """
    sets: list[ObservedSet] = []
    distances: list[KnownDistance] = []
    for path in (item for file in files
                 for item in (sorted(file.rglob('*.csv')) if file.is_dir() else (file,))):
        if path.suffix not in ('.yaml', '.yml'):
            sets.append(_read_set(path, ListedSet(path.name), ListOfSets(()), robot))
            continue
        listed = convert(load(read_text(path, 'list of sets'), str(path)), ListOfSets, str(path))
        sets += [_read_set(path.parent / item.file, item, listed, robot) for item in listed.sets]
        distances += listed.distances
    if not sets:
        raise DataError(f'{", ".join(map(str, files))} has no set; expected CSV files with a '
                        'posture in each line.')
    kinds: dict[str, str] = {}
    names = [item.name for item in sets]
    for item in sets:
        if names.count(item.name) > 1 and item.fixture == item.name:
            raise DataError(f"Several sets are named '{item.name}', by folder and file; give each "
                            'its fixture and placement in a list of sets.')
        family = 'tracker' if item.reading.size else item.kind
        if kinds.setdefault(item.fixture, family) != family:
            raise DataError(f"The fixture '{item.fixture}' is a {kinds[item.fixture]} in one set "
                            f"and a {family} in '{item.name}'; give them two names.")
    for known in distances:
        for name in known.between:
            if kinds.get(name) != 'socket':
                raise DataError(
                    f"The known distance is between '{known.between[0]}' and "
                    f"'{known.between[1]}', but '{name}' is no socket; there are "
                    f'{", ".join(key for key, kind in kinds.items() if kind == "socket")}.')
    return Observations(tuple(sets), tuple(distances))


def _read_set(path: Path, item: ListedSet, listed: ListOfSets, robot: Robot) -> ObservedSet:
    """Return the set of a CSV file."""
    lines, rows = _numbers(path)
    width, n = rows.shape[1], robot.n
    kind = item.kind or {READING[kind] + n: kind for kind in ('socket', 'point', 'pose')}.get(
        width, '')
    if not kind or width != n + READING[kind]:
        raise FileFormatError(
            f'{path} has {width} columns; expected the angles of {n} joints '
            f'({", ".join(robot.joint_names)})' + (
                f' and {READING[kind]} of a {kind}.' if kind else
                ', followed by nothing, by x, y, z of a target, or by its position and '
                'quaternion.') + ' Give the URDF of the robot that was measured.')
    posture = rows[:, :n] * (np.pi / 180.0 if listed.angle_unit == 'deg' else 1.0)
    reading = rows[:, n:].copy()
    reading[:, :3] *= 1e-3 if listed.length_unit == 'mm' else 1.0
    excess = np.maximum(posture - robot.upper, robot.lower - posture)
    row, joint = np.unravel_index(int(excess.argmax()), excess.shape)
    if excess[row, joint] > _BEYOND:
        raise DataError(
            f"{path}, line {lines[row]}: {posture[row, joint]:.4g} rad of joint "
            f"'{robot.joint_names[joint]}' is beyond its limits, {robot.lower[joint]:.4g} to "
            f'{robot.upper[joint]:.4g} rad. Check the order of the columns, the URDF, and '
            'whether the angles are in degrees (angle_unit: deg in a list of sets).')
    if kind == 'pose':
        length = np.linalg.norm(reading[:, 3:], axis=1, keepdims=True)
        _refuse(path, lines, (np.abs(length - 1.0) > 0.01)[:, 0],
                'the quaternion x, y, z, w is not of length 1')
        reading[:, 3:] /= length
    _refuse(path, lines, np.abs(reading[:, :3]).max(axis=1, initial=0.0) > _FARTHEST,
            f'the target is more than {_FARTHEST:.0f} m off; check whether the readings are in '
            'millimetres (length_unit: mm in a list of sets)')
    name = f'{path.resolve().parent.name}/{path.stem}'
    tracked = kind in ('point', 'pose')
    return ObservedSet(
        name, kind, item.placement or path.resolve().parent.name,
        item.fixture or {'socket': name, 'plane': 'plane'}.get(kind, 'tracker'),
        item.target or ('target' if tracked else 'ball'), item.loaded, posture, reading, lines)


def _refuse(path: Path, lines: Sequence[int], wrong: Flags, what: str) -> None:
    """Raise a DataError of the first observation that is wrong, if there is one."""
    for row in np.flatnonzero(wrong)[:1].tolist():
        raise DataError(f'{path}, line {lines[row]}: {what}. Correct or remove the line.')


def _numbers(path: Path) -> tuple[tuple[int, ...], Array]:
    """Return the numbers of a CSV file and their lines; the first may be a header."""
    lines: list[int] = []
    rows: list[list[float]] = []
    for number, text in enumerate(read_text(path, 'CSV file').splitlines(), start=1):
        if not text.strip():
            continue
        try:
            row = [float(field) for field in text.split(',')]
        except ValueError as error:
            if number == 1:
                continue
            raise FileFormatError(f'{path}, line {number}: {error}. Expected numbers with commas '
                                  'between them; correct or remove the line.') from error
        if rows and len(row) != len(rows[0]):
            raise FileFormatError(f'{path}, line {number}: {len(row)} columns, expected '
                                  f'{len(rows[0])}. Correct or remove the line.')
        if not np.isfinite(row).all():
            raise FileFormatError(f'{path}, line {number} has a number that is not finite. '
                                  'Correct or remove the line.')
        lines.append(number)
        rows.append(row)
    if not rows:
        raise FileFormatError(f'{path} has no line of numbers; expected one posture per line.')
    return tuple(lines), np.array(rows)
