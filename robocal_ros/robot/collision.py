# SPDX-License-Identifier: Apache-2.0
"""Collisions of the arm with itself, its tool box and the floor, and paths that avoid them.

Collisions are checked by Coal on the URDF's geometry. A path between postures, within the efforts
of the drives, is a straight line in joint space if possible, else found by OMPL's RRT-Connect.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import coal
import numpy as np
import pinocchio as pin
from ompl import base, geometric, util

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ModelError, MotionError
from robocal_ros.robot.friction_law import ArmFriction, SteadyFriction
from robocal_ros.robot.model import Robot, link_of
from robocal_ros.robot.trajectories import Trajectory

# Random postures that show which bodies touch by design, and what a deviation sweeps.
_POSTURES = 200
# Of these, the nearest of each pair, in which a deviation changes its distance as it does near
# contact.
_NEAREST = 20
# Neighbouring bodies in contact in more than this share of the postures touch by design.
_ALWAYS = 0.95
# Largest mesh file [bytes].
_MESH_LIMIT = 100 * 10**6
# Share of a distance that motions may use up: of a pair's median distance, so that what the
# design keeps close stays usable, and of the distance at which the arm rests.
_USABLE = 0.5
# Joint step between checked postures [rad].
_STEP = 0.01
_SEED = 1
# Shares of the planned speed at which efforts are checked.
_SPEEDS = np.geomspace(1.0, 0.02, 24)
# Speed at breakaway [rad/s].
_SLOW = 1e-9


def _mesh_path(uri: str, package_dirs: Sequence[str]) -> Path | None:
    """Return the path of a mesh file, None if there is none of a size that can be read."""
    if uri.startswith('file://'):
        candidates = [Path(uri.removeprefix('file://'))]
    else:
        relative = uri.removeprefix('package://').removeprefix('model://')
        candidates = [Path(folder) / relative for folder in package_dirs] + [Path(uri)]
    return next((path for path in candidates
                 if path.is_file() and path.stat().st_size <= _MESH_LIMIT), None)


def without_missing_meshes(
    urdf: str, package_dirs: Sequence[str], kind: str = 'collision'
) -> tuple[str, list[str]]:
    """Return a URDF without elements of missing mesh files, and the links concerned.

    Args:
        urdf: The URDF.
        package_dirs: Folders in which ``package://`` meshes are looked up.
        kind: The elements, ``collision`` or ``visual``.

    """
    tree = ElementTree.fromstring(urdf)
    affected = []
    for link in tree.iter('link'):
        for item in link.findall(kind):
            mesh = item.find('geometry/mesh')
            if mesh is not None and not _mesh_path(mesh.get('filename', ''), package_dirs):
                link.remove(item)
                affected.append(link.get('name', ''))
    return ElementTree.tostring(tree, encoding='unicode'), affected


def collision_geometry(
    model: pin.Model, urdf: str, package_dirs: Sequence[str]
) -> tuple[pin.GeometryModel, list[str]]:
    """Return the collision geometry without missing meshes, and the links concerned.

    Args:
        model: The model of the arm.
        urdf: Its URDF.
        package_dirs: Folders in which ``package://`` meshes are looked up.

    Raises:
        ModelError: If it cannot be built.

    """
    found, missing = without_missing_meshes(urdf, package_dirs)
    try:
        return pin.buildGeomFromUrdfString(
            model, found, pin.GeometryType.COLLISION, package_dirs=list(package_dirs)), missing
    except (ValueError, RuntimeError) as error:
        raise ModelError(
            f'The collision geometry of the robot description is not usable: {error}') from error


def _with_hulls(geometry: pin.GeometryModel) -> tuple[pin.GeometryModel, set[int]]:
    """Return a copy with convex hulls instead of meshes, and the numbers of the meshes."""
    hulls, meshes = geometry.copy(), set()
    for number, item in enumerate(hulls.geometryObjects):
        if isinstance(item.geometry, coal.BVHModelBase):
            meshes.add(number)
            item.geometry.buildConvexHull(True, 'Qt')
            item.geometry = item.geometry.convex
    return hulls, meshes


class CollisionChecker:
    """Collision check of the arm with itself, its tool box, its surroundings and the floor.

    Not checked are bodies that do not move against each other, links that a joint connects, and
    bodies on both sides of one moving joint that touch in nearly every posture (housings that
    overlap by design). A convex hull around each mesh is checked first, the mesh only where
    the hull is too near.

    Attributes:
        robot: The arm; the checks use its Pinocchio data.
        missing_meshes: Links whose collision mesh is missing or too large; they are not checked.
        by_design: Pairs that touch by design, as clauses.

    """

    def __init__(
        self, robot: Robot, *, package_dirs: Sequence[str] = (), tool_box: Sequence[float] = (),
        load_box: Sequence[float] = (), load_frame: str = '', floor: float | None = None,
        keep_out: Sequence[float] = (),
    ) -> None:
        """Build the geometry; no distance is kept until ``keep_clear``.

        Args:
            robot: The arm.
            package_dirs: Folders in which ``package://`` meshes are looked up.
            tool_box: Size of a box that encloses the mounted tool, x, y, z of the tool frame,
                z pointing away from the flange [m]; empty for none.
            load_box: The same for a load, which counts while ``loaded``.
            load_frame: Frame of the load's box; the tool frame by default.
            floor: Height in the root frame, against gravity, below which no link but the
                first may reach [m]; None for no floor.
            keep_out: Boxes in the root frame that the arm must not touch, as the parameter
                ``keep_out_boxes`` [m].

        Raises:
            ModelError: If the geometry cannot be built.
            ConfigurationError: If a box of tool or load is not three positive numbers, or a box
                to keep out of is not six numbers with a positive size.

        """
        self.robot = robot
        self._geometry, self.missing_meshes = collision_geometry(
            robot.model, robot.urdf, package_dirs)
        links = [robot.model.frames[item.parentFrame].name
                 for item in self._geometry.geometryObjects]
        self._add_box('tool_box', tool_box, robot.tool_frame)
        self._add_box('load_box', load_box, load_frame or robot.tool_frame)
        self._add_floor(floor)
        self._add_keep_out(keep_out)
        self._hulls, self._meshes = _with_hulls(self._geometry)
        self._loaded = True
        pairs = [pin.CollisionPair(*pair) for pair in self._pairs(links)]
        self._use(pairs)
        # In how many random postures each pair touches.
        contacts = np.zeros(len(pairs))
        for q in self._random_postures():
            contacts[list(self._near(q))] += 1
        permanent = [k for k, count in enumerate(contacts)
                     if count >= _ALWAYS * _POSTURES and self._across_one_joint(k)]
        self.by_design = [' and '.join(self._named(k)) for k in permanent]
        self._use([pair for k, pair in enumerate(pairs) if k not in permanent])
        self._touched = np.delete(contacts, permanent)
        self._swept: dict[float, tuple[Array, Array]] = {}

    def _add_box(self, name: str, size: Sequence[float], frame: str) -> None:
        if not any(size):
            return
        if len(size) != 3 or not all(np.isfinite(size)) or min(size) <= 0.0:
            raise ConfigurationError(
                f'{name} must be three positive lengths in m, got {list(size)}.')
        index = self.robot.frame_id(frame)
        carrier = self.robot.model.frames[index]
        centre = pin.SE3(np.eye(3), np.array([0.0, 0.0, 0.5 * size[2]]))
        self._geometry.addGeometryObject(pin.GeometryObject(
            name, carrier.parentJoint, index, carrier.placement * centre, coal.Box(*size)))

    def _add_floor(self, height: float | None) -> None:
        if height is None:
            return
        up = -np.array(self.robot.gravity)
        if not np.linalg.norm(up) > 0.0:
            raise ConfigurationError('floor needs a direction, but gravity is zero; set gravity, '
                                     'or floor to -1000 for none.')
        up /= np.linalg.norm(up)
        self._geometry.addGeometryObject(pin.GeometryObject(
            'floor', 0, 0, pin.SE3.Identity(), coal.Halfspace(up, height)))

    def _add_keep_out(self, values: Sequence[float]) -> None:
        if not any(values):
            return
        if len(values) % 6 or not np.isfinite(values).all() or (
                np.reshape(values, (-1, 6))[:, 3:] <= 0.0).any():
            raise ConfigurationError(
                'keep_out_boxes must be six numbers for each box, centre x, y, z and size along '
                f'x, y, z in m with positive sizes; got {list(values)}.')
        for number, (*centre, x, y, z) in enumerate(np.reshape(values, (-1, 6)).tolist()):
            self._geometry.addGeometryObject(pin.GeometryObject(
                f'keep_out_box_{number + 1}', 0, 0, pin.SE3(np.eye(3), np.array(centre)),
                coal.Box(x, y, z)))

    def _pairs(self, links: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the bodies that move against each other and are on no two connected links."""
        connected = {frozenset((link_of(joint, 'parent'), link_of(joint, 'child')))
                     for joint in ElementTree.fromstring(self.robot.urdf).iter('joint')}
        items = self._geometry.geometryObjects
        for i, j in combinations(range(len(items)), 2):
            if items[i].parentJoint == items[j].parentJoint:
                continue
            if j < len(links) and frozenset((links[i], links[j])) in connected:
                continue
            # What the first joint carries stands on the floor by design.
            if items[j].name == 'floor' and items[i].parentJoint == 1:
                continue
            yield i, j

    def _use(self, pairs: Sequence[pin.CollisionPair]) -> None:
        """Check these pairs."""
        for geometry in (self._geometry, self._hulls):
            geometry.removeAllCollisionPairs()
            for pair in pairs:
                geometry.addCollisionPair(pair)
        self._data = pin.GeometryData(self._geometry)
        self._hull_data = pin.GeometryData(self._hulls)
        # All pairs, also those of a load that is not mounted.
        self._gaps = pin.GeometryData(self._hulls)
        self._margins = np.zeros(len(pairs))

    def _across_one_joint(self, pair: int) -> bool:
        """Return whether one moving joint is between two bodies of the arm.

        Others in permanent contact are a wrong box, floor or obstacle, and no design.
        """
        both = [self._geometry.geometryObjects[k] for k in self._members(pair)]
        # Floor and boxes to keep out of have the frame of the universe.
        a, b = (item.parentJoint for item in both)
        parents = self.robot.model.parents
        return all(item.parentFrame for item in both) and (parents[a] == b or parents[b] == a)

    def _random_postures(self) -> Array:
        return np.random.default_rng(0).uniform(
            *self.robot.sampling_limits(), (_POSTURES, self.robot.n))

    def _members(self, pair: int) -> tuple[int, int]:
        members = self._geometry.collisionPairs[pair]
        return members.first, members.second

    def _named(self, pair: int) -> list[str]:
        return [f"'{self._geometry.geometryObjects[k].name}'" for k in self._members(pair)]

    # ---------------------------------------------------------------------- clearance

    @property
    def loaded(self) -> bool:
        """Whether the load is mounted, so that its box counts; it does at first."""
        return self._loaded

    @loaded.setter
    def loaded(self, value: bool) -> None:
        self._loaded = value
        for k in range(len(self._geometry.collisionPairs)):
            if "'load_box'" in self._named(k):
                for data in (self._data, self._hull_data):
                    (data.activateCollisionPair if value else data.deactivateCollisionPair)(k)

    def keep_clear(self, posture: Array, clearance: float, deviation: float) -> list[str]:
        """Require a distance of all pairs from now on.

        Without a given clearance, a pair keeps the largest distance that a deviation from the
        path can close, so that the arm touches nothing while each joint is that far off: in
        random postures, the distances that each joint's deviation changes are added up. Where
        the arm rests nearer already, it may come half as near.

        What the design keeps close stays usable: no pair need keep more than half of its median
        distance, and none any whose hulls overlap without contact more often than with it.

        Args:
            posture: Where the arm rests, shape (n,) [rad].
            clearance: Distance [m]; negative for what the deviation sweeps.
            deviation: Largest deviation of each joint from the path [rad].

        Returns:
            Clauses on the pairs that may come nearer because the arm rests nearer.

        """
        if clearance == 0.0:
            self._keep(0.0 * self._margins)
            return []
        if deviation not in self._swept:
            self._swept = {deviation: self._sweep(deviation)}
        swept, most = self._swept[deviation]
        if clearance > 0.0:
            self._keep(np.minimum(clearance, most))
            return []
        resting = self._distances(posture)
        near = resting < swept
        self._keep(np.where(near, _USABLE * np.maximum(resting, 0.0), swept))
        return [f'{self._named(int(k))[0]} rests {1e3 * resting[k]:.0f} mm from '
                f'{self._named(int(k))[1]}, where {1e3 * swept[k]:.0f} mm are to be kept'
                for k in np.flatnonzero(near & (resting > 0.0))]

    def _keep(self, margins: Array) -> None:
        self._margins = margins
        for request, margin in zip(self._hull_data.collisionRequests, margins, strict=True):
            request.security_margin = float(margin)

    def _distances(self, q: Array) -> Array:
        """Return the distances of all pairs' hulls, negative in contact, shape (pairs,) [m]."""
        pin.computeDistances(self.robot.model, self.robot.data, self._hulls, self._gaps, q)
        return np.array([result.min_distance for result in self._gaps.distanceResults])

    def _sweep(self, deviation: float) -> tuple[Array, Array]:
        """Return the largest distances that a deviation closes, and what pairs can keep [m]."""
        postures = self._random_postures()
        distance = np.array([self._distances(q) for q in postures])
        change = np.array([
            sum(np.abs(self._distances(q + step) - before)
                for step in deviation * np.eye(self.robot.n))
            for q, before in zip(postures, distance, strict=True)])
        apart = distance > 0.0
        nearest = np.argsort(np.where(apart, distance, np.inf), axis=0)[:_NEAREST]
        hulls_alone = (~apart).sum(axis=0) - self._touched
        most = np.array([
            _USABLE * np.median(column[clear]) if clear.any() and hollow <= touched else 0.0
            for column, clear, hollow, touched in zip(
                distance.T, apart.T, hulls_alone, self._touched, strict=True)])
        return np.minimum(np.take_along_axis(change, nearest, axis=0).max(axis=0), most), most

    # ------------------------------------------------------------------------- checks

    def _near(self, q: Array) -> Iterator[int]:
        """Yield the pairs that are too near."""
        model, data = self.robot.model, self.robot.data
        pin.computeCollisions(model, data, self._hulls, self._hull_data, q, False)
        pin.updateGeometryPlacements(model, data, self._geometry, self._data)
        active = self._hull_data.activeCollisionPairs
        for k, result in enumerate(self._hull_data.collisionResults):
            if result.isCollision() and active[k] and (
                    self._meshes.isdisjoint(self._members(k))
                    or (self._distance(k) < self._margins[k] if self._margins[k]
                        else pin.computeCollision(self._geometry, self._data, k))):
                yield k

    def _distance(self, pair: int) -> float:
        """Return the distance of a pair in the posture of ``_near`` [m].

        It is that of the hulls, or, where they overlap, of the meshes.
        """
        apart = pin.computeDistance(self._hulls, self._hull_data, pair).min_distance
        if apart <= 0.0:
            apart = pin.computeDistance(self._geometry, self._data, pair).min_distance
        return float(apart)

    def touching(self, q: Array) -> str | None:
        """Return two bodies that touch or are too near in a posture as a clause, or None.

        Args:
            q: Joint angles, shape (n,) [rad].

        """
        if self.is_free(q):
            return None
        pair = next(self._near(q))
        (one, other), distance, kept = self._named(pair), self._distance(pair), self._margins[pair]
        if distance <= 0.0 or not kept:
            return f'{one} touches {other}'
        return (f'{one} is {1e3 * distance:.0f} mm from {other}, nearer than the clearance of '
                f'{1e3 * kept:.0f} mm')

    def is_free(self, q: Array) -> bool:
        """Return whether all bodies are clear of each other in a posture."""
        hit = pin.computeCollisions(
            self.robot.model, self.robot.data, self._hulls, self._hull_data, q, True)
        return not hit or (bool(self._meshes) and next(self._near(q), None) is None)

    def first_contact(self, positions: Array, step: float = 0.01) -> str | None:
        """Return the first posture of a path with a contact as a clause, or None.

        Args:
            positions: Postures along the path, shape (k, n) [rad].
            step: Largest joint step between checked postures [rad].

        """
        travelled = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(positions, axis=0)).max(1))))
        count = int(np.ceil(travelled[-1] / step)) + 1
        wanted = np.linspace(0.0, travelled[-1], max(count, 2))
        rows = np.unique(np.searchsorted(travelled, wanted).clip(0, len(positions) - 1))
        for row in rows:
            if contact := self.touching(positions[row]):
                share = 100.0 * travelled[row] / max(travelled[-1], 1e-12)
                return (f'{contact} after {share:.0f} % of the path, at '
                        f'{np.round(positions[row], 3).tolist()} rad')
        return None


@dataclass(frozen=True)
class EffortLimits:
    """Limits of the drive efforts in a motion.

    Attributes:
        robot: The arm with its payload.
        friction: Identified friction by joint name; other joints count as frictionless.
        share: Usable share of the URDF's effort limits; the rest is left to the controller.

    """

    robot: Robot
    friction: Mapping[str, SteadyFriction]
    share: float

    @property
    def limit(self) -> Array:
        """Largest effort of a motion, infinite where the URDF has no limit, shape (n,) [N·m]."""
        return self.share * self.robot.effort_limit

    def holding(self, postures: Array) -> Array:
        """Return the efforts that lift the arm slowly to postures, shape (k, n) [N·m].

        They are the holding torque plus the friction in its direction.

        Args:
            postures: Shape (k, n) [rad].

        """
        gravity = self.robot.gravity_torques(postures)
        return gravity + self._friction(np.where(gravity < 0.0, -_SLOW, _SLOW), gravity)

    def _friction(self, velocity: Array, load: Array) -> Array:
        """Return the friction of a motion, at least breakaway, shape (k, n) [N·m]."""
        friction, sign = ArmFriction(self.friction, self.robot.joint_names), np.sign(velocity)
        return np.asarray(sign * np.maximum(
            np.abs(friction.torque(velocity, load)),
            np.abs(friction.torque(sign * _SLOW, load))))

    def exceeded(self, postures: Array) -> str:
        """Return a clause about the joint that cannot hold one of the postures, empty for none.

        Args:
            postures: Shape (k, n) [rad].

        """
        return self._problem(np.abs(self.holding(postures)).max(axis=0))

    def _problem(self, needed: Array) -> str:
        excess = needed / self.limit
        joint = int(np.argmax(excess))
        if excess[joint] <= 1.0:
            return ''
        name = self.robot.joint_names[joint]
        unit = self.robot.unit(name, 'N·m')
        return (f"joint '{name}' needs {needed[joint]:.3g} {unit}, more "
                f'than {100.0 * self.share:.0f} % of its effort limit of '
                f'{self.robot.effort_limit[joint]:.3g} {unit}')

    def slowed(self, trajectory: Trajectory) -> Trajectory:
        """Return a motion within the limits, slower if necessary.

        Raises:
            MotionError: If a joint needs more at any speed.

        """
        position, velocity, acceleration = trajectory.sample(trajectory.dense())
        gravity = self.robot.gravity_torques(position)
        dynamic = np.array([self.robot.inverse_dynamics(q, v, a) for q, v, a in zip(
            position, velocity, acceleration, strict=True)]) - gravity
        for speed in _SPEEDS:
            needed = np.abs(
                gravity + speed**2 * dynamic + self._friction(speed * velocity, gravity))
            problem = self._problem(needed.max(axis=0))
            if not problem:
                return trajectory if speed == 1.0 else trajectory.slowed(float(speed))
        raise MotionError(f'On this motion {problem}, at any speed. Nothing was sent.')


def straight(start: Array, goal: Array, step: float = _STEP) -> Array:
    """Return evenly spaced postures from start to goal, shape (k, n) [rad]."""
    count = int(np.ceil(np.abs(goal - start).max() / step)) + 1
    return np.linspace(start, goal, max(count, 2))


def connect(
    robot: Robot, checker: CollisionChecker, start: Array, goal: Array, timeout: float = 3.0,
    effort: EffortLimits | None = None,
) -> Array:
    """Return a collision-free path of straight lines in joint space.

    Args:
        robot: The arm.
        checker: Its collision geometry.
        start: Shape (n,) [rad].
        goal: Shape (n,) [rad].
        timeout: Longest search [s].
        effort: Limits within which the drives hold the arm on the whole path; None for no limits.

    Returns:
        Start, via postures and goal, shape (k, n) [rad].

    Raises:
        MotionError: If start or goal is in collision or cannot be held, or no path is found.

    """
    for what, posture in (('start', start), ('goal', goal)):
        if contact := checker.touching(posture):
            raise MotionError(f'In the {what} posture of this motion {contact}. Move the arm '
                              'clear by hand, or correct the collision geometry or clearance.')
        if effort is not None and (problem := effort.exceeded(posture[None])):
            raise MotionError(f'In the {what} posture of this motion {problem}.')
    line = straight(start, goal)
    if checker.first_contact(line) is None and (effort is None or not effort.exceeded(line)):
        return np.stack((start, goal))
    return _search(robot, checker, start, goal, timeout, effort)


def _search(
    robot: Robot, checker: CollisionChecker, start: Array, goal: Array, timeout: float,
    effort: EffortLimits | None,
) -> Array:
    def is_valid(state: base.State) -> bool:
        posture = np.array([state[i] for i in range(robot.n)])
        return checker.is_free(posture) and (effort is None or not effort.exceeded(posture[None]))

    util.RNG.setSeed(_SEED)
    util.setLogLevel(util.LogLevel.LOG_NONE)
    space = base.RealVectorStateSpace(robot.n)
    bounds = base.RealVectorBounds(robot.n)
    lower, upper = robot.sampling_limits()
    for i in range(robot.n):
        bounds.setLow(i, float(min(lower[i], start[i], goal[i])))
        bounds.setHigh(i, float(max(upper[i], start[i], goal[i])))
    space.setBounds(bounds)
    setup = geometric.SimpleSetup(space)
    setup.setStateValidityChecker(is_valid)
    setup.getSpaceInformation().setStateValidityCheckingResolution(
        _STEP / float(space.getMaximumExtent()))
    ends = []
    for posture in (start, goal):
        state = space.allocState()
        for i in range(robot.n):
            state[i] = float(posture[i])
        ends.append(state)
    setup.setStartAndGoalStates(*ends)
    setup.setPlanner(geometric.RRTConnect(setup.getSpaceInformation()))
    if not setup.solve(timeout) or not setup.haveExactSolutionPath():
        raise MotionError(
            'No collision-free path'
            + (' on which the drives hold the load' if effort is not None else '')
            + f' was found in {timeout:.0f} s. Start from a posture with more clearance.')
    setup.simplifySolution()
    path = setup.getSolutionPath()
    return np.array([[state[i] for i in range(robot.n)] for state in path.getStates()])
