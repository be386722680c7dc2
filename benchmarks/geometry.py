# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the geometry of the whole arm: hidden errors of all frames, and sag.

The forward model is that of `second_world`, which shares nothing with the product. All frames are
displaced, the joints are compliant under the weight of the links, and the target is not where it
is said to be. It is seen by a tracker of unknown pose, or is a ball in pairs of sockets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import process_time

import numpy as np
import pinocchio as pin
import scipy

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.second_campaign import Z95, Case, value_of
from benchmarks.second_world import (
    ARMS,
    GRAVITY,
    Array,
    placed,
    reached,
    read_arm,
    rotation,
    torques,
    urdf_of,
)
from robocal_ros.compliance import ComplianceParameters
from robocal_ros.compliance.camera import Camera
from robocal_ros.compliance.geometry import Observations, ObservedSet
from robocal_ros.compliance.geometry_estimator import estimate_geometry
from robocal_ros.compliance.model import Mounted
from robocal_ros.errors import RobocalError
from robocal_ros.results import CalibrationResult, Parameter, State
from robocal_ros.robot import FRAME_AXES, Robot, deflected, with_frames

SHIFT, TURN, WEIGHT, TRACKER, BALL, APART = 1e-3, 2e-3, 0.03, 5e-5, 1e-4, 0.05
"""Standard deviations of frames [m, rad], of masses of links, each and together, of a tracker's
reading and of a ball in its socket per axis [m], and the distance between the sockets of a
placement [m]."""

LENS, LENS_STD = (np.array(part) for part in (
    (1000.0, 1000.0, 800.0, 600.0, -0.1, 0.02, 0.001, -0.001, 0.0),
    (1.0, 1.0, 1.0, 1.0, 1e-3, 2e-3, 1e-4, 1e-4, 1e-3)))
IMAGE, CORNER, SQUARE, AWAY = (1600.0, 1200.0), 0.1, 0.03, 0.6
"""Lens (fx, fy, cx, cy, k1, k2, p1, p2, k3) with its standard deviations, size of the image, and
standard deviation of a corner [px]; size of a square, and distance of the board [m]."""

SERIES = ('tracker', 'sockets', 'camera', 'camera_on_tool')
HELD_OUT_BAR, TIP_BAR = 1.2, 0.3
FRAMES, HELD, DISTANCES, STIFF = (
    'observable frames and target inside 95 %', 'frames held by their priors inside 95 %',
    'socket distances inside 95 %', 'observable compliances within 2 σ')
LIMITS = {FRAMES: (Z95, 93.0), HELD: (Z95, 93.0), DISTANCES: (Z95, 93.0), STIFF: (2.0, 95.0)}
"""Largest deviates, and least percent within them."""

_POSTURES, _PLACEMENTS, _ROWS = 80, 5, 30


class Cell:
    """An arm with hidden errors."""

    def __init__(self, seed: int) -> None:
        """Draw what is hidden; ``seed`` chooses the arm, too."""
        self.noise = g = np.random.default_rng([seed, 4])
        self.name = list(ARMS)[seed % len(ARMS)]
        self.nominal = read_arm(self.name)
        n = len(self.nominal.joints)
        self.moved = np.hstack((SHIFT * g.normal(size=(n, 3)), TURN * g.normal(size=(n, 3))))
        self.arm = replace(self.nominal, before=np.array([
            before @ placed(rotation(part[3:]), part[:3])
            for before, part in zip(self.nominal.before, self.moved, strict=True)]))
        weight = np.random.default_rng([seed, 5]).normal(size=n + 1)
        self.links = self.arm.links * (1.0 + WEIGHT * (weight[0] + weight[1:]))[:, None, None]
        self.target = g.uniform((-0.08, -0.08, 0.0), (0.08, 0.08, 0.1))
        self.stated = self.target + 2e-3 * g.normal(size=3)
        self.compliance = np.geomspace(1.0, 20.0, n) * np.exp(0.4 * g.normal(size=n)) * 1e-6
        centre = np.array(ARMS[self.name].home)
        self.low = np.maximum(self.arm.lower, centre - 1.6)
        self.high = np.minimum(self.arm.upper, centre + 1.6)
        q = g.uniform(self.low, self.high, (50, n))
        moved = self._tip(self.motors(q)) - self._tip(q)
        sag = float(np.sqrt(np.mean(np.sum(moved**2, axis=1))))
        self.compliance *= np.exp(g.uniform(np.log(5e-4), np.log(2e-3))) / sag

    def _tip(self, q: Array) -> Array:
        return reached(self.arm, q, self.target)

    def motors(self, q: Array) -> Array:
        """Return the angles of the motors with the links at ``q``, shape (k, n) [rad]."""
        still = np.zeros_like(q)
        return q + self.compliance * torques(
            self.arm, self.links, q, still, still, np.array([0.0, 0.0, -GRAVITY]))

    def tracker(self) -> Observations:
        """Return random postures, seen by a tracker."""
        g, n = self.noise, len(self.arm.joints)
        q = g.uniform(self.low, self.high, (_POSTURES, n))
        turn, origin = rotation(g.normal(size=3)), g.uniform(-2.0, 2.0, 3)
        seen = (self._tip(q) - origin) @ turn + TRACKER * g.normal(size=(_POSTURES, 3))
        return Observations((ObservedSet(
            'tracker', 'point', 'all', 'tracker', 'target', False, self.motors(q), seen,
            tuple(range(1, _POSTURES + 1))),))

    def sockets(self) -> Observations:
        """Return postures with the ball in pairs of sockets."""
        g, n = self.noise, len(self.arm.joints)
        middle = g.uniform(self.low, self.high, (_PLACEMENTS, n)).repeat(2 * _ROWS, axis=0)
        axis = g.normal(size=(_PLACEMENTS, 3)).repeat(2 * _ROWS, axis=0)
        number = np.arange(len(middle)) // _ROWS
        aim = (self._tip(middle) + BALL * g.normal(size=(len(middle), 3))
               + (APART * (number % 2) / np.linalg.norm(axis, axis=1))[:, None] * axis)
        q = np.clip(middle + g.uniform(-1.2, 1.2, middle.shape), self.low, self.high)
        for _ in range(40):
            q = self._nearer(q, aim)
        reached = np.linalg.norm(self._tip(q) - aim, axis=1) < 1e-9
        sets = []
        for socket in range(2 * _PLACEMENTS):
            mine = reached & (number == socket)
            if mine.sum() < _ROWS // 2:
                continue
            posture = self.motors(q[mine])
            name = f'{socket // 2}/{socket % 2}'
            sets.append(ObservedSet(
                name, 'socket', str(socket // 2), name, 'ball', False, posture,
                np.zeros((len(posture), 0)), tuple(range(1, len(posture) + 1))))
        return Observations(tuple(sets))

    def camera(self, kind: str) -> Observations:
        """Return images of a board, by a camera in the cell or on the tool.

        What is on the tool looks along its z axis, turned a little, and the other one at it. The
        postures are those that differ most of the ones with the whole board in view. The lens is
        not quite what it is said to be.
        """
        g, centre = self.noise, 0.5 * (self.low + self.high)
        grid = np.indices((6, 8)).reshape(2, -1).T - [2.5, 3.5]
        board = np.hstack((SQUARE * grid, np.zeros((len(grid), 1))))
        origin, axes = self._frames(centre[None])
        mounting = rotation(0.1 * g.normal(size=3))
        looking = axes[0] @ mounting
        place = origin[0] + AWAY * looking[:, 2]
        facing = looking @ np.diag([1.0, -1.0, -1.0]) @ rotation(0.1 * g.normal(size=3))
        spread = np.sort(g.uniform(0.1, 0.8, (60 * _POSTURES, 1)), axis=0)[::-1]
        q = np.clip(centre + spread * g.uniform(-1.0, 1.0, (len(spread), len(centre))),
                    self.low, self.high)
        origin, axes = self._frames(q)
        moving, fixed = (origin, axes @ mounting), (place + 0.0 * origin, facing + 0.0 * axes)
        eye, seen = (moving, fixed) if kind == 'camera_on_tool' else (fixed, moving)
        corners = seen[0][:, None] + board @ seen[1].transpose(0, 2, 1)
        inside = (corners - eye[0][:, None]) @ eye[1]
        sight = eye[0] - seen[0]
        pixels = projected(inside, LENS + LENS_STD * g.normal(size=len(LENS)))
        visible = ((np.sum(seen[1][:, :, 2] * sight, axis=1) > 0.5 * np.linalg.norm(sight, axis=1))
                   & (inside[:, :, 2] > 0.1).all(axis=1)
                   & ((pixels > 0.0) & (pixels < IMAGE)).all(axis=(1, 2)))
        rows = np.flatnonzero(visible)[:_POSTURES]
        images = tuple(np.hstack((board, image + CORNER * g.normal(size=image.shape)))
                       for image in pixels[rows])
        lens = Camera(LENS, LENS_STD)
        poses = [lens.board(image)[0] for image in images]
        if kind == 'camera_on_tool':
            poses = [pose.inverse() for pose in poses]
        names = ('board', 'lens') if kind == 'camera_on_tool' else ('lens', 'board')
        return Observations((ObservedSet(
            'images', kind, 'all', *names, False, self.motors(q[rows]),
            np.array([pin.SE3ToXYZQUAT(pose) for pose in poses]),
            tuple(range(1, len(rows) + 1)), 'lens', images),), cameras={'lens': lens})

    def _frames(self, q: Array) -> tuple[Array, Array]:
        """Return origin, shape (k, 3) [m], and axes, shape (k, 3, 3), of the target."""
        origin = self._tip(q)
        return origin, np.stack([reached(self.arm, q, self.target + axis) - origin
                                 for axis in np.eye(3)], axis=2)

    def _nearer(self, q: Array, aim: Array) -> Array:
        """Return postures whose targets are nearer to an aim, by a damped Newton step."""
        n, point = q.shape[1], self._tip(q)
        slope = np.stack([(self._tip(q + step) - point) / 1e-6
                          for step in 1e-6 * np.eye(n)], axis=2)
        square = slope @ slope.transpose(0, 2, 1) + 1e-6 * np.eye(3)
        step = slope.transpose(0, 2, 1) @ np.linalg.solve(square, (aim - point)[:, :, None])
        return np.asarray(q + np.clip(step[:, :, 0], -0.2, 0.2))


def projected(points: Array, lens: Array) -> Array:
    """Return the pixels of points in a camera's frame, shape (..., 3) [m], by Brown's model."""
    fx, fy, cx, cy, k1, k2, p1, p2, k3 = lens
    x, y = points[..., 0] / points[..., 2], points[..., 1] / points[..., 2]
    r2 = x**2 + y**2
    radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
    u = x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x**2)
    v = y * radial + p1 * (r2 + 2.0 * y**2) + 2.0 * p2 * x * y
    return np.stack((fx * u + cx, fy * v + cy), axis=-1)


def run_cell(seed: int, series: str) -> Case:
    """Return what the product says of one cell."""
    cell = Cell(seed)
    data = getattr(cell, series)() if series in SERIES[:2] else cell.camera(series)
    robot = Robot(urdf_of(cell.name), tool_frame=ARMS[cell.name].tool)
    values = ComplianceParameters(target_xyz=cell.stated.tolist())
    began = process_time()
    try:
        result = estimate_geometry(robot, data, values, Mounted(None))
    except RobocalError as error:
        return Case(seed, series, cell.name, {}, 'refused', str(error))
    seconds = process_time() - began
    truth = {f'{joint}.{axis}': value for joint, moved in zip(
        cell.arm.joints, cell.moved.tolist(), strict=True)
        for axis, value in zip(FRAME_AXES, moved, strict=True)}
    truth |= {f'{name}.{axis}': value for name in ('ball', 'target', 'board', 'lens')
              for axis, value in zip('xyz', cell.target.tolist(), strict=True)}
    truth |= {f'{joint}.compliance': value for joint, value in zip(
        cell.arm.joints, cell.compliance.tolist(), strict=True)}
    truth |= {item.name: APART for item in result.parameters if item.name.endswith('.distance')}
    found = tuple(
        value_of(kind, truth[item.name], item.value, item.std,
                 freedom=None if kind == STIFF else item.freedom) for item in result.parameters
        if item.name in truth and item.value is not None and (kind := _kind(item)))
    (distance,) = result.validation
    measured = np.concatenate([item.posture for item in data.sets])
    # Of a camera, in metres.
    noise = {'tracker': np.sqrt(3.0) * TRACKER, 'sockets': np.sqrt(3.0) * BALL}.get(series, 1.0)
    return Case(seed, series, cell.name, {}, result.verdict.value, ' '.join(result.reasons), found,
                {'held out': distance.after / noise,
                 'tip': tip_error(cell, result, cell.low, cell.high),
                 'stated': tip_error(cell, result, measured.min(axis=0), measured.max(axis=0))
                 / result.settings['tip_rms']}, seconds)


def tip_error(cell: Cell, result: CalibrationResult, low: Array, high: Array) -> float:
    """Return how far the target of the calibrated arm is from the true one, RMS [m].

    In fresh postures between joint angles, shape (n,) [rad], apart from a pose of the whole, which
    a tracker, sockets or a camera of unknown pose do not tell.
    """
    robot = Robot(with_frames(urdf_of(cell.name), result), tool_frame=ARMS[cell.name].tool)
    q = cell.noise.uniform(low, high, (200, robot.n))
    name = next(item.name for item in result.parameters if item.name.endswith('.x')
                and item.name[:-2] not in robot.joint_names)[:-2]
    target = result.values([f'{name}.{axis}' for axis in 'xyz'])
    stiff = np.array([result.parameter(f'{joint}.compliance').value or 0.0
                      for joint in robot.joint_names])
    points = np.array([
        robot.transform_frame_to_root(
            deflected(robot.gravity_torque, motors, stiff)[0], robot.tool_frame).act(target)
        for motors in cell.motors(q)])
    true = cell._tip(q)
    points, true = points - points.mean(axis=0), true - true.mean(axis=0)
    turn, _ = scipy.spatial.transform.Rotation.align_vectors(true, points)
    return float(np.sqrt(np.mean(np.sum((turn.apply(points) - true)**2, axis=1))))


def _kind(item: Parameter) -> str:
    """Return the figure that a parameter belongs to; empty for none."""
    what = item.name.rpartition('.')[2]
    if what not in ('distance', 'compliance'):
        return FRAMES if item.state is State.IDENTIFIED else HELD
    return '' if item.state is not State.IDENTIFIED else DISTANCES if what == 'distance' else STIFF


def run_case(seed: int) -> list[Case]:
    """Return the cases of all series."""
    return [run_cell(seed, series) for series in SERIES]


def figures(series: str, cases: Sequence[Case]) -> Iterator[Figure]:
    """Yield the figures of the cases of one series."""
    yield Figure.share(series, 'verdict pass', sum(case.passed for case in cases), len(cases))
    for what, (deviate, bar) in LIMITS.items():
        values = [item for case in cases for item in case.values if item.name == what]
        if values:
            yield Figure.share(series, what, sum(abs(item.z) <= deviate for item in values),
                               len(values), bar)
    held_out, tip, stated = (np.array([case.notes[name] for case in cases if case.notes])
                             for name in ('held out', 'tip', 'stated'))
    if series in SERIES[:2]:
        yield Figure.single(series, 'held-out distance ÷ noise, median of all cells', '1',
                            float(np.median(held_out)), HELD_OUT_BAR)
    else:
        yield Figure.over(series, 'held-out distance as the camera sees it', 'mm', 1e3 * held_out)
    yield Figure.over(series, 'error of the tip in fresh postures', 'mm', 1e3 * tip,
                      TIP_BAR if series in SERIES[2:] else None)
    yield Figure.over(series, 'error of the tip in the range measured ÷ the stated one', '1',
                      stated)
    yield Figure.over(series, 'processor time', 's',
                      [case.seconds for case in cases if np.isfinite(case.seconds)])


def _run(request: Request) -> Outcome:
    every = in_parallel(run_case, request.seeds, request.jobs, 'geometry')
    rows = [figure for number, name in enumerate(SERIES)
            for figure in figures(name, [own[number] for own in every])]
    return Outcome(rows, [case for own in every for case in own])


BENCHMARK = Benchmark('Geometry of the whole arm', (
    'Five arms whose frames are displaced by 1 mm and 2 mrad (standard deviations per axis) and '
    'whose joints sag by 0.5 to 2 mm under the weight of links that are 3 % off together and 3 % '
    'each, by a simulation that shares nothing with the estimator: 80 postures seen by a tracker '
    'of unknown pose (0.05 mm per '
    'axis), 30 postures in each of ten sockets in five placements (0.1 mm per axis) without any '
    'known length, or up to 80 images of a board of 48 corners (0.1 px; focal length '
    '1000 ± 1 px), by a camera in the cell or on the tool. The tip is that of the calibrated arm, '
    'apart from a pose of the whole.'), _run, seeds=500)
