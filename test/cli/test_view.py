# SPDX-License-Identifier: Apache-2.0
"""`robocal view`: the arm, the markers and the nodes in a browser, for its own page alone."""

from __future__ import annotations

import argparse
import http.client
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import viser
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import Point
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from support.browser import CHROMIUM, opened, serious
from support.domains import free_port
from support.fake_procedure import Running
from support.result_examples import example, failing
from support.ros_rig import arm_urdf
from visualization_msgs.msg import Marker, MarkerArray
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from robocal_ros.cli.calibrate import Answers
from robocal_ros.cli.main import build_parser, main
from robocal_ros.cli.node_client import RosSession
from robocal_ros.cli.view import GuardedServer, Scene, View
from robocal_ros.cli.view_plan import PlanPanel
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import qos
from robocal_ros.results.store import ResultStore, to_yaml
from robocal_ros.robot.model import Robot

DOMAIN = int(os.environ['ROS_DOMAIN_ID'])
ANGLES = {'joint_1': 0.3, 'joint_2': 0.4, 'joint_3': -0.9, 'joint_4': 0.1, 'joint_5': 0.5,
          'joint_6': -0.2}


@pytest.fixture(scope='module')
def server() -> Iterator[Any]:
    made = viser.ViserServer('127.0.0.1', free_port(), verbose=False)
    yield made
    made.stop()


def marker(kind: int, number: int = 0, frame: str = 'tool0', **changes: Any) -> Marker:
    made = Marker(ns='test', id=number, type=kind, action=Marker.ADD, **changes)
    made.header.frame_id = frame
    made.scale.x = made.scale.y = made.scale.z = 0.1
    made.color.a = made.color.r = 1.0
    made.points = [Point(x=0.1 * i, y=0.0, z=0.2) for i in range(2)]
    return made


@pytest.fixture
def scene(server: Any) -> Scene:
    return Scene(server, arm_urdf(), [])


class TestScene:
    def test_frames_of_markers_are_where_the_kinematics_put_them(self, scene: Scene) -> None:
        assert scene.show('/node', [marker(Marker.SPHERE)]) == ''
        scene.move(ANGLES)
        pose = Robot(arm_urdf()).transform_frame_to_root(np.array(list(ANGLES.values())), 'tool0')
        node = scene._frames['tool0']
        np.testing.assert_allclose(node.position, pose.translation, atol=1e-6)
        turn = viser.transforms.SO3(np.asarray(node.wxyz)).as_matrix()
        np.testing.assert_allclose(turn, pose.rotation, atol=1e-6)

    def test_values_that_are_no_numbers_and_joints_of_others_are_left_out(
        self, scene: Scene
    ) -> None:
        scene.show('/node', [marker(Marker.SPHERE)])
        scene.move(ANGLES)
        before = np.array(scene._frames['tool0'].position)
        scene.move({'joint_2': float('nan'), 'gripper': 1.0})
        np.testing.assert_array_equal(scene._frames['tool0'].position, before)

    def test_a_description_without_shapes_is_a_skeleton(self, server) -> None:
        bare = re.sub(r'<visual.*?</visual>', '', arm_urdf(), flags=re.DOTALL)
        scene = Scene(server, bare, [])
        shapes = scene._arm.visual_model
        model = Robot(arm_urdf()).model
        assert {rod.parentJoint for rod in shapes.geometryObjects} == set(range(model.njoints))
        scene.move(ANGLES)

    @pytest.mark.parametrize('kind', [
        Marker.ARROW, Marker.CUBE, Marker.SPHERE, Marker.LINE_STRIP, Marker.LINE_LIST,
        Marker.SPHERE_LIST, Marker.POINTS, Marker.TEXT_VIEW_FACING])
    def test_a_marker_is_drawn_and_deleted(self, scene: Scene, kind: int) -> None:
        assert scene.show('/node', [marker(kind)]) == ''
        assert list(scene._drawn) == ['node/test/0']
        # The same one again takes its place.
        scene.show('/node', [marker(kind), marker(kind, 1)])
        assert list(scene._drawn) == ['node/test/0', 'node/test/1']
        gone = marker(kind)
        gone.action = Marker.DELETE
        scene.show('/node', [gone])
        assert list(scene._drawn) == ['node/test/1']

    def test_all_markers_of_one_source_are_deleted(self, scene: Scene) -> None:
        for source in ('/leveling', '/leveling_2'):
            scene.show(source, [marker(Marker.SPHERE)])
        scene.show('/leveling', [Marker(action=Marker.DELETEALL)])
        assert list(scene._drawn) == ['leveling_2/test/0']

    def test_a_marker_ends_with_its_lifetime(self, scene: Scene) -> None:
        short = marker(Marker.SPHERE)
        short.lifetime.nanosec = 1
        scene.show('/node', [short, marker(Marker.SPHERE, 1)])
        time.sleep(0.01)
        scene.expire()
        assert list(scene._drawn) == ['node/test/1']

    def test_what_cannot_be_drawn_is_told(self, scene: Scene) -> None:
        assert "no frame 'elsewhere'" in scene.show(
            '/node', [marker(Marker.SPHERE, frame='elsewhere')])
        assert 'Markers of type 10' in scene.show('/node', [marker(Marker.MESH_RESOURCE)])
        assert not scene._drawn


class Told(Node):
    """Publishes what a payload node does, and notes that it was cancelled."""

    def __init__(self, context: Context) -> None:
        super().__init__('payload_identification', context=context, enable_rosout=False)
        self.cancelled = False
        self.create_service(Trigger, '~/cancel', self._cancel)
        latched = [(String, '/robot_description'), (DiagnosticStatus, '~/status'),
                   (String, '~/result')]
        self._out = {topic: self.create_publisher(kind, topic, qos.LATCHED)
                     for kind, topic in latched}
        self._out['~/markers'] = self.create_publisher(MarkerArray, '~/markers', qos.LATCHED)
        self._out['/joint_states'] = self.create_publisher(JointState, '/joint_states', 10)

    def say(self, topic: str, message: Any) -> None:
        self._out[topic].publish(message)

    def _cancel(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        self.cancelled = response.success = True
        return response


def status(phase: str, message: str) -> DiagnosticStatus:
    return DiagnosticStatus(message=message, values=[
        KeyValue(key='phase', value=phase), KeyValue(key='progress', value='40.0')])


@pytest.fixture
def told() -> Iterator[Told]:
    running = Running(DOMAIN, Told)
    yield running.node
    running.close()


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    with RosSession('robocal_view', DOMAIN) as session:
        made = View(session, argparse.Namespace(
            namespace='', host='127.0.0.1', port=free_port(), mesh_folder=[],
            allow_motion=False, results_dir=tmp_path))
        yield made
        made.close()


def until(
    view: View, condition: Callable[[], Any], act: Callable[[], None] = lambda: None,
    timeout: float = 60.0
) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        act()
        view.refresh()
        time.sleep(0.02)


def panel_of(view: View) -> Any:
    return next(item for item in view._panels if item.node == '/payload_identification')


def test_a_running_procedure_is_shown_and_cancelled(told: Told, view: View) -> None:
    panel = panel_of(view)
    told.say('~/status', status('moving', 'Posture 4 of 10 <b>.'))
    until(view, lambda: panel._folder.visible)
    assert 'Posture 4 of 10 &lt;b&gt;.' in panel._text.content
    assert 'value="40"' in panel._bar.content
    assert panel._button.visible
    panel._ask(SimpleNamespace())
    until(view, lambda: told.cancelled)
    told.say('~/status', status('idle', 'Cancelled.'))
    until(view, lambda: not panel._button.visible)


def test_a_node_that_ended_in_mid_run_is_not_shown_as_moving(
    told: Told, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('robocal_ros.cli.node_client._ENDED', 0.3)
    panel = panel_of(view)
    told.say('~/status', status('moving', 'Posture 4 of 10.'))
    until(view, lambda: panel._button.visible)
    told.destroy_publisher(told._out.pop('~/status'))
    until(view, lambda: 'The controller finishes the motion' in panel._text.content)
    assert 'moving' not in panel._text.content
    assert not panel._button.visible
    # Another one takes its place.
    told._out['~/status'] = told.create_publisher(DiagnosticStatus, '~/status', qos.LATCHED)
    told.say('~/status', status('moving', 'Posture 1 of 10.'))
    until(view, lambda: panel._button.visible and 'Posture 1 of 10.' in panel._text.content)


def test_estimates_are_drawn_while_they_form(told: Told, view: View) -> None:
    """Those of the unit of the newest one; what is no estimate is not drawn."""
    forming = panel_of(view)._plot
    for share, half in ((40.0, 9.0), (0.1, 1e-3), (0.2, 1e-3), (0.3, 1e-3), (0.2, 1e-3)):
        message = status('sweeping', 'Sweep of joint_6 forward.')
        message.values += [KeyValue(key=key, value=value) for key, value in (
            ('joint_6: lever along gravity [m]', f'{share:.5f} ± {half}'),
            ('joint_6: lever sideways [m]', f'{-share:.5f} ± {half}'),
            ('remaining [s]', f'{100.0 - share}'), ('longest turn', '2.1 ms'))]
        told.say('~/status', message)
        until(view, lambda share=share: forming._readings and (
            forming._readings['[m]'][-1][1]['joint_6: lever sideways'][0] == -share))
        # The next one is drawn at once.
        forming._drawn = 0.0
    assert list(forming._readings) == ['[m]']
    along, sideways = forming._plot.figure.data
    assert along.name == 'joint_6: lever along gravity'
    # The first estimates are of any size.
    np.testing.assert_array_equal(along.y, [np.nan, 0.1, 0.2, 0.3, 0.2])
    np.testing.assert_array_equal(sideways.y, -along.y)
    assert (np.diff(along.x) > 0.0).all()
    told.say('~/status', status('idle', 'Done.'))
    until(view, lambda: forming._plot is None)


def test_a_view_that_is_opened_later_shows_what_was_published(told: Told, request) -> None:
    told.say('/robot_description', String(data=arm_urdf()))
    told.say('~/status', status('idle', 'Done.'))
    told.say('~/markers', MarkerArray(markers=[marker(Marker.SPHERE)]))
    view = request.getfixturevalue('view')
    until(view, lambda: view._scene is not None and view._scene._drawn)
    until(view, lambda: panel_of(view)._folder.visible)


def test_a_cancel_that_reaches_nobody_is_told(view: View) -> None:
    panel = panel_of(view)
    panel._ask(SimpleNamespace())
    view.refresh()
    assert '/payload_identification/cancel&#39; does not answer' in panel._table.content


def test_the_arm_follows_and_markers_wait_for_the_description(
    told: Told, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(view, lambda: '/payload_identification' in view._markers, lambda: told.say(
        '~/markers', MarkerArray(markers=[marker(Marker.SPHERE)])))
    assert view._scene is None
    told.say('/robot_description', String(data=arm_urdf()))
    until(view, lambda: view._scene is not None)
    assert list(view._scene._drawn) == ['payload_identification/test/0']
    state = JointState(name=list(ANGLES), position=list(ANGLES.values()))
    pose = Robot(arm_urdf()).transform_frame_to_root(np.array(list(ANGLES.values())), 'tool0')
    until(view, lambda: np.allclose(
        view._scene._frames['tool0'].position, pose.translation, atol=1e-6),
        lambda: told.say('/joint_states', state))
    assert not view._silence.visible
    monkeypatch.setattr('robocal_ros.cli.view._SILENT', 0.2)
    until(view, lambda: view._silence.visible)
    until(view, lambda: not view._silence.visible, lambda: told.say('/joint_states', state))


def test_results_are_shown_with_their_verdict_and_nothing_of_them_is_run(
    told: Told, view: View
) -> None:
    panel = panel_of(view)
    told.say('~/status', status('idle', 'Done.'))
    told.say('~/result', String(data=to_yaml(example())))
    until(view, lambda: 'com_z' in panel._table.content)
    assert 'pass</strong>' in panel._table.content
    assert '12.3' in panel._table.content
    bad = failing()
    check = replace(bad.checks[0], reason='Too wide <script>alert(1)</script>.')
    told.say('~/result', String(data=to_yaml(replace(bad, checks=(check,)))))
    until(view, lambda: 'Too wide' in panel._table.content)
    assert 'fail</strong>' in panel._table.content
    assert '<script>' not in panel._table.content
    told.say('~/result', String(data='kind: [1'))
    until(view, lambda: 'not readable' in panel._table.content)


def test_stored_results_are_shown_with_their_plots(view: View, tmp_path: Path) -> None:
    panel, good, bad = view._stored, example(), failing()
    assert not panel._folder.visible
    store = ResultStore(tmp_path, good.robot)
    store.save(good)
    until(view, lambda: panel._folder.visible)
    assert 'pass</strong>' in panel._table.content
    assert panel._series.options == tuple(series.title for series in good.series)
    assert panel._plot.figure.data[0].x.tolist() == good.series[0].x.tolist()
    # What comes is shown, and what is chosen stays.
    store.save(bad)
    until(view, lambda: 'fail</strong>' in panel._table.content)
    assert panel._choice.value.endswith(', failed')
    panel._choice.value = panel._choice.options[1]
    until(view, lambda: 'pass</strong>' in panel._table.content)
    (path,) = tmp_path.glob('history/*.yaml')
    path.write_text('kind: [1', encoding='utf-8')
    panel._shown = ''
    until(view, lambda: 'not readable' in panel._table.content)


def test_nothing_moves_from_the_page_unless_it_is_allowed(view: View) -> None:
    assert view._plan is None


def test_answers_of_the_page_that_cannot_be(server: Any) -> None:
    panel = PlanPanel(server.gui, '')
    with pytest.raises(ConfigurationError, match='Name the tool that is mounted, or say'):
        panel._answers()
    panel._mounted.value = False
    with pytest.raises(ConfigurationError, match='gravity needs a tool to measure'):
        panel._answers()
    panel._tool.value = 'gripper'
    assert panel._answers() == Answers('gripper', False)


def test_a_description_that_cannot_be_drawn_is_told(told: Told, view: View) -> None:
    told.say('/robot_description', String(data='<robot'))
    until(view, lambda: 'not well-formed' in view._note.content)
    assert view._scene is None


def test_without_its_libraries_it_says_what_to_install(monkeypatch, capsys) -> None:
    monkeypatch.setattr('robocal_ros.cli.view.LIBRARIES', ('viser', 'no_such_library'))
    assert main(['view']) == 2
    told = capsys.readouterr().err
    assert 'needs no_such_library' in told
    assert 'pip install viser' in told


@pytest.mark.skipif(CHROMIUM is None, reason='Chromium is not installed.')
def test_a_browser_shows_the_page_and_cancels(told: Told, view: View) -> None:
    told.say('/robot_description', String(data=arm_urdf()))
    told.say('~/status', status('moving', 'Posture 4 of 10.'))
    told.say('~/result', String(data=to_yaml(failing())))
    until(view, lambda: panel_of(view)._folder.visible and view._scene is not None)
    with opened('--use-angle=swiftshader', '--enable-unsafe-swiftshader') as browser:
        page = browser.new_page()
        page.goto(view.address, timeout=120_000)
        for words in ('payload identification', 'Posture 4 of 10.'):
            until(view, page.get_by_text(words).first.is_visible, timeout=120.0)
        until(view, page.locator('canvas').first.is_visible)
        until(view, page.get_by_role('progressbar', name='Progress of payload').is_visible)
        # The library's own buttons have no names: settings, and its remark on software rendering.
        assert [item for item in serious(page) if not item.startswith('button-name')] == []
        # A second browser, such as a phone's, shows the same and cancels as well; the first one
        # follows.
        other = browser.new_context().new_page()
        other.goto(view.address, timeout=120_000)
        until(view, other.get_by_text('Posture 4 of 10.').first.is_visible, timeout=120.0)
        other.get_by_text('Cancel and hold the arm').click()
        until(view, lambda: told.cancelled)
        told.say('~/status', status('idle', 'Held in posture 4.'))
        for one in (page, other):
            until(view, one.get_by_text('Held in posture 4.').first.is_visible)


@pytest.mark.parametrize(('host', 'port', 'words'), [
    ('127.0.0.1', 99999, 'no port 99999; expected one from 1 to 65535'),
    ('192.0.2.1', 8080, 'an address of this machine with --host'),
    ('no-such-name.invalid', 8080, 'an address of this machine with --host')])
def test_where_nothing_can_be_served(host: str, port: int, words: str) -> None:
    """viser itself waits for ever."""
    with pytest.raises(ConfigurationError, match=words):
        GuardedServer(host, port)


@pytest.fixture(scope='module')
def guarded() -> Iterator[GuardedServer]:
    made = GuardedServer('127.0.0.1', free_port())
    yield made
    made.close()


def first_message(address: str, origin: str | None, to: str = '127.0.0.1') -> object:
    """Return the first message that a WebSocket receives; addresses as in a browser."""
    port = urlsplit(address).port
    with (
        socket.create_connection((to, port), 10.0) as stream,
        connect(address.replace('http:', 'ws:'), sock=stream, proxy=None,
                origin=None if origin is None else Origin(origin),
                subprotocols=[Subprotocol(f'viser-v{viser.__version__}')]) as client,
    ):
        return client.recv(10.0)


def refused(address: str, origin: str | None) -> str:
    with pytest.raises(InvalidStatus) as caught:
        first_message(address, origin)
    assert caught.value.response.status_code == 403
    return caught.value.response.body.decode()


def origin_of(address: str) -> str:
    return address.rpartition('/')[0].rpartition('/')[0]


def test_the_page_of_the_printed_address_is_served(guarded: GuardedServer) -> None:
    assert first_message(guarded.address, origin_of(guarded.address))


@pytest.mark.parametrize('name', ['localhost', socket.gethostname()])
def test_names_of_this_machine_and_ports_of_a_tunnel_are_served(
    guarded: GuardedServer, name: str
) -> None:
    address = guarded.address.replace('127.0.0.1', name)
    assert first_message(address, origin_of(address))
    # What `ssh -L 9999:localhost:8080` sends.
    port = guarded.server.get_port()
    with socket.create_connection(('127.0.0.1', port), 10.0) as stream, connect(
            address.replace('http:', 'ws:').replace(str(port), '9999'), sock=stream, proxy=None,
            origin=Origin(f'http://{name}:9999'),
            subprotocols=[Subprotocol(f'viser-v{viser.__version__}')]) as client:
        assert client.recv(10.0)


@pytest.mark.parametrize('origin', [
    'http://evil.example', 'http://127.0.0.1', 'http://127.0.0.1:1', 'null', '', None])
def test_pages_of_other_origins_are_refused(guarded: GuardedServer, origin: str | None) -> None:
    told = refused(guarded.address, origin)
    assert 'robocal view prints' in told
    assert 'token' in told
    assert guarded.address.split('/')[-2] not in told


def test_a_stranger_s_name_that_points_at_this_machine_is_refused(guarded: GuardedServer) -> None:
    address = guarded.address.replace('127.0.0.1', 'evil.example')
    refused(address, origin_of(address))


@pytest.mark.parametrize('token', ['', 'wrong/', '%ff/', 'é/'.encode().decode('latin-1')])
def test_a_missing_or_wrong_token_is_refused(guarded: GuardedServer, token: str) -> None:
    origin = origin_of(guarded.address)
    refused(f'{origin}/{token}', origin)
    refused(guarded.address[:-2], origin)


def get(guarded: GuardedServer, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection('127.0.0.1', guarded.server.get_port(), timeout=10.0)
    connection.request('GET', path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_files_need_the_token_too(guarded: GuardedServer) -> None:
    path = urlsplit(guarded.address).path
    status, page = get(guarded, path)
    assert status == 200
    assert b'<!doctype html>' in page
    assert get(guarded, f'{path}?darkMode')[0] == 200
    assert get(guarded, f'{path}%2e%2e/%2e%2e/__init__.py')[0] == 404
    for wrong in ('/', '/index.html', f'/x{path}', f'/{path}'):
        assert get(guarded, wrong)[0] == 403
    assert get(guarded, path, Origin='http://evil.example')[0] == 403
    assert get(guarded, path, Host='evil.example')[0] == 403
    assert get(guarded, path, Host='[')[0] == 403
    # A protocol that viser does not take for a WebSocket is no way around the origin.
    assert get(guarded, path, Upgrade='WebSocket', Connection='Upgrade')[0] == 403


def test_the_default_is_this_machine_alone() -> None:
    options = build_parser().parse_args(['view'])
    made = GuardedServer(options.host, free_port())
    try:
        with pytest.raises(ConnectionRefusedError):
            first_message(made.address, None, to='127.0.0.2')
    finally:
        made.close()


def test_served_everywhere_it_accepts_each_address_of_this_machine() -> None:
    made = GuardedServer('0.0.0.0', free_port())
    try:
        assert urlsplit(made.address).hostname == socket.gethostname().lower()
        address = made.address.replace(socket.gethostname(), '127.0.0.2')
        assert first_message(address, origin_of(address), to='127.0.0.2')
        with pytest.raises(InvalidStatus):
            first_message(address, origin_of(address), to='127.0.0.3')
    finally:
        made.close()


def test_tokens_differ() -> None:
    tokens = set()
    for _ in range(2):
        made = GuardedServer('127.0.0.1', free_port())
        tokens.add(urlsplit(made.address).path)
        made.close()
    assert len(tokens) == 2
    assert all(len(token) > 40 for token in tokens)


def test_a_viser_that_cannot_be_guarded_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = pytest.importorskip('websockets.asyncio.server').serve
    made = []

    class Other(viser.ViserServer):
        """Opens its port with another function than the one that is wrapped."""

        def __init__(self, *arguments: object, **others: object) -> None:
            monkeypatch.setattr('websockets.asyncio.server.serve', serve)
            super().__init__(*arguments, **others)
            made.append(self.get_port())

    monkeypatch.setattr('viser.ViserServer', Other)
    with pytest.raises(ConfigurationError, match=r'cannot guard.*pip install viser=='):
        GuardedServer('127.0.0.1', free_port())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(('127.0.0.1', made[0]), 5.0)
