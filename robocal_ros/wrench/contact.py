# SPDX-License-Identifier: Apache-2.0
"""Contacts from external wrenches: thresholds, line of action, point on the collision geometry."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import coal
import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array, frozen
from robocal_ros.robot import collision_geometry
from robocal_ros.wrench.model import Chain, SensedArm
from robocal_ros.wrench.parameters import RELEASE

Vector = tuple[float, float, float]
Excess = Callable[[bool], float]
"""Size of a force compared with what model errors explain, as from ``ForceTest.size``, given
whether a contact has begun."""

ForceMotion = tuple[Array, ...]
"""Motion, then errors of its accelerations, shape (n, m)."""
ForceErrors = Callable[[int, ForceMotion], tuple[Array, Array]]
"""Errors of the force on a sub-chain by unknowns that stay, shape (3, p), and by those of this
instant alone, shape (3, m) [N]."""

RISK = 1e-4
"""Probability that model errors and noise within their covariances begin a contact."""

EVERY = 50_000_000
"""Interval between the instants that are kept for comparison [ns]."""

# Time for which they are kept, and their least age when another one is compared with them [ns].
_KEPT, _LEAST_AGE = 2_000_000_000, 100_000_000
# Time for which a test is used for the next instants too [ns].
_FRESH = 10_000_000

# Time constant of the mean force without contact [s].
_SLOW = 5.0
# Fraction of the largest force on any sub-chain that the force on another one must exceed to be a
# contact of its own: a sudden push shakes the whole arm.
_CROSSTALK = 0.15
# Least ratio of the mean force to the mean of its magnitude within the window at which a contact
# begins: close to 1 for pushes and impacts of any length, small for vibrations.
_STEADY = 0.8
# Time over which the line of action of a lasting contact is averaged [s]: a person's push moves
# slower than that.
_AVERAGED = 0.05
# Standard deviations of a sensor's torques within which a moment may be zero.
_NO_MOMENT = 2.5
# Largest pitch of one contact [m]: a soft finger or a palm transmits a moment along its force.
_MAX_PITCH = 0.02
# Component of a unit vector that counts as zero.
_PARALLEL = 1e-12


class Place(Enum):
    """Knowledge of where a force acts."""

    SURFACE = 'on the surface'
    REFERENCE = 'through the reference point'
    OUTSIDE = 'the line of action meets no geometry of this link'
    MOMENT = 'several contacts or a torque: no single force explains the moment'
    SATURATED = 'a sensor is saturated, so only a lower bound of the force is known'


@dataclass(slots=True)
class Contact:
    """A contact on a sub-chain, in its frame.

    Attributes:
        place: Knowledge of where the force acts.
        point: Contact point; None if it could not be located, shape (3,) [m].
        line_point: Point of the line of action that is nearest to the reference point, (3,) [m].
        direction: Direction of the force, a unit vector, shape (3,).
        pitch: Moment along the force divided by the force: zero for one pure force [m].
        least: Lower bound of the force while a sensor is saturated, 0 otherwise [N].

    """

    place: Place
    point: Array | None
    line_point: Array
    direction: Array
    pitch: float
    least: float = 0.0


def contradicts(residual: Array, covariance: Array, risk: float = RISK) -> bool:
    """Return whether a residual is larger than its covariance explains (χ² test)."""
    return bool(residual @ np.linalg.solve(covariance, residual)
                > scipy.special.chdtri(len(residual), risk))


def _cross(a: Vector, b: Vector) -> Vector:
    """Return the vector product; NumPy's takes ten times as long for one pair."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def line_of_action(force: Vector, moment: Vector) -> tuple[Vector, float]:
    """Return the point of a force's line that is nearest to the origin, and the pitch.

    r = F × M / |F|² and h = F · M / |F|² (the central axis of a wrench; Murray, Li and Sastry,
    A Mathematical Introduction to Robotic Manipulation, 1994, section 2.5.3).

    Args:
        force: F [N], not zero.
        moment: M about the origin [N·m].

    Returns:
        The point [m] and the pitch [m].

    """
    square = force[0]**2 + force[1]**2 + force[2]**2
    x, y, z = _cross(force, moment)
    pitch = (force[0] * moment[0] + force[1] * moment[1] + force[2] * moment[2]) / square
    return (x / square, y / square, z / square), pitch


_XY, _XYZ = (0, 1), (0, 1, 2)


@dataclass(frozen=True)
class Primitive:
    """Convex solid, the union of parts in each of which some coordinates are limited.

    trimesh, which approximates round solids by triangles, is off by up to 0.5 % of the radius.

    Attributes:
        parts: Centre on the z axis, and axes with the largest norm of the coordinates along them,
            of each part [m].

    """

    parts: tuple[tuple[float, tuple[tuple[tuple[int, ...], float], ...]], ...]

    def entry(self, point: Sequence[float], direction: Sequence[float]) -> float:
        """Return where a line enters the solid.

        Args:
            point: A point of the line, in the solid's frame [m].
            direction: Its direction, a unit vector.

        Returns:
            Distance from the point, infinite if the line misses the solid [m].

        """
        x, y, z = point
        first = math.inf
        for centre, limits in self.parts:
            at, begin, end = (x, y, z - centre), -math.inf, math.inf
            for axes, limit in limits:
                # a s² + 2 b s + c is not positive within the limit.
                a = b = 0.0
                c = -limit * limit
                for axis in axes:
                    a += direction[axis]**2
                    b += direction[axis] * at[axis]
                    c += at[axis]**2
                square, parallel = b * b - a * c, a < _PARALLEL**2
                if not parallel and square > 0.0:
                    root = math.sqrt(square)
                    begin, end = max(begin, (-b - root) / a), min(end, (-b + root) / a)
                elif not parallel or c > 0.0:
                    # Beyond the limit everywhere.
                    begin, end = math.inf, -math.inf
            if begin < end:
                first = min(first, begin)
        return first


class Mesh:
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

    def entry(self, point: Sequence[float], direction: Sequence[float]) -> float:
        """Return where a line enters, as ``Primitive.entry``, if it leaves the mesh again.

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
        hit = (np.abs(facing) > 1e-18) & (u >= 0.0) & (v >= 0.0) & (u + v <= 1.0)
        first = float(distance[hit & (facing > 0.0)].min(initial=math.inf))
        return first if (distance[hit & (facing < 0.0)] > first).any() else math.inf


Shape = Primitive | Mesh


def shape_of(geometry: coal.CollisionGeometry) -> Shape | None:
    """Return Coal's geometry as a ``Shape``; None for an unsupported kind."""
    if isinstance(geometry, coal.Sphere):
        return Primitive(((0.0, ((_XYZ, geometry.radius),)),))
    if isinstance(geometry, coal.Box):
        return Primitive(((0.0, tuple(
            ((axis,), float(half)) for axis, half in zip(_XYZ, geometry.halfSide, strict=True))),))
    if isinstance(geometry, coal.Cylinder | coal.Capsule):
        radius, half = geometry.radius, geometry.halfLength
        ends = (-half, half) if isinstance(geometry, coal.Capsule) else ()
        return Primitive(((0.0, ((_XY, radius), ((2,), half))), *(
            (end, ((_XYZ, radius),)) for end in ends)))
    if isinstance(geometry, coal.BVHModelBase):
        triangles = [geometry.tri_indices(i) for i in range(geometry.num_tris)]
        return Mesh(np.array(geometry.vertices()),
                    np.array([[t[0], t[1], t[2]] for t in triangles], dtype=int))
    return None


class Surface:
    """Collision geometry of all sub-chains.

    Attributes:
        arm: The arm, divided at its sensors.
        missing_meshes: Links without usable geometry; contacts on them have no point.
        remarks: Sentences on these.

    """

    def __init__(self, arm: SensedArm, package_dirs: Sequence[str] = ()) -> None:
        """Read the geometry.

        Args:
            arm: The arm, divided at its sensors.
            package_dirs: Folders in which ``package://`` meshes are looked up.

        Raises:
            ModelError: If the geometry cannot be read.

        """
        geometry, self.missing_meshes = collision_geometry(arm.model, arm.urdf, package_dirs)
        self.arm = arm
        # By body: solids, with the transform from its coordinates to theirs, shape (4, 4).
        self._parts: dict[int, list[tuple[Shape, Array]]] = {}
        for item in geometry.geometryObjects:
            if not self._add(item.parentJoint, item.geometry, item.placement):
                self.missing_meshes.append(arm.model.frames[item.parentFrame].name)
        self.remarks = (
            f'No collision geometry for {", ".join(self.missing_meshes)}: their meshes were not '
            'found, so no contact point can be located there. Set mesh_folders.',
        ) if self.missing_meshes else ()

    def _add(self, body: int, geometry: coal.CollisionGeometry, placement: pin.SE3) -> bool:
        """Add geometry to a body; return whether its kind is supported."""
        shape = shape_of(geometry)
        if shape is not None:
            self._parts.setdefault(body, []).append((shape, placement.inverse().homogeneous))
        return shape is not None

    def add_box(self, frame: str, size: Sequence[float]) -> None:
        """Add a box around a mounted tool.

        Args:
            frame: Frame of the box, whose base is centred on the origin and which extends along
                z.
            size: Lengths along x, y, z of the frame [m].

        """
        found = self.arm.model.frames[self.arm.model.getFrameId(frame)]
        centre = pin.SE3(np.eye(3), np.array([0.0, 0.0, 0.5 * size[2]]))
        self._add(found.parentJoint, coal.Box(*size), found.placement * centre)

    def entry(self, chain: Chain, point: Vector, direction: Vector) -> Array | None:
        """Return the first point along a force at which it enters the surface, None for none.

        It is in the sub-chain's frame, shape (3,) [m].

        Args:
            chain: The sub-chain, in the posture last given to the arm.
            point: A point of the line, in the sub-chain's frame [m].
            direction: Direction of the force, a unit vector in that frame.

        """
        line = np.array(((*point, 1.0), (*direction, 0.0))).T
        first = math.inf
        for body in chain.bodies & self._parts.keys():
            own = line if chain.rigid else (
                self.arm.placement(chain, body).inverse().homogeneous @ line)
            for shape, transform in self._parts[body]:
                first = min(first, shape.entry(*transform.dot(own)[:3].T.tolist()))
        if first == math.inf:
            return None
        return frozen([p + first * d for p, d in zip(point, direction, strict=True)])


class ContactJudge:
    """Contact state of one sub-chain.

    Attributes:
        threshold: Force at which a contact begins [N].
        in_contact: Whether there is a contact; with hysteresis.
        force: Magnitude of the newest force, 0 while it is invalid [N].
        level: Mean force without contact, due to noise and errors of tare and model [N].

    """

    def __init__(self, index: int, threshold: float, torque_std: float, surface: Surface) -> None:
        """Start without contact.

        Args:
            index: The sub-chain.
            threshold: Force at which a contact begins [N].
            torque_std: Standard deviation of a torque component of its sensor [N·m].
            surface: Its geometry.

        """
        self.threshold = threshold
        self._index = index
        self._no_moment = _NO_MOMENT * torque_std
        self._surface = surface
        self._mean: list[float] = []
        self._since = self._before = self.force = self.level = 0.0
        self.clear()

    def clear(self) -> None:
        """End a contact, as when the wrench becomes invalid."""
        self.in_contact = False
        self._quiet = -math.inf
        self._bound: Contact | None = None
        self._bounded_until = -math.inf

    def saturate(self, stamp: float, span: float, force: Array, excess: Excess) -> None:
        """Add a lower bound of the force, from saturated readings.

        Args:
            stamp: Its instant [s].
            span: Time for which the readings stay in the window [s].
            force: The smallest force, in the sub-chain's frame, shape (3,) [N].
            excess: As for ``update``.

        """
        least = float(np.linalg.norm(force))
        if stamp > self._bounded_until:
            self._bound = None
        self._bounded_until = stamp + span
        if least >= max(self.threshold, self._bound.least if self._bound else 0.0) \
                and excess(self.in_contact) >= 1.0:
            self._bound = Contact(
                Place.SATURATED, None, frozen(self._surface.arm.chains[self._index].reference),
                frozen(force / least), 0.0, least)

    def bounded(self, stamp: float) -> Contact | None:
        """Return the contact of an instant without a valid wrench [s], None without one."""
        if self._bound is None or stamp > self._bounded_until:
            self.clear()
            return None
        if not self.in_contact:
            self.in_contact, self._since = True, stamp
        self._mean, self._before = [], stamp
        return self._bound

    @property
    def duration(self) -> float:
        """Duration of the present contact [s]."""
        return self._before - self._since if self.in_contact else 0.0

    def rest(self, stamp: float) -> None:
        """Add ``force`` as one without contact, at an instant [s]."""
        step, self._quiet = stamp - self._quiet, stamp
        if 0.0 < step < _SLOW:
            self.level += (self.force - self.level) * step / _SLOW

    def update(
        self, stamp: float, wrench: Array, strongest: float,
        consistency: Callable[[], float], excess: Excess,
    ) -> Contact | None:
        """Add a wrench whose force is ``force``; return the contact, None while there is none.

        Args:
            stamp: Its instant [s].
            wrench: On the sub-chain, in its frame about its origin, shape (6,) [N, N·m].
            strongest: Magnitude of the largest force on any sub-chain [N].
            consistency: Returns the size of the mean force divided by the mean size of the force
                within the window: 1 for a push or an impact, small for a vibration.
            excess: Returns the size of the force compared with the largest one that model errors
                explain.

        """
        if self.in_contact:
            pushed = self.force >= RELEASE * self.threshold and excess(True) >= RELEASE
        else:
            pushed = (self.force >= max(self.threshold, _CROSSTALK * strongest)
                      and excess(False) >= 1.0 and consistency() >= _STEADY)
        if not pushed:
            self.in_contact = False
            self.rest(stamp)
            return None
        self._quiet = -math.inf
        newest = wrench.tolist()
        if self.in_contact and self._mean:
            # Averaged over what has passed since the contact began, at most the averaging time.
            step = stamp - self._before
            past = min(stamp - self._since, _AVERAGED)
            share = step / past if past > step else 0.5
            self._mean = [m + share * (v - m) for m, v in zip(self._mean, newest, strict=True)]
        else:
            if not self.in_contact:
                self.in_contact, self._since = True, stamp
            self._mean = newest
        self._before = stamp
        return self._placed()

    def _placed(self) -> Contact:
        fx, fy, fz, mx, my, mz = self._mean
        size = math.sqrt(fx * fx + fy * fy + fz * fz)
        chain = self._surface.arm.chains[self._index]
        origin: Vector = tuple(chain.reference.tolist())
        lever = _cross(origin, (fx, fy, fz))
        moment = (mx - lever[0], my - lever[1], mz - lever[2])
        near, pitch = line_of_action((fx, fy, fz), moment)
        through = math.hypot(*moment) < self._no_moment
        if through:
            near = (0.0, 0.0, 0.0)
        line_point = (origin[0] + near[0], origin[1] + near[1], origin[2] + near[2])
        direction = (fx / size, fy / size, fz / size)
        point = None
        if abs(pitch) > _MAX_PITCH:
            place = Place.MOMENT
        elif (point := self._surface.entry(chain, line_point, direction)) is None:
            place = Place.OUTSIDE
        else:
            place = Place.REFERENCE if through else Place.SURFACE
        return Contact(place, point, frozen(line_point), frozen(direction), pitch)


class _Free(NamedTuple):
    """An instant with sub-chains that nothing touches.

    Attributes:
        stamp: Its stamp [ns].
        motion: Its motion.
        forces: Forces on the sub-chains, shape (k, 3) [N].
        quiet: By sub-chain, whether nothing touches it.
        errors: Errors of the forces as from ``ForceErrors``, as far as they were needed.

    """

    stamp: int
    motion: ForceMotion
    forces: Array
    quiet: Sequence[bool]
    errors: dict[int, tuple[Array, Array]]


class _Explained(NamedTuple):
    """Forces on a sub-chain that model errors and noise explain.

    Attributes:
        stamp: Instant for which it was computed [ns].
        earlier: The instant from which the error is predicted; None for none.
        mean: Mean, shape (3,) [N].
        weight: Inverse of the covariance, divided by the limit of the test, shape (3, 3).
        enough: Size of forces that are not explained, whatever their direction [N].

    """

    stamp: int
    earlier: _Free | None
    mean: Array
    weight: Array
    enough: float


class ForceTest:
    """χ² test of forces on sub-chains against what model errors and noise explain.

    The error of the model that was there a moment ago is still there. So the error is predicted
    from the force at an earlier instant without contact in a similar posture, if there is one:
    the conditional distribution of jointly normal errors (Rasmussen and Williams, Gaussian
    Processes for Machine Learning, 2006, appendix A.2).
    """

    def __init__(
        self, errors: ForceErrors, variances: Sequence[float], threshold: float, near: float,
    ) -> None:
        """Start without earlier instants.

        Args:
            errors: Returns the errors of the force on a sub-chain.
            variances: Of a force component on each sub-chain by its sensors [N²].
            threshold: Force below which nothing touches a sub-chain [N].
            near: Largest difference of any element of the first part of a motion in similar
                postures.

        """
        self._errors, self._variances = errors, variances
        self.threshold, self._near = threshold, near
        self._limit = float(scipy.special.chdtri(3, RISK))
        self.clear()

    def clear(self) -> None:
        """Discard earlier instants, as after a change of the biases."""
        self._free: deque[_Free] = deque()
        # Stamp from which the next instant is kept [ns].
        self._due = 0
        self._explained: dict[int, _Explained] = {}

    def note(
        self, stamp: int, motion: ForceMotion, wrenches: Array, reasons: Sequence[str],
        touched: Container[int],
    ) -> None:
        """Keep the first instant of each interval.

        Args:
            stamp: Its stamp [ns].
            motion: Its motion.
            wrenches: On the sub-chains, shape (k, 6) [N, N·m].
            reasons: By sub-chain, why its wrench is invalid; empty if it is valid.
            touched: The sub-chains with a contact.

        """
        if stamp < self._due:
            return
        self._due = stamp - stamp % EVERY + EVERY
        forces = wrenches[:, :3].copy()
        quiet = (np.linalg.norm(forces, axis=1) < self.threshold).tolist()
        self._free.append(_Free(stamp, motion, forces, [
            calm and not reason and index not in touched
            for index, (calm, reason) in enumerate(zip(quiet, reasons, strict=True))], {}))
        while self._free[0].stamp < stamp - _KEPT:
            self._free.popleft()

    def size(
        self, stamp: int, motion: ForceMotion, index: int, wrench: Array, begun: bool
    ) -> float:
        """Return the size of a force compared with the largest one that is explained.

        Args:
            stamp: The instant [ns].
            motion: Its motion.
            index: The sub-chain.
            wrench: On it, in its frame, shape (6,) or its force alone [N, N·m].
            begun: Whether a contact has begun, and with it the instant to compare with is fixed.

        Returns:
            Above 1 if the force is not explained; infinite if it is so by far.

        """
        known = self._explained.get(index)
        if known is None or motion[-1].size or not 0 <= stamp - known.stamp < _FRESH:
            known = self._explained[index] = self._explain(
                index, stamp, motion, known.earlier if known is not None else None, begun)
        force = wrench[:3]
        if force.dot(force) > known.enough**2:
            return math.inf
        residual = force - known.mean
        return math.sqrt(residual.dot(known.weight).dot(residual))

    def _explain(
        self, index: int, stamp: int, motion: ForceMotion, earlier: _Free | None, begun: bool
    ) -> _Explained:
        noise = self._variances[index] * np.eye(3)
        if not begun:
            # The oldest instant in a similar posture.
            earlier = next((
                free for free in self._free if free.quiet[index]
                and _LEAST_AGE <= stamp - free.stamp <= _KEPT
                and np.abs(free.motion[0] - motion[0]).max() < self._near), None)
        errors, own = self._errors(index, motion)
        mean, covariance = np.zeros(3), errors @ errors.T + own @ own.T + noise
        if earlier is not None:
            if index not in earlier.errors:
                earlier.errors[index] = self._errors(index, earlier.motion)
            then, own = earlier.errors[index]
            shared = errors @ then.T
            gain = shared @ np.linalg.inv(then @ then.T + own @ own.T + noise)
            mean = gain @ earlier.forces[index]
            covariance = covariance - gain @ shared.T
        return _Explained(
            stamp, earlier, mean, np.asarray(np.linalg.inv(covariance) / self._limit),
            float(np.linalg.norm(mean)) + math.sqrt(self._limit * np.trace(covariance)))
