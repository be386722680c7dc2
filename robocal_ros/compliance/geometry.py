# SPDX-License-Identifier: Apache-2.0
"""Geometry and stiffness of the whole arm, from everything that sees the tool.

Every joint's frame is displaced by a small transform before the joint, M_i ← M_i (exp(w_i), v_i),
every joint deflects by c_i times its gravity torque, and each observation is a residual of the
same model: one of the tracker, of a ball that is at one unknown point in many postures, of a
touched plane, or of a camera that sees a board. The residuals are linearised at the current
estimate and given to a linear mixed model, in which displacements and compliances are random
effects whose sizes are estimated by restricted likelihood, as is the noise of each kind of
observation: their priors come from the data, and hold what is unobservable.

Observations without a length (a ball in a socket, a touched plane) fit the better the smaller the
arm, because their noise, that of a posture, shrinks with it. Their likelihood is that of a point
at the density of postures, with the volume V = √det(J Jᵀ) by which the joints move it (coarea
formula: Federer, Geometric Measure Theory (1969), 3.2.12), so that they are residuals relative to
V^(1/d), which no scale of the arm changes.

A CSV file is one set: each line has the arm's joint angles and a reading of the tool.

========  ====================================================  =========================
kind      reading                                               unknown fixture
========  ====================================================  =========================
socket    none: a ball on the tool rests in a socket            position of the socket
plane     none: a ball or tip on the tool touches a plane       the plane
point     x, y, z of a target in the tracker's frame [m]        pose of the tracker
pose      x, y, z and quaternion x, y, z, w of the target       pose of the tracker
camera    x, y, z of a corner on a board [m], and its pixel     pose of camera or board
========  ====================================================  =========================

A line of a camera is one corner; lines with the same posture are one image, an observation. A
YAML file lists sets with what their files do not show, calibrations of cameras, and known
distances between sockets.

Sources: Hollerbach, Wampler, The Calibration Index and Taxonomy for Robot Kinematic Calibration
Methods, Int. J. Robot. Res. 15 (1996) 573, doi 10.1177/027836499601500604, for the unknowns;
Huber, Robust Statistics (1981), sec. 7.8, for the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.compliance.camera import CORNERS, INTRINSICS, Camera, ListedCamera
from robocal_ros.compliance.measurement import (
    LOADED,
    MAX_LOST,
    UNLOADED,
    EndPosition,
    Target,
    least_squares_transform,
)
from robocal_ros.compliance.model import Mounted
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import DataError, FileFormatError
from robocal_ros.estimation import Effect, MixedFit, fit_mixed
from robocal_ros.files import Positive, Section, read_as, read_text
from robocal_ros.robot import Robot, deflected

TURN = 'turn'
"""Kind of the rotation of a pose, beside that of its position."""

KNOWN = 'known distance'

# Columns by name, with the least standard deviation of displacements by manufacture [m, rad] and
# of compliances [rad/(N·m)]; names of nuisances, and of unknown points and poses, with their
# standard deviation about the start, a large one [m, rad].
_LEAST = {'frame shift': 1e-4, 'frame turn': 1e-4, 'compliance': 1e-6}
_COLUMNS, _WEIGHTS, _BODIES = tuple(_LEAST), 'weights of links', 'tool and load'
UNKNOWN, _FAR = 'unknown', 1.0
# Drift of what sees the tool, whose turns [rad] are as large as shifts [m]: observations of which
# it has one wave, and most waves.
_DRIFT, _WAVE, _WAVES = 'drift', 20, 8
_ENCODERS = 'encoders'
# Shift of a ball or tip on the tool in each set.
_SLIP = 'slip'
# Standard deviation of displacements until the linearisation is near the estimate [m, rad].
_START = {'frame shift': 2e-3, 'frame turn': 1e-2}
# Noise of a coordinate to which the size of what is unknown is compared [m, rad].
_NOISE = 1e-4
_STEPS, _SMALL_STEP = 25, 1e-6
# Steps before observations are rejected, and before rejected ones stay so.
_SETTLED, _FINAL = 3, 10
# Probabilities of noise beyond which observations count less, and are rejected.
_DOWNWEIGHTED, _REJECTED = 0.05, 1e-5
# Least share of its noise that a residual keeps, and what keeps singular postures finite.
_SINGULAR, _RIDGE = 1e-6, 1e-9
# Residuals of less than this are those of computed postures [m].
_EXACT = 1e-9
# Decimals of angles [rad] that are alike.
_SAME = 5
# Longest correlation of noise, in observations.
_LAGS = 10
# Distance of a corner from its image beyond which it is mistaken, in medians, and the least noise
# of a corner [px], less than which computed images have.
_MISTAKEN, _SHARPEST = 30.0, 0.01
# Folds of a single placement.
_FOLDS = 5

Kind = Literal['', 'socket', 'plane', 'point', 'pose', 'camera', 'camera_on_tool']

READING = {'socket': 0, 'plane': 0, 'point': 3, 'pose': 7, 'camera': 5, 'camera_on_tool': 5}
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
            ``camera`` is fixed and sees a board on the tool, ``camera_on_tool`` a fixed board.
        placement: Sets of one placement are held out together; empty: the file's folder.
        fixture: Sets with one name have the same socket, plane or pose of tracker, camera or
            board; empty: a socket of its own, or the same of the others for all.
        target: Sets with one name have the same point on the tool; empty: ``ball`` for sockets
            and planes, ``target`` for trackers, ``board`` or the name of the camera.
        camera: Name of the camera; empty: the only one.
        loaded: Whether the load is mounted.

    """

    file: str
    kind: Kind = ''
    placement: str = ''
    fixture: str = ''
    target: str = ''
    camera: str = ''
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
        cameras: Cameras by name.
        angle_unit: Unit of the joint angles.
        length_unit: Unit of the readings.

    """

    sets: tuple[ListedSet, ...]
    distances: tuple[KnownDistance, ...] = ()
    cameras: dict[str, ListedCamera] = msgspec.field(default_factory=dict)
    angle_unit: Literal['rad', 'deg'] = 'rad'
    length_unit: Literal['m', 'mm'] = 'm'


@dataclass(frozen=True, eq=False)
class ObservedSet:
    """Observations of one kind that have their unknowns in common.

    Attributes:
        name: Name, of folder and file.
        kind: Kind of observation.
        placement: Name of what is held out together.
        fixture: Name of the socket, plane, tracker, or of fixed camera or board.
        target: Name of the point on the tool.
        loaded: Whether the load is mounted.
        posture: Encoder angles, shape (k, n) [rad].
        reading: Readings in SI units, shape (k, 0), (k, 3) or (k, 7); of images, the poses that
            fit best.
        lines: Line of each observation in its file, shape (k,); of an image, its first.
        camera: Name of the camera.
        corners: Position on the board [m] and pixel of the corners of each image, shape (m, 5).

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
    camera: str = ''
    corners: tuple[Array, ...] = ()

    @property
    def posed(self) -> bool:
        """Whether readings are poses."""
        return self.kind == 'pose' or bool(self.corners)

    @property
    def coordinates(self) -> int:
        """Number of coordinates of each observation."""
        return 6 if self.posed else 1 if self.kind == 'plane' else 3

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.posture)


@dataclass(frozen=True)
class Observations:
    """All sets, known distances between sockets, and cameras by name."""

    sets: tuple[ObservedSet, ...]
    distances: tuple[KnownDistance, ...] = ()
    cameras: Mapping[str, Camera] = field(default_factory=dict)


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
    cameras: dict[str, Camera] = {}
    for path in (item for file in files
                 for item in (sorted(file.rglob('*.csv')) if file.is_dir() else (file,))):
        if path.suffix not in ('.yaml', '.yml'):
            sets.append(_read_set(path, ListedSet(path.name), ListOfSets(()), robot))
            continue
        listed = read_as(path, 'list of sets', ListOfSets)
        own = {name: Camera.read(item, path.parent) for name, item in listed.cameras.items()}
        for each in listed.sets:
            found = _read_set(path.parent / each.file, each, listed, robot)
            sets.append(_images(found, own, str(path)) if READING[found.kind] == 5 else found)
        cameras |= own
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
        family = item.kind if item.corners or not item.reading.size else 'tracker'
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
    return Observations(tuple(sets), tuple(distances), cameras)


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
                "quaternion, or, in a list of sets with kind 'camera' or 'camera_on_tool', by "
                'x, y, z of a corner and its pixel.')
            + ' Give the URDF of the robot that was measured.')
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
    camera = item.camera or next(iter(listed.cameras), '')
    fixture, target = {
        'socket': (name, 'ball'), 'plane': ('plane', 'ball'), 'camera': (camera, 'board'),
        'camera_on_tool': ('board', camera)}.get(kind, ('tracker', 'target'))
    return ObservedSet(
        name, kind, item.placement or path.resolve().parent.name, item.fixture or fixture,
        item.target or target, item.loaded, posture, reading, lines, camera)


def tracked_set(positions: Sequence[EndPosition], *, loaded: bool = False) -> ObservedSet:
    """Return end positions that a tracker measured as a set."""
    reading = np.array([item.point for item in positions])
    posed = positions[0].rotation is not None
    if posed:
        turns = scipy.spatial.transform.Rotation.from_matrix([
            item.rotation for item in positions])
        reading = np.hstack((reading, turns.as_quat()))
    return ObservedSet(
        LOADED if loaded else UNLOADED, 'pose' if posed else 'point', 'all', 'tracker', 'target',
        loaded, np.array([item.posture for item in positions]), reading,
        tuple(range(1, len(positions) + 1)))


def tracked(unloaded: Sequence[EndPosition], loaded: Sequence[EndPosition]) -> Observations:
    """Return the sets of a tracker without and with the load, those that are measured."""
    return Observations(tuple(tracked_set(part, loaded=part is loaded)
                              for part in (unloaded, loaded) if part))


def _images(item: ObservedSet, cameras: Mapping[str, Camera], listed: str) -> ObservedSet:
    """Return a camera's set with lines of one posture joined to images.

    Raises:
        FileFormatError: If the list has no such camera.
        DataError: If an image has too few corners, or a corner contradicts the others.

    """
    if item.camera not in cameras:
        raise FileFormatError(
            f"{listed} has no camera '{item.camera}', which the set '{item.name}' names; it has "
            f'{", ".join(cameras) or "none"}. State it by cameras, with the file of its '
            'calibration.')
    begins = np.flatnonzero(np.append(True, (np.diff(item.posture, axis=0) != 0.0).any(axis=1)))
    images = np.split(item.reading, begins[1:])
    lines, poses, apart = np.array(item.lines), [], np.zeros(len(item.lines))
    _refuse(item.name, lines[begins], np.array([len(image) < CORNERS for image in images]),
            f'the image has fewer than {CORNERS} corners')
    for begin, image in zip(begins.tolist(), images, strict=True):
        try:
            pose, apart[begin:begin + len(image)] = cameras[item.camera].board(image)
        except DataError as error:
            raise DataError(f'{item.name}, line {lines[begin]}: {error}. Correct or remove the '
                            'image.') from error
        poses.append(pose.inverse() if item.kind == 'camera_on_tool' else pose)
    # A corner with the name of another one is far off; noise never is.
    _refuse(item.name, lines, apart > _MISTAKEN * max(float(np.median(apart)), _SHARPEST),
            'the corner is not where the others of its image have it')
    return replace(item, posture=item.posture[begins], corners=tuple(images), lines=tuple(
        lines[begins].tolist()), reading=np.array([pin.SE3ToXYZQUAT(pose) for pose in poses]))


def _refuse(path: Path | str, lines: Sequence[int] | np.ndarray, wrong: Flags, what: str) -> None:
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


@dataclass(frozen=True)
class Kinematics:
    """Arrays of all postures of one set.

    Attributes:
        shifts: Columns are the directions in which the shifts of the joints' frames move them,
            before the joints, shape (k, n, 3, 3).
        turns: Columns are the axes about which their rotation vectors turn them, likewise.
        torque: Torques that hold the arm, shape (k, n) [N·m].
        doubted: Their changes by what is uncertain of them: the part of the links of the URDF, by
            joint, then the changes by tool and load, shape (k, n, n + b) [N·m].
        tool: Rotation of the target's frame, shape (k, 3, 3).
        point: Position of the target, shape (k, 3) [m].
        lever: The target relative to the joints' frames, shape (k, n, 3) [m].
        joints: Movement of the target by the joints, and their axes, shape (k, n, 6) [m/rad, 1].

    """

    shifts: Array
    turns: Array
    torque: Array
    doubted: Array
    tool: Array
    point: Array
    lever: Array
    joints: Array


class ArmGeometry:
    """Estimated state of arm, targets and fixtures, and their residuals.

    Attributes:
        robot: The nominal arm.
        sets: The observations.
        known: Known distances between sockets.
        value: Estimated shifts [m] and turns [rad] of the joints' frames in these frames, then
            compliances [rad/(N·m)], the nuisances, the encoders, and the drift, shape (s,).
        nuisances: Columns and standard deviations of what is known by these, by name: shares by
            which the links' torques are off, of each joint; standard deviations by which tool and
            load are; and changes of the intrinsics of cameras that are not exact.
        cameras: The cameras, by name.
        frame: Frame to which the targets are fixed.
        intrinsics: Columns of the latter, by name.
        targets: Positions in the target's frame, shape (3,) [m], by name.
        turns: Orientations of targets in that frame, shape (3, 3), by name.
        fixtures: Sockets, shape (3,) [m]; planes as normal and distance, shape (4,); trackers as
            their pose in the root frame, by name.
        encoders: Columns of what encoders miss once per turn, by sine and cosine of their angle.
        drift: Columns of the drift of what sees the tool.
        slip: Columns of the shifts of balls and tips on the tool in each of several sets.
        columns: Columns of targets, turns and fixtures in the Jacobian, by name.
        width: Number of columns.
        least: Number of observable unknowns, and so of coordinates that are needed.

    """

    def __init__(
        self, robot: Robot, mounted: Mounted, target: Target, data: Observations,
        values: ComplianceParameters,
    ) -> None:
        """Start from the nominal arm.

        Raises:
            DataError: If a set has an unknown load, or a tracker cannot be registered.

        """
        self.robot, self.sets, self.known = robot, data.sets, data.distances
        self.cameras = data.cameras
        self.frame = target.frame
        # As mounted, without anything mounted, then with each uncertain body displaced.
        self._arms = {
            loaded: [mounted.on(robot, loaded=loaded), robot.copy(),
                     *mounted.others_on(robot, loaded=loaded)]
            for loaded in {item.loaded for item in data.sets}}
        bodies = len(next(iter(self._arms.values()))) - 2
        self.value = np.zeros(7 * robot.n)
        self.nuisances: dict[str, tuple[slice, float]] = {}
        scales = {_scale_of(item): values.board_scale_std if item.corners
                  else values.tracker_scale_std for item in data.sets if item.reading.size}
        for name, count, std in (
                (_WEIGHTS, robot.n, values.arm_model_std), (_BODIES, bodies, 1.0),
                *((name, 1, std) for name, std in scales.items() if std > 0.0),
                *((f'{camera}.{name}', 1, std) for camera in dict.fromkeys(
                    item.camera for item in data.sets if item.corners)
                  for name, std in zip(INTRINSICS, self.cameras[camera].std.tolist(),
                                       strict=False) if std > 0.0)):
            if count:
                self.nuisances[name] = (self._more(count), std)
        self._bodies = 8 * robot.n + bodies
        self.intrinsics = {name: part.start for name, (part, _) in self.nuisances.items()
                           if part.start >= self._bodies}
        self._nominal = [placement.copy() for placement in robot.model.jointPlacements]
        self._joints = [robot.model.getJointId(name) for name in robot.joint_names]
        self.targets = {item.target: np.array(target.xyz) for item in data.sets}
        self.turns: dict[str, Array] = {}
        self.fixtures: dict[str, Array | pin.SE3] = {}
        self.encoders = self._more(2 * robot.n)
        for item in data.sets:
            self._start(item)
        # By set: what moves, its shares in each observation, shape (k, w), and its columns.
        self._waves: dict[int, list[tuple[tuple[str, str], Array, slice]]] = {
            id(item): [] for item in data.sets}
        for name, fixture in self.fixtures.items():
            if isinstance(fixture, pin.SE3):
                self._start_drift([item for item in data.sets if item.fixture == name])
        self.drift = slice(self.encoders.stop, len(self.value))
        for name in self.targets:
            mine = [item for item in data.sets if item.target == name]
            if len(mine) > 1 and not any(item.reading.size for item in mine):
                self._move('target', name, mine, np.repeat(
                    np.eye(len(mine)), [*map(len, mine)], axis=0))
        self.slip = slice(self.drift.stop, len(self.value))
        self.columns: dict[tuple[str, str], slice] = {}
        self.width = len(self.value)
        for what, parts in (('target', self.targets), ('turn', self.turns),
                            ('fixture', self.fixtures)):
            for name, value in parts.items():
                begin = self.width
                self.width += 6 if isinstance(value, pin.SE3) else 3
                self.columns[what, name] = slice(begin, self.width)
        # A joint's frame has four parameters that the others cannot replace; nuisances are known.
        self.least = self.width - len(self.value) + 4 * robot.n
        self._volume: dict[int, Array] = {}

    def _more(self, count: int) -> slice:
        """Append unknowns to the value, 0 at the start, and return their columns."""
        begin, self.value = len(self.value), np.pad(self.value, (0, count))
        return slice(begin, begin + count)

    def _start_drift(self, sets: Sequence[ObservedSet]) -> None:
        """Let the pose that is the fixture of these sets drift as a random walk over them.

        Its cosines fall with their number (Karhunen-Loève: Ghanem, Spanos, Stochastic Finite
        Elements (1991), sec. 2.3).
        """
        total = sum(map(len, sets))
        number = np.arange(1, min(_WAVES, total // _WAVE) + 1)
        self._move('fixture', sets[0].fixture, sets, np.cos(
            np.outer(np.arange(0.5, total) / total, np.pi * number)) / number)

    def _move(self, what: str, name: str, sets: Sequence[ObservedSet], waves: Array) -> None:
        """Let a target or fixture move by unknown multiples of waves, shape (k, w)."""
        columns = self._more((3 if what == 'target' else 6) * waves.shape[1])
        for item, part in zip(sets, np.split(waves, np.cumsum([*map(len, sets)])[:-1]),
                              strict=True):
            self._waves[id(item)].append(((what, name), part, columns))

    def check_amount(self) -> None:
        """Raise a DataError if there are fewer coordinates than observable unknowns."""
        found = sum(item.coordinates * len(np.unique(item.posture.round(_SAME), axis=0))
                    for item in self.sets)
        if found < self.least:
            raise DataError(
                f'{sum(map(len, self.sets))} observations have {found} coordinates in different '
                f'postures; at least {self.least} are needed for the frames of {self.robot.n} '
                'joints, targets and fixtures. Measure more postures.')

    def _start(self, item: ObservedSet) -> None:
        """Start the fixture of a set, and the orientation of its target."""
        if item.fixture not in self.fixtures:
            alike = [other for other in self.sets if other.fixture == item.fixture]
            together = np.concatenate([self.kinematics(other).point for other in alike])
            if item.kind == 'socket':
                self.fixtures[item.fixture] = np.median(together, axis=0)
            elif item.kind == 'plane':
                centre = together.mean(axis=0)
                normal = np.linalg.svd(together - centre)[2][2]
                self.fixtures[item.fixture] = np.append(normal, normal @ centre)
            else:
                placed = least_squares_transform(
                    np.concatenate([other.reading[:, :3] for other in alike]), together)
                self.fixtures[item.fixture] = pin.SE3(placed.rotation, placed.translation)
        fixture = self.fixtures[item.fixture]
        if item.posed and isinstance(fixture, pin.SE3) and item.target not in self.turns:
            measured = fixture.rotation @ _rotations(item)
            self.turns[item.target] = scipy.spatial.transform.Rotation.from_matrix(
                self.kinematics(item).tool.transpose(0, 2, 1) @ measured).mean().as_matrix()

    def kinematics(self, item: ObservedSet) -> Kinematics:
        """Return the arrays of a set at the current estimate."""
        n, (arm, bare, *others) = self.robot.n, self._arms[item.loaded]
        shift, turn = self.value[:3 * n].reshape(n, 3), self.value[3 * n:6 * n].reshape(n, 3)
        compliance, shares = self.value[6 * n:7 * n], self.value[7 * n:self._bodies]
        turned, rates = (np.array([function(w) for w in turn])
                         for function in (pin.exp3, pin.Jexp3))
        for joint, v, rotation in zip(self._joints, shift, turned, strict=True):
            for one in self._arms[item.loaded]:
                one.model.jointPlacements[joint] = self._nominal[joint] * pin.SE3(rotation, v)

        def doubted(q: Array) -> Array:
            held = arm.gravity_torque(q)
            return np.column_stack((np.diag(bare.gravity_torque(q)), *(
                other.gravity_torque(q) - held for other in others)))

        rows, missed = [], self.value[self.encoders].reshape(2, n)
        for encoders in item.posture + np.sum(missed * _per_turn(item.posture), axis=1):
            q, torque = deflected(
                lambda q: arm.gravity_torque(q) + doubted(q) @ shares, encoders, compliance)
            tool, point, jacobian = arm.pose_and_jacobian(
                q, self.frame, self.targets[item.target])
            before = [arm.data.oMi[arm.model.parents[joint]] * arm.model.jointPlacements[joint]
                      for joint in self._joints]
            frames = np.array([place.rotation for place in before])
            lever = point - np.array([place.translation for place in before])
            rows.append((frames @ turned.transpose(0, 2, 1), frames @ rates, torque, doubted(q),
                         tool, point, lever, jacobian.T))
        return Kinematics(*(np.array(part) for part in zip(*rows, strict=True)))

    def jacobian(self, item: ObservedSet, at: Kinematics) -> Array:
        """Return the Jacobian of the target, shift and turn, by all unknowns, (k, 6, width)."""
        n, count = self.robot.n, len(item)
        jacobian, joints = np.zeros((count, 6, self.width)), at.joints.transpose(0, 2, 1)
        jacobian[:, :3, :3 * n] = at.shifts.transpose(0, 2, 1, 3).reshape(count, 3, -1)
        turned = np.cross(at.turns.transpose(0, 1, 3, 2), at.lever[:, :, None])
        jacobian[:, :3, 3 * n:6 * n] = turned.transpose(0, 3, 1, 2).reshape(count, 3, -1)
        jacobian[:, 3:, 3 * n:6 * n] = at.turns.transpose(0, 2, 1, 3).reshape(count, 3, -1)
        jacobian[:, :, 6 * n:7 * n] = -joints * at.torque[:, None]
        jacobian[:, :, 7 * n:self._bodies] = -joints @ (
            self.value[6 * n:7 * n, None] * at.doubted)
        jacobian[:, :, self.encoders] = (
            joints[:, :, None] * _per_turn(item.posture)[:, None]).reshape(count, 6, -1)
        jacobian[:, :3, self.columns['target', item.target]] = at.tool
        if item.posed:
            jacobian[:, 3:, self.columns['turn', item.target]] = at.tool @ self.turns[item.target]
        return jacobian

    def _scale(self, item: ObservedSet) -> slice:
        """Return the column of the scale of a set's readings; none if that is exact."""
        return self.nuisances.get(_scale_of(item), (slice(0), 0.0))[0]

    def scaled(self, noise: float = _NOISE) -> Array:
        """Return the Jacobian in units of noise and of what is known before, (rows, width).

        Known distances come first, then the rows of each observation together.

        Args:
            noise: Standard deviation of a coordinate [m, rad].

        """
        n, rows = self.robot.n, self.linearised()
        known = np.full(self.width, _FAR)
        known[:6 * n] = np.repeat(tuple(_START.values()), 3 * n)
        # A turn like that of frames under the largest torque.
        torque = np.abs(np.concatenate([self.kinematics(item).torque for item in self.sets]))
        known[6 * n:7 * n] = _START['frame turn'] / max(float(torque.max()), 1e-9)
        for part, std in self.nuisances.values():
            known[part] = std
        known[self.encoders] = known[self.drift] = known[self.slip] = 0.0
        return rows.jacobian[np.argsort(rows.owner, kind='stable')] * known / noise

    def residuals(self, item: ObservedSet) -> Iterator[tuple[str, Array, Array]]:
        """Yield kind, residuals and Jacobian of a set: shapes (k, d) and (k, d, width) [m, rad].

        Residuals are predicted minus measured, in root axes.
        """
        fixture, at = self.fixtures[item.fixture], self.kinematics(item)
        point, jacobian = at.point, self.jacobian(item, at)
        if isinstance(fixture, pin.SE3):
            own = jacobian[:, :, self.columns['fixture', item.fixture]]
            measured = point if item.corners else (
                item.reading[:, :3] @ fixture.rotation.T + fixture.translation)
            own[:] = -np.eye(6)
            own[:, :3, 3:] = np.cross(measured[:, None], np.eye(3)).transpose(0, 2, 1)
            # A larger scale puts what is seen farther away.
            jacobian[:, :3, self._scale(item)] = (fixture.translation - point)[:, :, None]
            if item.corners:
                yield item.kind, *self._seen(item, at, jacobian)
                return
            yield item.kind, point - measured, jacobian[:, :3]
            if item.posed:
                apart = at.tool @ self.turns[item.target] @ (
                    fixture.rotation @ _rotations(item)).transpose(0, 2, 1)
                yield (TURN, scipy.spatial.transform.Rotation.from_matrix(apart).as_rotvec(),
                       jacobian[:, 3:])
            return
        across = np.eye(3) if item.kind == 'socket' else fixture[None, :3]
        residual = point - fixture if item.kind == 'socket' else point @ across.T - fixture[3]
        scale, grown = self._relative(item, across, at)
        jacobian = across @ jacobian[:, :3]
        own = jacobian[:, :, self.columns['fixture', item.fixture]]
        if item.kind == 'socket':
            own[:] = -np.eye(3)
        else:
            own[:, 0, :2], own[:, 0, 2] = point @ scipy.linalg.null_space(across), -1.0
        jacobian -= residual[:, :, None] * grown[:, None]
        yield item.kind, scale[:, None] * residual, scale[:, None, None] * jacobian

    def _seen(self, item: ObservedSet, at: Kinematics, moved: Array) -> tuple[Array, Array]:
        """Return residuals and Jacobian of images, shapes (k, 6) and (k, 6, width).

        Args:
            item: The set.
            at: Arrays of the set.
            moved: Shift and turn of the target against the fixture by all unknowns, shape
                (k, 6, width).

        """
        camera, fixed, turn = (self.cameras[item.camera], self.fixtures[item.fixture],
                               self.turns[item.target])
        changes, free = np.zeros(len(camera.value)), np.flatnonzero(camera.std)
        columns = [self.intrinsics[f'{item.camera}.{INTRINSICS[place]}'] for place in free]
        changes[free] = self.value[columns]
        on_tool = item.kind == 'camera_on_tool'
        # One factor for all images of a set: their noise is alike in pixels.
        scale = float(np.median([
            camera.metres(corners, pose.inverse() if on_tool else pose)
            for corners, pose in zip(item.corners, map(pin.XYZQUATToSE3, item.reading),
                                     strict=True)]))
        found, jacobian = np.zeros((len(item), 6)), np.zeros((len(item), 6, self.width))
        for number, corners in enumerate(item.corners):
            found[number], slope, own = camera.residual(
                corners, pin.SE3(at.tool[number] @ turn, at.point[number]), fixed, changes,
                on_tool=on_tool)
            jacobian[number] = slope @ moved[number]
            jacobian[number][:, columns] = own[:, free]
        return scale * found, scale * jacobian

    def _relative(self, item: ObservedSet, across: Array, at: Kinematics) -> tuple[Array, Array]:
        """Return the factor of residuals that have no length, and the slope of its logarithm.

        The factor is (V₀ / V)^(1/d), with the volume V by which the joints move the residual, and
        V₀ that of the first call.

        Args:
            item: The set.
            across: Directions of the residual, shape (d, 3).
            at: Arrays of the set.

        Returns:
            The factor, shape (k,), and minus the derivatives of its logarithm, shape (k, width).

        """
        n, rows = self.robot.n, len(across)
        moved, joint_axes = np.split(at.joints, 2, axis=2)
        square = across @ np.einsum('kni,knj->kij', moved, moved) @ across.T
        # Keeps singular postures finite, and arms with fewer joints than directions.
        square += _RIDGE * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(rows)
        dual = moved @ (across.T @ np.linalg.inv(square) @ across)
        twisted = np.cross(dual, joint_axes)
        proximal = np.cumsum(twisted, axis=1) - twisted
        distal = np.cross(moved, dual)[:, ::-1].cumsum(axis=1)[:, ::-1]
        slope, turning = np.zeros((len(item), self.width)), np.cross(at.lever, proximal) + distal
        slope[:, self.encoders] = (np.sum(joint_axes * turning, axis=2)[:, None]
                                   * _per_turn(item.posture)).reshape(len(item), -1)
        for part, axes, gradient in ((slice(3 * n), at.shifts, proximal),
                                     (slice(3 * n, 6 * n), at.turns, turning)):
            slope[:, part] = np.einsum('knji,knj->kni', axes, gradient).reshape(-1, 3 * n)
        slope[:, self.columns['target', item.target]] = np.einsum(
            'kji,kj->ki', at.tool, twisted.sum(axis=1))
        volume = np.sqrt(np.linalg.det(square))
        first = self._volume.setdefault(id(item), volume)
        return (first / volume)**(1.0 / rows), slope / rows

    def linearised(self) -> Rows:
        """Return the residuals of all sets, and those of known distances."""
        parts, begin = [], 0
        for item in self.sets:
            owner = np.arange(begin, begin + len(item))
            for kind, residual, jacobian in self.residuals(item):
                for what, waves, mine in self._waves[id(item)]:
                    moved = jacobian[:, :, None, self.columns[what]]
                    jacobian[:, :, mine] = (waves[:, None, :, None] * moved).reshape(
                        *residual.shape, -1)
                for own in (self.drift, self.slip, self._scale(item)):
                    residual = residual + jacobian[:, :, own] @ self.value[own]
                parts.append((residual.ravel(), jacobian.reshape(-1, self.width),
                              np.full(residual.size, kind, dtype=object),
                              np.repeat(owner, residual.shape[1])))
            begin += len(item)
        for known in self.known:
            distance, slope = self.distance(*known.between)
            parts.append((np.array([distance - known.distance]), slope[None],
                          np.array([KNOWN], dtype=object), np.array([-1])))
        return Rows(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def distance(self, one: str, other: str) -> tuple[float, Array]:
        """Return the distance between two sockets [m] and its derivatives, shape (width,)."""
        between = self.fixtures[one] - self.fixtures[other]
        distance, slope = float(np.linalg.norm(between)), np.zeros(self.width)
        slope[self.columns['fixture', one]] = between / distance
        slope[self.columns['fixture', other]] = -between / distance
        return distance, slope

    def move(self, step: Array) -> None:
        """Move the estimate of targets and fixtures; shape (width,)."""
        for (what, name), columns in self.columns.items():
            change = step[columns]
            if what == 'target':
                self.targets[name] = self.targets[name] + change
            elif what == 'turn':
                self.turns[name] = self.turns[name] @ pin.exp3(change)
            elif isinstance(fixture := self.fixtures[name], pin.SE3):
                turn = pin.exp3(change[3:])
                self.fixtures[name] = pin.SE3(
                    turn @ fixture.rotation, turn @ fixture.translation + change[:3])
            elif len(fixture) == 3:
                self.fixtures[name] = fixture + change
            else:
                normal = fixture[:3] + scipy.linalg.null_space(fixture[None, :3]) @ change[:2]
                length = float(np.linalg.norm(normal))
                self.fixtures[name] = np.append(normal, fixture[3] + change[2]) / length


@dataclass(frozen=True, eq=False)
class Rows:
    """Linearised residuals.

    Attributes:
        residual: Predicted minus measured, shape (r,) [m, rad].
        jacobian: Derivatives, shape (r, width).
        kind: Kind of each row, shape (r,).
        owner: Number of its observation, over all sets; −1 for a known distance, shape (r,).

    """

    residual: Array
    jacobian: Array
    kind: np.ndarray
    owner: np.ndarray

    @property
    def positions(self) -> Flags:
        """Mask of the rows of observations that are no rotations, shape (r,)."""
        return (self.owner >= 0) & ~np.array([
            kind.startswith(TURN) for kind in self.kind.tolist()])

    def distances(self) -> Array:
        """Return the distance of each observation, without rotations, shape (k,) [m]."""
        here = self.positions
        return np.sqrt(np.bincount(self.owner[here], self.residual[here]**2))


@dataclass(frozen=True, eq=False)
class GeometryFit:
    """Estimate of all unknowns.

    Attributes:
        geometry: The state, at the estimate.
        rows: Residuals there.
        mixed: The mixed model there, of the rows that were used.
        used: Rows that were used, shape (r,).
        kept: Observations that were used, shape (k,).
        fits: Observations that agree with the model within the noise of their kind, shape (k,).
        odd: Sets of which more do not than can be exceptions: their noise is their own.
        memory: Correlation time of the noise in observations of one file, at least 1.

    """

    geometry: ArmGeometry
    rows: Rows
    mixed: MixedFit
    used: Flags
    kept: Flags
    fits: Flags
    odd: tuple[str, ...]
    memory: float


def fit_geometry(geometry: ArmGeometry) -> GeometryFit:
    """Estimate all unknowns robustly; the state of the argument is moved to the estimate.

    Raises:
        DataError: If the estimate does not converge.

    """
    n, sets = geometry.robot.n, geometry.sets
    member = np.repeat(np.arange(len(sets)), [len(item) for item in sets])
    kept = fits = np.ones(len(member), dtype=bool)
    odd = np.zeros(len(sets), dtype=bool)
    rows = geometry.linearised()
    off = _distances(rows, np.ones(len(member)), ~kept, _DOWNWEIGHTED,
                     np.zeros((geometry.width, geometry.width)), np.ones(len(rows.owner)))
    for step in range(_STEPS):
        rows, settled, weight = geometry.linearised(), step >= _SETTLED, 1.0 / np.maximum(off, 1.0)
        kinds = rows.kind.copy()
        if settled:
            before, fits = kept, off <= 1.0
            # The first to be left out are all that may be off, lest they hide one another.
            odd = (step > _SETTLED) & (
                np.bincount(member, ~fits) > MAX_LOST * np.bincount(member))
            # What was left out for long does not come back, so that this ends.
            kept = (fits & (kept | (step < _FINAL))) | odd[member]
            weight = kept.astype(float)
            # In these sets no observation can be trusted more than another.
            strange = (rows.owner >= 0) & odd[member[rows.owner]]
            rows.kind[strange] = [f'{kind} of {sets[member[owner]].name}' for kind, owner in zip(
                rows.kind[strange], rows.owner[strange], strict=True)]
        root = np.sqrt(np.where(rows.owner < 0, 1.0, weight[rows.owner]))
        used = root > 0.0
        mixed = _solved(rows, geometry, root, used, _LEAST if settled else _LEAST | _START)
        found = np.concatenate([mixed.coefficients[name] for name in (
            *_COLUMNS, *geometry.nuisances, _ENCODERS, _DRIFT, _SLIP, UNKNOWN)])
        moved = found - np.append(geometry.value, np.zeros(len(found) - len(geometry.value)))
        change = np.abs(moved[:7 * n]).max()
        if step > _SETTLED and change < _SMALL_STEP and (before == kept).all():
            break
        off = _distances(
            replace(rows, residual=rows.residual + rows.jacobian @ moved, kind=kinds), weight,
            settled & fits & ~odd[member], _REJECTED if settled else _DOWNWEIGHTED, mixed.complete,
            np.array([mixed.std.get(kind, np.inf) for kind in rows.kind.tolist()]))
        geometry.value = found[:len(geometry.value)]
        geometry.move(found)
    else:
        raise DataError(
            f'The estimate does not converge: after {_STEPS} steps it still changes by '
            f'{change:.1e} m or rad. Use postures that differ more; check that the URDF is of '
            'this robot, and that the sets belong together.')
    return GeometryFit(
        geometry, rows, mixed, used, kept, fits,
        tuple(item.name for item, alone in zip(sets, odd, strict=True) if alone),
        _memory(rows, used & ~np.isin(member, np.flatnonzero(odd))[rows.owner], member))


def _distances(
    rows: Rows, weight: Array, sound: Flags, level: float, covariance: Array, noise: Array
) -> Array:
    """Return the distances of observations from all others, over the largest of noise, (k,).

    These are F tests of their deleted residuals: Cook, Weisberg, Residuals and Influence in
    Regression (1982), sec. 2.2.2.

    Args:
        rows: Residuals of the estimate.
        weight: Weights by which observations entered it, shape (k,).
        sound: Observations whose noise counts, shape (k,); of a kind without, the median's does.
        level: Probability of larger distances by noise.
        covariance: Covariance of the unknowns, shape (width, width).
        noise: Standard deviation of each row in the estimate, shape (r,) [m, rad].

    """
    off = np.zeros(len(weight))
    for kind in dict.fromkeys(rows.kind[rows.owner >= 0].tolist()):
        mine = rows.kind == kind
        size = 1 if kind == 'plane' else 6 if READING.get(kind) == 5 else 3
        owner, left = rows.owner[mine][::size], rows.residual[mine].reshape(-1, size)
        columns, own = rows.jacobian[mine].reshape(len(left), size, -1), sound[owner]
        # Residuals vary less than noise where they entered the estimate, else more.
        sign = np.where(weight[owner] > 0.0, -weight[owner], 1.0) / noise[mine][::size]**2
        spread = np.eye(size) * (1.0 + _SINGULAR) + sign[:, None, None] * (
            columns @ covariance @ columns.transpose(0, 2, 1))
        square = np.einsum('ki,ki->k', left, np.linalg.solve(spread, left[:, :, None])[:, :, 0])
        freedom = np.trace(spread, axis1=1, axis2=2)
        if own.any():
            total = max(float(freedom[own].sum()), 1.0)
            variance = float(np.square(left[own]).sum()) / total
        else:
            middle = float(scipy.stats.chi2.ppf(0.5, size))
            variance = float(np.median(square)) / middle
            # By the asymptotic variance of a median.
            total = float(freedom.sum()) / size * 8.0 * (
                middle * scipy.stats.chi2.pdf(middle, size))**2
        rest = np.maximum(total - size * own, 1.0)
        limit = size * scipy.stats.f.isf(level, size, rest)
        cut = max(variance, _EXACT**2) * limit * np.where(own, total / (rest + limit), 1.0)
        off[owner] = np.maximum(off[owner], np.sqrt(square / cut))
    return off


def _memory(rows: Rows, used: Flags, member: np.ndarray) -> float:
    """Return the correlation time of the residuals of successive observations, at least 1.

    The autocorrelation is that of all sets together, of which each alone is too short.
    """
    products, counts = np.zeros(_LAGS + 1), np.zeros(_LAGS + 1)
    for number in range(int(member.max()) + 1):
        for kind in np.unique(rows.kind[used]):
            mine = used & (rows.owner >= 0) & (member[rows.owner] == number) & (rows.kind == kind)
            if not mine.any():
                continue
            series = rows.residual[mine].reshape(len(np.unique(rows.owner[mine])), -1)
            series = (series - series.mean(axis=0)) / max(float(series.std()), 1e-12)
            for lag in range(min(_LAGS + 1, len(series))):
                products[lag] += np.sum(series[lag:] * series[:len(series) - lag])
                counts[lag] += series[lag:].size
    correlation = products[1:] / np.maximum(counts[1:], 1.0)
    below = np.flatnonzero(correlation < 3.0 / np.sqrt(np.maximum(counts[1:], 1.0)))
    return 1.0 + 2.0 * float(correlation[:below[0] if len(below) else _LAGS].sum())


def _solved(
    rows: Rows, geometry: ArmGeometry, root: Array, used: Flags, prior: Mapping[str, float]
) -> MixedFit:
    """Return the mixed model of weighted rows, with the sizes of noise and displacements."""
    size, n = len(geometry.value), geometry.robot.n
    columns = (rows.jacobian * root[:, None])[used]
    aims = (root * (rows.jacobian[:, :size] @ geometry.value - rows.residual))[used]
    kind, std = rows.kind[used], np.zeros(len(aims))
    std[kind == KNOWN] = [item.std for item in geometry.known]
    frames = zip(_COLUMNS, np.split(columns[:, :7 * n], (3 * n, 6 * n), axis=1), strict=True)
    return fit_mixed(np.zeros((len(aims), 0)), aims, std, [
        *(Effect(name, np.zeros((len(aims), 0)), kind == name)
          for name in dict.fromkeys(kind[kind != KNOWN].tolist())),
        *(Effect(name, part, prior_std=prior[name],
                 estimated=prior[name] == _LEAST[name] and bool(part.any()))
          for name, part in frames),
        *(Effect(name, columns[:, part], prior_std=std, estimated=False)
          for name, (part, std) in geometry.nuisances.items()),
        Effect(_ENCODERS, columns[:, geometry.encoders]),
        *(Effect(name, part := columns[:, which], estimated=bool(part.any()))
          for name, which in ((_DRIFT, geometry.drift), (_SLIP, geometry.slip))),
        Effect(UNKNOWN, columns[:, size:], prior_std=_FAR, estimated=False)])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Validation on placements that the estimate does not know.

    Attributes:
        groups: Number of the placement of each observation, shape (k,); of every fifth posture
            where there is one placement.
        names: Names of the placements.
        length: Distance of each observation from the model of all other placements without
            encoders, with the sockets and planes of its own placement fitted, NaN without
            evidence, shape (k,) [m].
        ratio: Squared distances over what noise and uncertainty explain, per degree of freedom,
            of the observations that were kept.
        displaced: Common displacement of all observations of a tracker in a placement, by the
            name of the placement, where it is significant and beyond the noise [m].

    """

    groups: np.ndarray
    names: tuple[str, ...]
    length: Array
    ratio: float
    displaced: dict[str, float]


def hold_out(fit: GeometryFit) -> HeldOut:
    """Predict each placement by the estimate from all others."""
    geometry, rows, mixed = fit.geometry, fit.rows, fit.mixed
    placements = [item.placement for item in geometry.sets for _ in range(len(item))]
    names = tuple(dict.fromkeys(placements))
    groups = np.array([names.index(name) for name in placements])
    if len(names) == 1:
        names = tuple(f'every fifth posture from {first}' for first in range(1, _FOLDS + 1))
        groups = np.arange(len(groups)) % _FOLDS
    length, square, freedom = np.full(len(groups), np.nan), 0.0, 0
    noise = np.array([mixed.std.get(kind, 0.0) for kind in rows.kind.tolist()])
    start = np.concatenate((geometry.value, np.zeros(geometry.width - len(geometry.value))))
    mine_of = np.where(rows.owner < 0, -1, groups[rows.owner])
    tracked = np.isin(rows.kind, ('point', 'pose'))
    positions = rows.positions
    displaced = {}
    for number in range(len(names)):
        mine = mine_of == number
        kept = mine & fit.used
        value, covariance = mixed.left_out(mine[fit.used])
        residual = rows.residual + rows.jacobian @ (value - start)
        held = residual - absorbed(fit, fit.used & ~mine, value)[1]
        # Sockets and planes that no other placement has are those that the held-out rows fit.
        others = rows.jacobian[(mine_of >= 0) & ~mine]
        own = np.flatnonzero(rows.jacobian[mine].any(axis=0) & ~others.any(axis=0))
        columns = rows.jacobian[:, own]
        fitted = np.linalg.lstsq(columns[kept], held[kept], rcond=None)[0]
        left = np.where(mine, held - columns @ fitted, 0.0)
        position = mine & positions
        found = np.sqrt(np.bincount(rows.owner[position], left[position]**2, len(groups)))
        length = np.where(groups == number, found, length)
        seen = kept & tracked
        if seen.any() and not rows.jacobian[np.ix_(seen, own)].any():
            mean = np.tile(np.eye(3), seen.sum() // 3) * 3.0 / seen.sum()
            offset, slope = mean @ residual[seen], mean @ rows.jacobian[seen]
            covariance_of_mean = (mean * noise[seen]**2) @ mean.T + slope @ covariance @ slope.T
            square_of_mean = offset @ np.linalg.solve(covariance_of_mean, offset)
            if (square_of_mean > scipy.stats.chi2.isf(_REJECTED, 3)
                    and np.linalg.norm(offset) > np.sqrt(3.0) * noise[seen].max()):
                displaced[names[number]] = float(np.linalg.norm(offset))
        jacobian = rows.jacobian[kept]
        spread = jacobian @ covariance @ jacobian.T + np.diag(noise[kept]**2)
        square += float(residual[kept] @ np.linalg.solve(spread, residual[kept]))
        freedom += int(kept.sum()) - len(own)
    return HeldOut(groups, names, length, square / max(freedom, 1), displaced)


def absorbed(fit: GeometryFit, used: Flags, value: Array) -> tuple[Array, Array]:
    """Return the changes of frames that hold best what encoders miss, and what they leave of it.

    A URDF has no other place for it. Targets and fixtures follow.

    Args:
        fit: The estimate.
        used: Rows where they hold it, shape (r,).
        value: The unknowns, which begin with those of ``ArmGeometry.value``, shape (…,).

    Returns:
        Changes, shape (width,), and predictions of the estimate less those of the changed frames
        without encoders, shape (r,) [m, rad].

    """
    geometry, every = fit.geometry, fit.rows.jacobian
    missed = every[:, geometry.encoders] @ value[geometry.encoders]
    noise = np.array([fit.mixed.std.get(kind, 0.0) for kind in fit.rows.kind[used].tolist()])
    noise[fit.rows.owner[used] < 0] = [item.std for item in geometry.known]
    noise, free = np.maximum(noise, _EXACT), np.r_[
        :6 * geometry.robot.n, len(geometry.value):geometry.width]
    known, change = np.ones(geometry.width), np.zeros(geometry.width)
    for name in _COLUMNS[:2]:
        known[fit.mixed.places[name]] = fit.mixed.std[name]
    own = every[np.ix_(used, free)] * known[free] / noise[:, None]
    change[free] = known[free] * np.linalg.solve(
        own.T @ own + np.eye(len(free)), own.T @ (missed[used] / noise))
    return change, missed - every @ change


def _per_turn(q: Array) -> Array:
    """Return sine and cosine of joint angles (k, n), shape (k, 2, n)."""
    return np.stack((np.sin(q), np.cos(q)), axis=1)


def _scale_of(item: ObservedSet) -> str:
    """Return the name of the unknown scale of a set's readings, that of its tracker or board."""
    return f'{item.target if item.kind == "camera" else item.fixture}.scale'


def _rotations(item: ObservedSet) -> Array:
    """Return the measured orientations of a set of poses, shape (k, 3, 3)."""
    return np.asarray(scipy.spatial.transform.Rotation.from_quat(item.reading[:, 3:]).as_matrix())
