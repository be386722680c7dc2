# SPDX-License-Identifier: Apache-2.0
"""`robocal view`: the arm and what its nodes do, live in a browser.

It reads what nodes publish for RViz too, and stored results; a button calls ``~/cancel``. Nothing
else moves or changes anything, unless the user allows the page to carry out a calibration. Only
its own page, loaded with the access token, is served.

It is drawn by viser through Pinocchio's own visualiser. viser serves its page from Python alone,
without a connection to the internet, and has panels with buttons; meshcat has no panels, rerun no
buttons.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import logging
import re
import secrets
import socket
import time
import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import coal
import numpy as np
import pinocchio as pin
from diagnostic_msgs.msg import DiagnosticStatus
from pinocchio.visualize import ViserVisualizer
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros import registry
from robocal_ros.cli.console import ERRORS, print_line
from robocal_ros.cli.node_client import (
    UNATTENDED,
    NodeClient,
    RosSession,
    full_name,
    is_served,
)
from robocal_ros.cli.view_plan import PlanPanel
from robocal_ros.cli.view_results import (
    BAD,
    FAIR,
    GOOD,
    RED,
    FormingPlot,
    ResultsPanel,
    html,
    table,
)
from robocal_ros.errors import ConfigurationError, ModelError, RobocalError
from robocal_ros.messages import qos, subscribe_text
from robocal_ros.results import default_directory, from_yaml
from robocal_ros.robot import mesh_folders, parse_urdf, without_missing_meshes

if TYPE_CHECKING:
    import viser
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

    _Handler = Callable[[ServerConnection, Request], Response | None]

LIBRARIES = ('viser', 'trimesh')
"""Libraries of the view, which no node needs."""

_NEWEST = qos.profile(1, reliable=False)
# Interval between two pictures [s], and callbacks served for each: with one message kept per
# topic, a fast topic costs no more than that.
_PERIOD, _TURNS = 0.04, 8
# Time without joint states after which the picture is said to be old [s].
_SILENT = 3.0
# A cancel is sent again until it is answered: interval, and how long [s].
_CANCEL_PERIOD, _CANCEL_TIME = 1.0, 5.0
_IDLE = ('', 'idle', 'unconfigured', 'inactive', 'observing', 'waiting')
_COLOURS = {DiagnosticStatus.OK: GOOD, DiagnosticStatus.WARN: FAIR, DiagnosticStatus.ERROR: BAD}
_FRAMES = '/frames'
# Where the page looks from at first, and at what [m].
_EYE, _LOOK_AT = (1.5, 1.5, 1.1), (0.0, 0.0, 0.6)
_ROD_RADIUS = 0.02
_EVERYWHERE = ('', '0.0.0.0', '::')
_REFUSED = (
    'Refused. Only the address that robocal view prints is served: it contains an access token, '
    'and connections are accepted from its own page alone.\n')


def run(options: argparse.Namespace) -> int:
    """Show the robot until Ctrl-C.

    Raises:
        ConfigurationError: If a library is missing, or the port is taken.

    """
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f'The view in the browser needs {" and ".join(missing)}, which no node needs. '
            "Install them with 'pip install viser pycollada'.")
    with RosSession('robocal_view') as session:
        view = View(session, options)
        print_line(f'Open {view.address} in a browser. Ctrl-C ends it.')
        print_line('Its last part is an access token: whoever has it can watch, and cancel '
                   f'procedures{", and move the arm" if options.allow_motion else ""}. Pages of '
                   'other addresses are refused.')
        if options.open:
            webbrowser.open(view.address)
        try:
            while True:
                view.refresh()
                time.sleep(_PERIOD)
        except KeyboardInterrupt:
            return 0
        finally:
            view.close()


class View:
    """Page in the browser, and the subscriptions that fill it.

    Attributes:
        address: Address of the page, with its access token.

    """

    def __init__(self, session: RosSession, options: argparse.Namespace) -> None:
        """Serve the page and subscribe.

        Args:
            session: Session whose node is used.
            options: Namespace, host, port and mesh folders.

        Raises:
            ConfigurationError: If the port is taken.

        """
        self._session = session
        self._folders = mesh_folders(options.mesh_folder)
        logging.getLogger('websockets').setLevel(logging.ERROR)
        self._guarded = GuardedServer(options.host, options.port)
        self._server, self.address = self._guarded.server, self._guarded.address
        gui = self._server.gui
        # Sharing would send the page through a server on the internet.
        gui.configure_theme(show_logo=False, show_share_button=False, control_width='large')
        gui.set_panel_label('robocal')
        self._scene: Scene | None = None
        self._markers: dict[str, MarkerArray] = {}
        self._state: bytes = b''
        self._note = gui.add_html(html('paragraph', 'Waiting for robot_description.'))
        self._silence = gui.add_html(html(
            'paragraph', 'No joint states arrive: the arm is drawn where it was.'), visible=False)
        self._heard = float('inf')
        self._plan = PlanPanel(gui, options.namespace) if options.allow_motion else None
        node = session.node
        subscribe_text(node, full_name('robot_description', options.namespace), self._describe)
        node.create_subscription(JointState, full_name('joint_states', options.namespace),
                                 lambda raw: setattr(self, '_state', raw), _NEWEST, raw=True)
        self._panels = [_Panel(session, gui, full_name(name, options.namespace))
                        for name in registry.nodes()]
        self._stored, self._results = ResultsPanel(gui), options.results_dir
        for panel in self._panels:
            node.create_subscription(
                MarkerArray, f'{panel.node}/markers', partial(self._draw, panel.node), qos.LATCHED)

    def close(self) -> None:
        """Cancel a plan that is carried out, and end the server."""
        if self._plan is not None:
            self._plan.close()
        self._guarded.close()

    def refresh(self) -> None:
        """Take what has arrived and show it."""
        self._session.take(_TURNS)
        if self._scene is not None:
            if self._state:
                state = deserialize_message(self._state, JointState)
                self._state, self._heard = b'', time.monotonic()
                self._scene.move(dict(zip(state.name, state.position, strict=False)))
            self._silence.visible = time.monotonic() > self._heard + _SILENT
            self._scene.expire()
        for panel in self._panels:
            panel.refresh()
        if self._plan is not None:
            self._plan.refresh()
        if self._results is not None:
            self._stored.refresh(self._results)

    def _describe(self, message: String) -> None:
        try:
            self._scene = Scene(self._server, message.data, self._folders)
        except RobocalError as error:
            self._scene = None
            self._tell(str(error))
            return
        name = parse_urdf(message.data).get('name', '')
        self._results = self._results or default_directory(name)
        missing = self._scene.missing
        self._tell(f'No meshes are found for {", ".join(missing)}. Name their folder with '
                   '--mesh-folder.' if missing else '')
        for source, markers in self._markers.items():
            self._draw(source, markers)

    def _draw(self, source: str, message: MarkerArray) -> None:
        # Kept, since they may arrive before the description does.
        self._markers[source] = message
        if self._scene is not None and (problem := self._scene.show(source, message.markers)):
            self._tell(problem)

    def _tell(self, text: str) -> None:
        self._note.content = html('paragraph', text) if text else ''
        if text:
            print_line(text, 'yellow', ERRORS)


class _Panel:
    """What one node does: phase, progress, newest result, and a button that cancels."""

    def __init__(self, session: RosSession, gui: Any, name: str) -> None:
        self.node = name
        self._session = session
        self._title = name.rsplit('/', 1)[-1].replace('_', ' ')
        self._published = NodeClient(session, name)
        self._client = self._published.service(Trigger, 'cancel')
        self._shown = self._published.status
        self._ended = False
        self._read, self._result = '', ''
        self._asked = False
        self._answers: list[Any] = []
        self._cancel_end = self._next_cancel = 0.0
        # Appears with the node.
        self._folder = gui.add_folder(self._title, visible=False)
        with self._folder:
            self._text = gui.add_html('')
            self._bar = gui.add_html('', visible=False)
            self._button = gui.add_button('Cancel and hold the arm', color=RED, visible=False)
            self._table = gui.add_html('')
        self._plot = FormingPlot(gui, self._folder)
        self._button.on_click(self._ask)

    def _ask(self, _: Any) -> None:
        # Called in a thread of the server; rclpy is used in the main one alone.
        self._asked = True

    def refresh(self) -> None:
        """Show what has changed, and cancel if asked to."""
        now = time.monotonic()
        if self._asked:
            self._asked, self._cancel_end, self._next_cancel = False, now + _CANCEL_TIME, now
        if self._next_cancel <= now < self._cancel_end:
            self._next_cancel = now + _CANCEL_PERIOD
            # A request or its answer is lost where discovery is not complete yet.
            if is_served(self._session.node, self._client):
                self._answers.append(self._client.call_async(Trigger.Request()))
            if len(self._answers) != 1:
                self._table.content = html('paragraph', (
                    f"Not cancelled: '{self.node}/cancel' does not answer. Stop the arm by other "
                    'means.'))
        if any(answer.done() for answer in self._answers):
            self._cancel_end = 0.0
            self._answers.clear()
            self._table.content = self._result
        if self._published.result != self._read:
            self._read = self._published.result
            try:
                self._result = table(from_yaml(self._read))
            except RobocalError as error:
                self._result = html('paragraph', f'The result is not readable: {error}')
            self._table.content = self._result
        ended = self._published.ended
        if self._published.status is not self._shown or ended != self._ended:
            self._shown, self._ended = self._published.status, ended
            phase = self._published.values.get('phase', '')
            forming = {name: value for name, value in self._published.values.items()
                       if name not in ('phase', 'progress') and phase not in _IDLE}
            self._text.content = html(
                'status', BAD, 'ended', UNATTENDED if phase not in _IDLE else '', ()
            ) if ended else html(
                'status', _COLOURS.get(self._shown.level, BAD), phase, self._shown.message,
                forming.items())
            if phase in _IDLE:
                self._plot.clear()
            self._plot.take(forming)
            percent = min(max(self._published.progress, 0.0), 100.0)
            self._bar.content = html('bar', percent, self._title)
            self._bar.visible = self._button.visible = not ended and phase not in _IDLE
            self._table.content = self._result
            self._folder.visible = True


# ---------------------------------------------------------------------------- scene


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
        self._displacement = np.zeros(self._model.nv)
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
            if joint.nv == 1:
                self._displacement[joint.idx_v] = position
        # From the zero posture: joints without limits have two coordinates.
        self._arm.display(
            pin.integrate(self._model, pin.neutral(self._model), self._displacement))
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
            self._remove([key for key in self._drawn if key.startswith(group)]
                         if marker.action == Marker.DELETEALL else [name])
            if marker.action in (Marker.DELETE, Marker.DELETEALL):
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
                    time.monotonic() + lifetime if lifetime else np.inf)
        return problem

    def expire(self) -> None:
        """Remove markers whose lifetime is over."""
        self._remove([name for name, (_, end) in self._drawn.items() if end < time.monotonic()])

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


# --------------------------------------------------------------------------- access


class GuardedServer:
    """Server of viser behind an access token, and closed to pages of other origins.

    A request is answered if all of these hold; otherwise it gets 403:

    - Its path begins with the token. The page connects to the path that it was loaded from.
    - Its ``Host`` is an address or name of this machine, so that no name of a stranger can be
      pointed at this machine (DNS rebinding).
    - Its ``Origin`` is that host. Pages of other origins, which may connect to WebSockets
      anywhere, differ; only requests for the page itself may lack it.

    Attributes:
        server: The server of viser.
        address: Address of the page, with the token.

    """

    def __init__(self, host: str, port: int) -> None:
        """Start the server.

        Args:
            host: Address or name to serve at.
            port: First port to try.

        Raises:
            ConfigurationError: If it cannot be served there, or viser cannot be guarded.

        """
        # Libraries of the view alone, which may be missing.
        import viser
        from websockets.asyncio import server as websockets

        if not 0 < port < 65536:
            raise ConfigurationError(f'There is no port {port}; expected one from 1 to 65535.')
        self._token = secrets.token_urlsafe(32)
        this = socket.gethostname()
        self._names = {name.lower() for name in (host, this, f'{this}.local', 'localhost')}
        self._guards = False
        # viser has no parameter for it, and a proxy would leave viser's own port open.
        serve = websockets.serve
        websockets.serve = partial(self._serve, serve)  # type: ignore[assignment,misc]
        try:
            # viser waits for ever where it cannot serve.
            with socket.socket(socket.getaddrinfo(host or None, port)[0][0]) as test:
                test.bind((host, 0))
            # It prints its addresses, of which a user needs one.
            with redirect_stdout(io.StringIO()):
                self.server = viser.ViserServer(host, port, verbose=False)
        except OSError as error:
            raise ConfigurationError(
                f'Port {port} of {host} is not available ({error.strerror}). Choose another with '
                '--port, or an address of this machine with --host.') from error
        finally:
            websockets.serve = serve  # type: ignore[misc]
        if not self._guards:
            self.close()
            raise ConfigurationError(
                f'viser {viser.__version__} accepts connections in a way that robocal view cannot '
                "guard. Install a version that was tested: 'pip install viser==1.1.1'.")
        shown = this if host in _EVERYWHERE else f'[{host}]' if ':' in host else host
        self.address = f'http://{shown}:{self.server.get_port()}/{self._token}/'

    def close(self) -> None:
        """End the server."""
        with redirect_stdout(io.StringIO()):
            self.server.stop()

    def _serve(
        self, serve: Callable[..., Any], *arguments: Any, process_request: _Handler, **others: Any
    ) -> Any:
        self._guards = True
        return serve(*arguments, process_request=partial(self._process, process_request), **others)

    def _process(
        self, answer: _Handler, connection: ServerConnection, request: Request
    ) -> Response | None:
        token, _, rest = request.path.removeprefix('/').partition('?')[0].partition('/')
        hosts, origins = (request.headers.get_all(name) for name in ('Host', 'Origin'))
        own = {*self._names, connection.local_address[0]} - {''}
        names = {re.sub(r':\d+$', '', host).strip('[]').lower() for host in hosts}
        if not (secrets.compare_digest(token.encode(), self._token.encode())
                and len(hosts) == 1 and names <= own
                and (origins == [f'http://{hosts[0]}']
                     or not (origins or 'Upgrade' in request.headers))):
            return connection.respond(HTTPStatus.FORBIDDEN, _REFUSED)
        return answer(connection, replace(request, path=f'/{rest}'))
