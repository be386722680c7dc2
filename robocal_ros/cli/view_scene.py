# SPDX-License-Identifier: Apache-2.0
"""Scene of `robocal view` in the browser: the arm from its URDF, and the nodes' markers.

It is drawn by viser through Pinocchio's own visualiser. viser serves its page from Python alone,
without a connection to the internet, and has panels with buttons; meshcat has no panels, rerun no
buttons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

import coal
import numpy as np
import pinocchio as pin
import viser
from pinocchio.visualize import ViserVisualizer
from visualization_msgs.msg import Marker

from robocal_ros.arrays import Array
from robocal_ros.errors import ModelError
from robocal_ros.robot import parse_urdf, without_missing_meshes

_FRAMES = '/frames'
# Where the page looks from at first, and at what [m].
_EYE, _LOOK_AT = (1.5, 1.5, 1.1), (0.0, 0.0, 0.6)
_ROD_RADIUS = 0.02


class Scene:
    """The arm and the markers around it.

    Attributes:
        missing: Links whose meshes are not found; they are not shown. Without any shape, rods
            from joint to joint are.

    """

    def __init__(self, server: viser.ViserServer, urdf: str, mesh_folders: Sequence[str]) -> None:
        """Draw the arm at its zero posture.

        Args:
            server: The server of the page.
            urdf: Robot description.
            mesh_folders: Folders in which ``package://`` meshes are looked up.

        Raises:
            ModelError: If the description is no usable URDF.

        """
        parse_urdf(urdf)
        found, self.missing = without_missing_meshes(urdf, mesh_folders, 'visual')
        try:
            self._model = pin.buildModelFromXML(found, mimic=True)
            shapes = pin.buildGeomFromUrdfString(
                self._model, found, pin.GeometryType.VISUAL, package_dirs=list(mesh_folders))
            if not shapes.ngeoms:
                shapes = _skeleton(self._model)
            server.scene.reset()
            self._arm = ViserVisualizer(self._model, pin.GeometryModel(), shapes)
            self._arm.initViewer(viewer=server, loadModel=True)
        except (ValueError, RuntimeError, OSError) as error:
            raise ModelError(f'The robot description cannot be drawn: {error}') from error
        self._q = pin.neutral(self._model)
        self._server = server
        server.scene.add_grid('/floor', 4.0, 4.0, cell_size=0.25)
        server.initial_camera.position, server.initial_camera.look_at = _EYE, _LOOK_AT
        self._frames: dict[str, Any] = {}
        self._drawn: dict[str, tuple[Any, float]] = {}
        self.move({})

    def move(self, positions: Mapping[str, float]) -> None:
        """Show a posture; joints that are not named stay [rad, m]."""
        for name, position in positions.items():
            if not (self._model.existJointName(name) and np.isfinite(position)):
                continue
            joint = self._model.joints[self._model.getJointId(name)]
            if joint.nq == 1:
                self._q[joint.idx_q] = position
            elif joint.nq == 2:
                # A joint without limits.
                self._q[joint.idx_q:joint.idx_q + 2] = np.cos(position), np.sin(position)
        self._arm.display(self._q)
        for frame in self._frames:
            self._place(frame)

    def _place(self, frame: str) -> None:
        pose = pin.updateFramePlacement(self._model, self._arm.data, self._model.getFrameId(frame))
        handle = self._frames[frame]
        handle.position = pose.translation
        handle.wxyz = np.roll(pin.Quaternion(pose.rotation).coeffs(), 1)

    def _parent(self, frame: str) -> str | None:
        """Return the scene's node of a frame, None if the description has no such frame."""
        if not self._model.existFrame(frame):
            return None
        path = f'{_FRAMES}/{frame}'
        if frame not in self._frames:
            self._frames[frame] = self._server.scene.add_frame(path, show_axes=False)
            self._place(frame)
        return path

    # ---------------------------------------------------------------------- markers

    def show(self, source: str, markers: Iterable[Marker]) -> str:
        """Draw markers as RViz does, in place of those with the same source, name and number.

        Args:
            source: Topic of the markers.
            markers: The markers.

        Returns:
            What cannot be drawn, as a sentence; empty if there is nothing.

        """
        problem, group = '', f'{source.strip("/")}/'
        for marker in markers:
            name = f'{group}{marker.ns}/{marker.id}'
            if marker.action == Marker.DELETEALL:
                self._remove([key for key in self._drawn if key.startswith(group)])
                continue
            self._remove([name])
            if marker.action == Marker.DELETE:
                continue
            frame = marker.header.frame_id
            parent = self._parent(frame)
            draw = _KINDS.get(marker.type)
            if parent is None:
                problem = f"The robot description has no frame '{frame}' for {source}."
            elif draw is None:
                problem = f'Markers of type {marker.type} on {source} are not drawn.'
            else:
                lifetime = marker.lifetime.sec + 1e-9 * marker.lifetime.nanosec
                self._drawn[name] = (
                    draw(self._server.scene, f'{parent}/{name}', marker),
                    monotonic() + lifetime if lifetime else np.inf)
        return problem

    def expire(self) -> None:
        """Remove markers whose lifetime is over."""
        now = monotonic()
        self._remove([name for name, (_, end) in self._drawn.items() if end < now])

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            handle, _ = self._drawn.pop(name, (None, 0.0))
            if handle is not None:
                handle.remove()


def _skeleton(model: pin.Model) -> pin.GeometryModel:
    """Return a rod from each joint to the next ones, and to the frames of its links."""
    shapes = pin.GeometryModel()
    ends = [(model.parents[joint], model.jointPlacements[joint].translation)
            for joint in range(1, model.njoints)]
    ends += [(frame.parentJoint, frame.placement.translation)
             for frame in model.frames if frame.type == pin.FrameType.BODY]
    for number, (joint, end) in enumerate(ends):
        if length := float(np.linalg.norm(end)):
            turn = pin.Quaternion.FromTwoVectors(np.array([0.0, 0.0, 1.0]), end).matrix()
            rod = pin.GeometryObject(f'rod_{number}', joint, 0, pin.SE3(turn, 0.5 * end),
                                     coal.Cylinder(_ROD_RADIUS, length))
            rod.meshColor = np.array([0.6, 0.6, 0.6, 1.0])
            shapes.addGeometryObject(rod)
    return shapes


# Every function draws one kind of marker: scene, node and marker to a handle, None for nothing.
_Draw = Callable[[Any, str, Marker], Any]


def _pose(marker: Marker) -> dict[str, Any]:
    p, q = marker.pose.position, marker.pose.orientation
    turn = (q.w, q.x, q.y, q.z)
    # RViz takes an orientation that was never set for the identity.
    return {'position': (p.x, p.y, p.z), 'wxyz': turn if any(turn) else (1.0, 0.0, 0.0, 0.0)}


def _colour(marker: Marker) -> tuple[int, int, int]:
    c = marker.color
    return int(255 * c.r), int(255 * c.g), int(255 * c.b)


def _colours(marker: Marker) -> np.ndarray:
    """Return the colour of each point, shape (k, 3)."""
    if len(marker.colors) == len(marker.points):
        return np.array([[255 * c.r, 255 * c.g, 255 * c.b] for c in marker.colors], dtype=np.uint8)
    return np.tile(np.array(_colour(marker), dtype=np.uint8), (len(marker.points), 1))


def _points(marker: Marker) -> Array:
    return np.array([[p.x, p.y, p.z] for p in marker.points]).reshape(-1, 3)


def _opacity(marker: Marker) -> float | None:
    return float(marker.color.a) if marker.color.a < 1.0 else None


def _sphere(scene: Any, name: str, marker: Marker) -> Any:
    s = marker.scale
    return scene.add_icosphere(name, 0.5, _colour(marker), scale=(s.x, s.y, s.z),
                               opacity=_opacity(marker), cast_shadow=False, **_pose(marker))


def _cube(scene: Any, name: str, marker: Marker) -> Any:
    s = marker.scale
    return scene.add_box(name, _colour(marker), (s.x, s.y, s.z), opacity=_opacity(marker),
                         **_pose(marker))


def _lines(scene: Any, name: str, marker: Marker) -> Any:
    count = len(marker.points)
    ends = (np.repeat(np.arange(count), 2)[1:-1] if marker.type == Marker.LINE_STRIP
            else np.arange(count // 2 * 2)).reshape(-1, 2)
    if not len(ends):
        return None
    return scene.add_line_segments(name, _points(marker)[ends], _colours(marker)[ends],
                                   thickness=marker.scale.x, **_pose(marker))


def _spheres(scene: Any, name: str, marker: Marker) -> Any:
    if not len(marker.points):
        return None
    return scene.add_point_cloud(
        name, _points(marker), _colours(marker), point_size=marker.scale.x, point_shape='circle',
        precision='float32', **_pose(marker))


def _arrow(scene: Any, name: str, marker: Marker) -> Any:
    """Draw an arrow that is given by its two ends, as the nodes' are."""
    s = marker.scale
    return scene.add_arrows(name, _points(marker)[None],
                            np.array([_colour(marker)], dtype=np.uint8), shaft_radius=0.5 * s.x,
                            head_radius=0.5 * s.y, head_length=s.z, **_pose(marker))


def _text(scene: Any, name: str, marker: Marker) -> Any:
    return scene.add_label(name, marker.text, anchor='center-center', **_pose(marker))


_KINDS: dict[int, _Draw] = {
    Marker.ARROW: _arrow, Marker.CUBE: _cube, Marker.SPHERE: _sphere, Marker.LINE_STRIP: _lines,
    Marker.LINE_LIST: _lines, Marker.SPHERE_LIST: _spheres, Marker.POINTS: _spheres,
    Marker.TEXT_VIEW_FACING: _text,
}
