# SPDX-License-Identifier: Apache-2.0
"""Collisions of the arm with itself, its tool box and the floor: Coal on the URDF's geometry."""

from __future__ import annotations

import logging
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import coal
import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ModelError
from robocal_ros.robot.model import Robot

_LOGGER = logging.getLogger(__name__)
# Pairs in contact in more than this share of random postures are left out.
_SCREENING_POSTURES = 200
_ALWAYS = 0.95
# Largest mesh file [bytes].
_MESH_LIMIT = 100 * 10**6


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
        for item in list(link.findall(kind)):
            mesh = item.find('geometry/mesh')
            if mesh is None or _mesh_path(mesh.get('filename', ''), package_dirs):
                continue
            link.remove(item)
            affected.append(link.get('name', ''))
    return ElementTree.tostring(tree, encoding='unicode'), affected


class CollisionChecker:
    """Collision check of the arm with itself, its tool box and the floor.

    Pairs of neighbouring links are left out, and pairs in contact in nearly every posture
    (housings that overlap by design).

    Attributes:
        robot: The arm; the checks use its Pinocchio data.
        missing_meshes: Links whose collision mesh is missing or too large; they are not checked.

    """

    def __init__(
        self,
        robot: Robot,
        *,
        package_dirs: Sequence[str] = (),
        tool_box: Sequence[float] = (),
        floor: float | None = None,
        keep_out: Sequence[float] = (),
    ) -> None:
        """Build the geometry.

        Args:
            robot: The arm.
            package_dirs: Folders in which ``package://`` meshes are looked up.
            tool_box: Size of a box that encloses the mounted tool, x, y, z of the tool frame,
                z pointing away from the flange [m]; empty for none.
            floor: Height in the root frame, against gravity, below which no link but the
                first may reach [m]; None for no floor.

            keep_out: Boxes in the root frame that the arm must not touch, as the parameter
                ``keep_out_boxes`` [m].

        Raises:
            ModelError: If the geometry cannot be built.
            ConfigurationError: If the tool box is not three positive numbers, or a box not six
                numbers with a positive size.

        """
        urdf, self.missing_meshes = without_missing_meshes(robot.urdf, package_dirs)
        self.robot = robot
        try:
            self._geometry = pin.buildGeomFromUrdfString(
                robot.model, urdf, pin.GeometryType.COLLISION,
                package_dirs=list(package_dirs),
            )
        except (ValueError, RuntimeError) as error:
            raise ModelError(
                f'The collision geometry of the robot description is not usable: {error}'
            ) from error
        if tool_box:
            self._add_tool_box(tool_box)
        self._add_pairs()
        self._data = pin.GeometryData(self._geometry)
        self._drop_permanent_contacts()
        if floor is not None:
            # After the screening: permanent contact with the floor is a wrong floor, no design.
            self._add_floor(floor)
        self._add_keep_out(keep_out)

    def _add_tool_box(self, size: Sequence[float]) -> None:
        if len(size) != 3 or not all(np.isfinite(size)) or min(size) <= 0.0:
            raise ConfigurationError(
                f'tool_box must be three positive lengths in m, got {list(size)}.'
            )
        frame = self.robot.model.frames[self.robot.frame_id(self.robot.tool_frame)]
        centre = pin.SE3(np.eye(3), np.array([0.0, 0.0, 0.5 * size[2]]))
        self._geometry.addGeometryObject(
            pin.GeometryObject(
                'tool_box', frame.parentJoint, self.robot.frame_id(self.robot.tool_frame),
                frame.placement * centre, coal.Box(*size),
            )
        )

    def _add_floor(self, height: float) -> None:
        up = -np.array(self.robot.gravity)
        if not np.linalg.norm(up) > 0.0:
            raise ConfigurationError('floor needs a direction, but gravity is zero; set gravity, '
                                     'or floor to -1000 for none.')
        up /= np.linalg.norm(up)
        floor = self._geometry.addGeometryObject(
            pin.GeometryObject('floor', 0, 0, pin.SE3.Identity(), coal.Halfspace(up, height))
        )
        for index, item in enumerate(self._geometry.geometryObjects):
            # What the first joint carries stands on the floor by design.
            if index != floor and item.parentJoint > 1:
                self._geometry.addCollisionPair(pin.CollisionPair(index, floor))
        self._data = pin.GeometryData(self._geometry)

    def _add_keep_out(self, values: Sequence[float]) -> None:
        if not any(values):
            return
        if len(values) % 6 or not np.isfinite(values).all() or (
                np.reshape(values, (-1, 6))[:, 3:] <= 0.0).any():
            raise ConfigurationError(
                'keep_out_boxes must be six numbers for each box, centre x, y, z and size along '
                f'x, y, z in m with positive sizes; got {list(values)}.')
        count = len(self._geometry.geometryObjects)
        for number, (*centre, x, y, z) in enumerate(np.reshape(values, (-1, 6)).tolist()):
            box = self._geometry.addGeometryObject(pin.GeometryObject(
                f'keep_out_box_{number + 1}', 0, 0, pin.SE3(np.eye(3), np.array(centre)),
                coal.Box(x, y, z)))
            for index, item in enumerate(self._geometry.geometryObjects[:count]):
                if item.parentJoint > 0:
                    self._geometry.addCollisionPair(pin.CollisionPair(index, box))
        self._data = pin.GeometryData(self._geometry)

    def _add_pairs(self) -> None:
        parents = self.robot.model.parents
        items = self._geometry.geometryObjects
        for i, first in enumerate(items):
            for j in range(i + 1, len(items)):
                a, b = first.parentJoint, items[j].parentJoint
                if a != b and parents[a] != b and parents[b] != a:
                    self._geometry.addCollisionPair(pin.CollisionPair(i, j))

    def _drop_permanent_contacts(self) -> None:
        """Remove pairs in contact in nearly all postures."""
        generator = np.random.default_rng(0)
        lower, upper = self.robot.sampling_limits()
        hits = np.zeros(len(self._geometry.collisionPairs))
        for _ in range(_SCREENING_POSTURES):
            self._compute(generator.uniform(lower, upper), stop_at_first=False)
            hits += [result.isCollision() for result in self._data.collisionResults]
        permanent = np.flatnonzero(hits >= _ALWAYS * _SCREENING_POSTURES)
        pairs = [pin.CollisionPair(p.first, p.second) for p in self._geometry.collisionPairs]
        for index in permanent:
            _LOGGER.info('Pair %s touches by design; left out.', self._named(pairs[index]))
            self._geometry.removeCollisionPair(pairs[index])
        self._data = pin.GeometryData(self._geometry)

    def _named(self, pair: pin.CollisionPair) -> tuple[str, str]:
        items = self._geometry.geometryObjects
        return items[pair.first].name, items[pair.second].name

    def _compute(self, q: Array, *, stop_at_first: bool) -> bool:
        return bool(
            pin.computeCollisions(
                self.robot.model, self.robot.data, self._geometry, self._data, q, stop_at_first
            )
        )

    def touching(self, q: Array) -> tuple[str, str] | None:
        """Return the names of two bodies that touch in a posture, or None.

        Args:
            q: Joint angles, shape (n,) [rad].

        """
        if not self._compute(q, stop_at_first=True):
            return None
        for pair, result in zip(
            self._geometry.collisionPairs, self._data.collisionResults, strict=True
        ):
            if result.isCollision():
                return self._named(pair)
        return None

    def is_free(self, q: Array) -> bool:
        """Return whether a posture is free of collisions."""
        return not self._compute(q, stop_at_first=True)

    def first_contact(self, positions: Array, step: float = 0.01) -> str | None:
        """Return the first collision along a path as a clause, or None.

        Args:
            positions: Postures along the path, shape (k, n) [rad].
            step: Largest joint step between checked postures [rad].

        """
        travelled = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(positions, axis=0)).max(1))))
        count = int(np.ceil(travelled[-1] / step)) + 1
        wanted = np.linspace(0.0, travelled[-1], max(count, 2))
        rows = np.unique(np.searchsorted(travelled, wanted).clip(0, len(positions) - 1))
        for row in rows:
            pair = self.touching(positions[row])
            if pair:
                share = 100.0 * travelled[row] / max(travelled[-1], 1e-12)
                return f"'{pair[0]}' touches '{pair[1]}' after {share:.0f} % of the path"
        return None
