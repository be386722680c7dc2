# SPDX-License-Identifier: Apache-2.0
"""Scene of `robocal view` in the browser: the arm from its URDF, and the nodes' markers.

It is drawn by viser through Pinocchio's own visualiser. viser serves its page from Python alone,
without a connection to the internet, and has panels with buttons; meshcat has no panels, rerun no
buttons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

import coal
import numpy as np
import pinocchio as pin
import viser
from pinocchio.visualize import ViserVisualizer
from visualization_msgs.msg import Marker

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
            if parent is None:
                problem = f"The robot description has no frame '{frame}' for {source}."
            elif marker.type not in _KINDS:
                problem = f'Markers of type {marker.type} on {source} are not drawn.'
            else:
                lifetime = marker.lifetime.sec + 1e-9 * marker.lifetime.nanosec
                self._drawn[name] = (
                    _drawn(self._server.scene, f'{parent}/{name}', marker),
                    monotonic() + lifetime if lifetime else np.inf)
        return problem

    def expire(self) -> None:
        """Remove markers whose lifetime is over."""
        self._remove([name for name, (_, end) in self._drawn.items() if end < monotonic()])

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


_KINDS = (Marker.ARROW, Marker.CUBE, Marker.SPHERE, Marker.LINE_STRIP, Marker.LINE_LIST,
          Marker.SPHERE_LIST, Marker.POINTS, Marker.TEXT_VIEW_FACING)


def _drawn(scene: Any, name: str, marker: Marker) -> Any:
    """Draw a marker of one of these kinds; return its handle, None for nothing to be seen."""
    kind, size, p, q = marker.type, marker.scale, marker.pose.position, marker.pose.orientation
    turn = (q.w, q.x, q.y, q.z)
    # RViz takes an orientation that was never set for the identity.
    pose = {'position': (p.x, p.y, p.z), 'wxyz': turn if any(turn) else (1.0, 0.0, 0.0, 0.0)}
    opacity = float(marker.color.a) if marker.color.a < 1.0 else None
    points = np.array([[p.x, p.y, p.z] for p in marker.points]).reshape(-1, 3)
    count = len(points)
    # That of the marker, then that of each point.
    one, *each = (tuple(int(255 * part) for part in (c.r, c.g, c.b))
                  for c in (marker.color, *marker.colors))
    colours = np.array(each if len(each) == count else [one] * count, dtype=np.uint8)
    if kind == Marker.SPHERE:
        return scene.add_icosphere(name, 0.5, one, scale=(size.x, size.y, size.z),
                                   opacity=opacity, cast_shadow=False, **pose)
    if kind == Marker.CUBE:
        return scene.add_box(name, one, (size.x, size.y, size.z), opacity=opacity, **pose)
    if kind == Marker.TEXT_VIEW_FACING:
        return scene.add_label(name, marker.text, anchor='center-center', **pose)
    if kind == Marker.ARROW:
        # It is given by its two ends, as the nodes' are.
        return scene.add_arrows(
            name, points[None], np.array([one], dtype=np.uint8), shaft_radius=0.5 * size.x,
            head_radius=0.5 * size.y, head_length=size.z, **pose)
    if kind in (Marker.LINE_STRIP, Marker.LINE_LIST):
        ends = (np.repeat(np.arange(count), 2)[1:-1] if kind == Marker.LINE_STRIP
                else np.arange(count // 2 * 2)).reshape(-1, 2)
        return scene.add_line_segments(name, points[ends], colours[ends], thickness=size.x,
                                       **pose) if len(ends) else None
    return scene.add_point_cloud(
        name, points, colours, point_size=size.x, point_shape='circle', precision='float32',
        **pose) if count else None
