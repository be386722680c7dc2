# SPDX-License-Identifier: Apache-2.0
"""Intersection of a straight line with the collision geometry of links: closed forms, meshes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import coal
import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import ModelError
from robocal_ros.robot import without_missing_meshes
from robocal_ros.wrench.model import Chain, SensedArm

Interval = tuple[float, float]
_PARALLEL = 1e-12


class Shape(ABC):
    """Solid in its own frame."""

    @abstractmethod
    def intervals(self, point: Sequence[float], direction: Sequence[float]) -> list[Interval]:
        """Return the intervals of a line inside the solid, as distances from a point.

        Args:
            point: A point of the line, three coordinates [m].
            direction: Its direction, a unit vector.

        Returns:
            Distances of entry and exit [m].

        """


def _slab(point: float, direction: float, half: float) -> Interval | None:
    """Return the interval of a line between two parallel planes at -half and +half."""
    if abs(direction) < _PARALLEL:
        return (-math.inf, math.inf) if abs(point) <= half else None
    first, second = (-half - point) / direction, (half - point) / direction
    return (first, second) if first < second else (second, first)


def _quadratic(a: float, b: float, c: float) -> Interval | None:
    """Return the interval in which a s² + 2 b s + c is not positive, for a > 0."""
    discriminant = b * b - a * c
    if discriminant <= 0.0:
        return None
    root = math.sqrt(discriminant)
    return (-b - root) / a, (-b + root) / a


def _common(intervals: Sequence[Interval | None]) -> list[Interval]:
    """Return the intersection of several intervals, as a list of at most one."""
    begin, end = -math.inf, math.inf
    for interval in intervals:
        if interval is None:
            return []
        begin, end = max(begin, interval[0]), min(end, interval[1])
    return [(begin, end)] if begin < end else []


@dataclass(frozen=True)
class Sphere(Shape):
    """Sphere about the origin; radius in metres."""

    radius: float

    def intervals(self, point: Sequence[float], direction: Sequence[float]) -> list[Interval]:
        """Return the intervals inside; see the base class."""
        along = sum(p * d for p, d in zip(point, direction, strict=True))
        square = sum(p * p for p in point)
        return _common([_quadratic(1.0, along, square - self.radius**2)])


@dataclass(frozen=True)
class Box(Shape):
    """Box about the origin; half lengths in metres."""

    half: tuple[float, float, float]

    def intervals(self, point: Sequence[float], direction: Sequence[float]) -> list[Interval]:
        """Return the intervals inside; see the base class."""
        return _common([_slab(p, d, h)
                        for p, d, h in zip(point, direction, self.half, strict=True)])


@dataclass(frozen=True)
class Cylinder(Shape):
    """Cylinder about the origin, along z; metres."""

    radius: float
    half: float

    def intervals(self, point: Sequence[float], direction: Sequence[float]) -> list[Interval]:
        """Return the intervals inside; see the base class."""
        x, y, z = point
        a, b, c = direction
        return _common([_round(x, y, a, b, self.radius), _slab(z, c, self.half)])


def _round(x: float, y: float, a: float, b: float, radius: float) -> Interval | None:
    """Return the interval of a line within an infinite cylinder along z."""
    across = a * a + b * b
    if across < _PARALLEL:
        return (-math.inf, math.inf) if x * x + y * y <= radius * radius else None
    return _quadratic(across, x * a + y * b, x * x + y * y - radius * radius)


@dataclass(frozen=True)
class Capsule(Shape):
    """Cylinder along z with hemispheres on its ends; ``half`` is that of the cylinder [m]."""

    radius: float
    half: float

    def intervals(self, point: Sequence[float], direction: Sequence[float]) -> list[Interval]:
        """Return the intervals inside; see the base class."""
        x, y, z = point
        found = Cylinder(self.radius, self.half).intervals(point, direction)
        for end in (-self.half, self.half):
            found += Sphere(self.radius).intervals((x, y, z - end), direction)
        if not found:
            return []
        # The three parts of a convex body overlap or touch.
        return [(min(f[0] for f in found), max(f[1] for f in found))]


class Mesh(Shape):
    """Triangle mesh whose vertices are counter-clockwise seen from outside."""

    def __init__(self, vertices: Array, triangles: np.ndarray) -> None:
        """Compute edges and normals.

        Args:
            vertices: Shape (v, 3) [m].
            triangles: Indices of each triangle's vertices, shape (t, 3).

        """
        corners = vertices[triangles]
        self._corner = corners[:, 0]
        self._first = corners[:, 1] - corners[:, 0]
        self._second = corners[:, 2] - corners[:, 0]
        self._normal = np.cross(self._first, self._second)

    def intervals(self, point: Sequence[float], direction: Sequence[float]) -> list[Interval]:
        """Return the intervals inside; see the base class.

        Möller and Trumbore, Journal of Graphics Tools 2 (1997) 21,
        doi 10.1080/10867651.1997.10487468, for all triangles at once.
        """
        line = np.asarray(direction, dtype=float)
        facing = -(self._normal @ line)
        offset = np.asarray(point, dtype=float) - self._corner
        turned = np.cross(offset, line)
        with np.errstate(divide='ignore', invalid='ignore'):
            u = np.einsum('ij,ij->i', self._second, turned) / facing
            v = -np.einsum('ij,ij->i', self._first, turned) / facing
            distance = np.einsum('ij,ij->i', self._normal, offset) / facing
        hit = (np.abs(facing) > _PARALLEL * 1e-6) & (u >= 0.0) & (v >= 0.0) & (u + v <= 1.0)
        crossings = sorted(zip(distance[hit].tolist(), (facing[hit] > 0.0).tolist(),
                               strict=True))
        found = []
        entry: float | None = None
        for where, inwards in crossings:
            if inwards and entry is None:
                entry = where
            elif not inwards and entry is not None:
                found.append((entry, where))
                entry = None
        return found


@dataclass(slots=True)
class Entry:
    """First point at which a line enters a link.

    Attributes:
        point: Point in the link's frame, shape (3,) [m].
        count: Number of entry points on the line.

    """

    point: Array
    count: int


Vector = tuple[float, float, float]


class _Place:
    """Placement in Python floats, several times as fast as NumPy for single vectors."""

    def __init__(self, placement: pin.SE3) -> None:
        self._origin: Vector = tuple(placement.translation.tolist())
        # Rows of the inverse rotation.
        self._axes: list[Vector] = [tuple(column) for column in placement.rotation.T.tolist()]

    def turned_in(self, vector: Vector) -> Vector:
        """Return a direction in the coordinates of the placed frame."""
        x, y, z = vector
        (a, b, c), (d, e, f), (g, h, i) = self._axes
        return a * x + b * y + c * z, d * x + e * y + f * z, g * x + h * y + i * z

    def moved_in(self, point: Vector) -> Vector:
        """Return a point in the coordinates of the placed frame [m]."""
        x, y, z = self._origin
        return self.turned_in((point[0] - x, point[1] - y, point[2] - z))


@dataclass(frozen=True)
class _Part:
    """Solid on a body of a sub-chain, with its placement if the sub-chain is rigid."""

    body: int
    placement: pin.SE3
    shape: Shape
    place: _Place


def _shape(geometry: coal.CollisionGeometry) -> Shape | None:
    """Return Coal's geometry as a ``Shape``; None for an unsupported kind."""
    if isinstance(geometry, coal.Cylinder):
        return Cylinder(float(geometry.radius), float(geometry.halfLength))
    if isinstance(geometry, coal.Box):
        a, b, c = (float(h) for h in geometry.halfSide)
        return Box((a, b, c))
    if isinstance(geometry, coal.Sphere):
        return Sphere(float(geometry.radius))
    if isinstance(geometry, coal.Capsule):
        return Capsule(float(geometry.radius), float(geometry.halfLength))
    if isinstance(geometry, coal.BVHModelBase):
        triangles = [geometry.tri_indices(i) for i in range(geometry.num_tris)]
        return Mesh(np.array(geometry.vertices()),
                    np.array([[t[0], t[1], t[2]] for t in triangles], dtype=int))
    return None


class Surface:
    """Collision geometry of all sub-chains.

    Attributes:
        missing_meshes: Links without usable geometry; contacts on them have no point.

    """

    def __init__(self, arm: SensedArm, package_dirs: Sequence[str] = ()) -> None:
        """Read the geometry.

        Args:
            arm: The arm, divided at its sensors.
            package_dirs: Folders in which ``package://`` meshes are looked up.

        Raises:
            ModelError: If the geometry cannot be read.

        """
        urdf, self.missing_meshes = without_missing_meshes(arm.urdf, package_dirs)
        try:
            geometry = pin.buildGeomFromUrdfString(
                arm.model, urdf, pin.GeometryType.COLLISION, package_dirs=list(package_dirs))
        except (ValueError, RuntimeError) as error:
            raise ModelError(
                f'The collision geometry of the robot description is not usable: {error}'
            ) from error
        self._arm = arm
        self._parts: list[list[_Part]] = [[] for _ in arm.chains]
        for item in geometry.geometryObjects:
            shape = _shape(item.geometry)
            if shape is None:
                self.missing_meshes.append(arm.model.frames[item.parentFrame].name)
                continue
            for chain in arm.chains:
                if item.parentJoint in chain.bodies:
                    self._parts[chain.proximal].append(
                        _part(item.parentJoint, item.placement, shape))

    def add_box(self, chain: Chain, frame: str, size: Sequence[float]) -> None:
        """Add a box around a mounted tool.

        Args:
            chain: The sub-chain that carries the tool.
            frame: Frame of the box, whose base is centred on the origin and which extends along
                z.
            size: Lengths along x, y, z of the frame [m].

        """
        found = self._arm.model.frames[self._arm.model.getFrameId(frame)]
        centre = pin.SE3(np.eye(3), np.array([0.0, 0.0, 0.5 * size[2]]))
        a, b, c = (0.5 * float(length) for length in size)
        self._parts[chain.proximal].append(
            _part(found.parentJoint, found.placement * centre, Box((a, b, c))))

    def entry(self, chain: Chain, point: Vector, direction: Vector) -> Entry | None:
        """Return the first point along a force at which it enters the surface, None for none.

        Args:
            chain: The sub-chain, in the posture last given to the arm.
            point: A point of the line, in the sub-chain's frame [m].
            direction: Direction of the force, a unit vector in that frame.

        """
        inside: list[Interval] = []
        for part in self._parts[chain.proximal]:
            place = part.place
            if not chain.rigid:
                place = _Place(self._arm.placement(chain, part.body) * part.placement)
            inside += part.shape.intervals(place.moved_in(point), place.turned_in(direction))
        # An entry inside another solid is not on the surface.
        entries = [begin for begin, _ in inside
                   if not any(other < begin < end for other, end in inside)]
        if not entries:
            return None
        first = min(entries)
        return Entry(frozen([p + first * d for p, d in zip(point, direction, strict=True)]),
                     len(entries))


def _part(body: int, placement: pin.SE3, shape: Shape) -> _Part:
    return _Part(body, pin.SE3(placement), shape, _Place(placement))
