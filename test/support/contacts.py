# SPDX-License-Identifier: Apache-2.0
"""Collisions of an arm, independent of the checker under test."""

from __future__ import annotations

import re
from collections.abc import Sequence

import coal
import numpy as np
import pinocchio as pin


class Contacts:
    """All pairs of links of the original model, except connected and always touching ones."""

    def __init__(
        self, urdf: str, tool: str, package_dirs: Sequence[str], box: Sequence[float],
        low: np.ndarray, high: np.ndarray,
    ) -> None:
        self.model = pin.buildModelFromXML(urdf)
        self.geometry = pin.buildGeomFromUrdfString(
            self.model, urdf, pin.GeometryType.COLLISION, package_dirs=list(package_dirs))
        frame = self.model.frames[self.model.getFrameId(tool)]
        lifted = pin.SE3(np.eye(3), np.array([0.0, 0.0, box[2] / 2.0]))
        self.geometry.addGeometryObject(pin.GeometryObject(
            'tool', frame.parentJoint, self.model.getFrameId(tool), frame.placement * lifted,
            coal.Box(*box)))
        # The arm ends at the tool's joint; fingers distal to it belong to the same body.
        last = frame.parentJoint
        items = list(self.geometry.geometryObjects)
        bodies = [min(item.parentJoint, last) for item in items]
        links = [self.model.frames[item.parentFrame].name for item in items]
        joined = set(re.findall(r'<parent\s+link="(\w+)".*?<child\s+link="(\w+)"', urdf, re.S))
        joined |= set(re.findall(r'<child\s+link="(\w+)"\s*/>\s*<parent\s+link="(\w+)"', urdf))
        for i, a in enumerate(bodies):
            for j, b in enumerate(bodies[:i]):
                one, two = links[j], links[i]
                if a != b and (items[i].name == 'tool' or not joined & {(one, two), (two, one)}):
                    self.geometry.addCollisionPair(pin.CollisionPair(j, i))
        self.data = self.model.createData()
        self.n = last
        always = self._always(np.random.default_rng(77), low, high)
        for pair in always:
            self.geometry.removeCollisionPair(pair)
        self.results = pin.GeometryData(self.geometry)

    def _always(self, generator, low, high) -> list[pin.CollisionPair]:
        self.results = pin.GeometryData(self.geometry)
        hits = np.zeros(len(self.geometry.collisionPairs))
        for _ in range(100):
            self.touch(generator.uniform(low, high), stop=False)
            hits += [r.isCollision() for r in self.results.collisionResults]
        return [pin.CollisionPair(p.first, p.second) for p, h in zip(
            self.geometry.collisionPairs, hits, strict=True) if h > 90]

    def touch(self, angles: np.ndarray, stop: bool = True) -> bool:
        """Return whether any two links collide."""
        q = pin.neutral(self.model)
        for joint, angle in zip(list(self.model.joints)[1:self.n + 1], angles, strict=True):
            q[joint.idx_q:joint.idx_q + joint.nq] = (
                [angle] if joint.nq == 1 else [np.cos(angle), np.sin(angle)])
        return bool(pin.computeCollisions(
            self.model, self.data, self.geometry, self.results, q, stop))
