# SPDX-License-Identifier: Apache-2.0
"""Frames outside of the robot description, by the transforms that other nodes publish."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robocal_ros.errors import DataError
from robocal_ros.messages import SECOND

MOST_FRAMES = 1000
"""Most frames that are kept."""

# Largest difference between the stamps of a sample and of a transform on /tf [ns].
_STALE = SECOND // 2
# Largest deviation of a quaternion from unit length, by rounding of publishers.
_UNIT = 0.01


@dataclass(frozen=True)
class _Edge:
    """Newest transform of a frame.

    Attributes:
        parent: The frame in which it is placed.
        placement: Maps coordinates of the frame to those of the parent; None if it is invalid.
        stamp: Its stamp [ns]; None if it is constant.

    """

    parent: str
    placement: pin.SE3 | None
    stamp: int | None


class FrameTree:
    """Newest transforms between frames, as tf2 keeps them, and the way to the robot description.

    A transform is used as it is, without interpolation to the instant of a sample.
    """

    def __init__(self, described: Collection[str], root: str) -> None:
        """Start without transforms.

        Args:
            described: Frames of the robot description.
            root: Root frame of the robot description.

        """
        self._described = described
        self._root = root
        self._edges: dict[str, _Edge] = {}

    def add(
        self, parent: str, child: str, stamp: int | None, translation: Sequence[float],
        quaternion: Sequence[float],
    ) -> bool:
        """Add a transform that maps coordinates of the child to those of the parent.

        Anybody may publish frames: of too many, that which was not published for longest is
        forgotten, constant ones last.

        Args:
            parent: The frame in which the child is placed.
            child: The child.
            stamp: Its stamp [ns]; None if it is constant.
            translation: The child's origin, shape (3,) [m].
            quaternion: Unit quaternion x, y, z, w.

        Returns:
            Whether a frame was forgotten.

        """
        numbers = np.array([*translation, *quaternion])
        valid = abs(np.linalg.norm(numbers[3:]) - 1.0) <= _UNIT and bool(
            np.isfinite(numbers).all())
        rotation = pin.Quaternion(numbers[3:]).normalized().matrix() if valid else None
        name = child.lstrip('/')
        self._edges.pop(name, None)
        self._edges[name] = _Edge(
            parent.lstrip('/'), pin.SE3(rotation, numbers[:3]) if valid else None, stamp)
        if len(self._edges) <= MOST_FRAMES:
            return False
        del self._edges[next((other for other, edge in self._edges.items()
                              if edge.stamp is not None), next(iter(self._edges)))]
        return True

    def locate(self, frame: str, stamp: int) -> tuple[str, pin.SE3]:
        """Return a frame of the robot description, and the placement of another frame in it.

        Args:
            frame: A frame that is not in the robot description.
            stamp: Stamp of the sample for which it is needed [ns].

        Raises:
            DataError: If transforms on the way are missing, invalid or stale, or form a loop.

        """
        names = self._upwards(frame)
        if names[-1] in self._described:
            return names[-1], self._placement(names, stamp)
        own = self._upwards(self._root)
        common = next((name for name in names if name in own), None)
        if common is None:
            raise DataError(
                f"Frame '{frame}' is not connected to the robot description: neither /tf_static "
                f"nor /tf has a transform of '{names[-1]}'. Start the node that publishes it, or "
                'correct tool_wrench_frame.')
        place = self._placement(own[:own.index(common) + 1], stamp)
        return self._root, place.inverse() * self._placement(
            names[:names.index(common) + 1], stamp)

    def _upwards(self, frame: str) -> list[str]:
        """Return a frame and those above it, up to one of the robot description."""
        names = [frame]
        while (edge := self._edges.get(names[-1])) is not None:
            if edge.parent in names:
                loop = ' → '.join([*names[names.index(edge.parent):], edge.parent])
                raise DataError(f'The transforms on /tf_static and /tf form a loop: {loop}. Let '
                                'each frame have one parent, from one node.')
            names.append(edge.parent)
            if edge.parent in self._described:
                break
        return names

    def _placement(self, names: Sequence[str], stamp: int) -> pin.SE3:
        """Return the placement of the first frame in the last one."""
        place = pin.SE3.Identity()
        for name in names[:-1]:
            edge = self._edges[name]
            if edge.placement is None:
                raise DataError(
                    f"The transform from '{name}' to '{edge.parent}' is not finite, or its "
                    'quaternion does not have length 1. Correct the node that publishes it.')
            if edge.stamp is not None and abs(stamp - edge.stamp) > _STALE:
                age = (stamp - edge.stamp) / SECOND
                raise DataError(
                    f"The transform from '{name}' to '{edge.parent}' on /tf is {abs(age):.1f} s "
                    f'{"older" if age > 0.0 else "newer"} than the samples; expected at most '
                    f'{_STALE / SECOND:g} s. Check the node that publishes it, and the clocks.')
            place = edge.placement * place
        return place
