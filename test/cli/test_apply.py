# SPDX-License-Identifier: Apache-2.0
"""`robocal apply`: results into URDFs and drivers' words, or a reason why not."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pinocchio as pin
import pytest
import yaml
from support.arms import arm
from support.fixtures import Call
from support.friction_results import arm_urdf, friction_result, identity, payload_result

from robocal_ros.cli.apply import driver_load, in_frame
from robocal_ros.cli.drivers import desk_settings, payload_calls
from robocal_ros.cli.main import build_parser
from robocal_ros.cli.report import REMEDIES, next_steps
from robocal_ros.payload import static_poses
from robocal_ros.payload.estimator import gains_summary
from robocal_ros.results.result import CalibrationResult, Check, Input, Parameter, State
from robocal_ros.results.store import write_result
from robocal_ros.robot.arm_model import link_parameters, on_leaning_base, parameter_names
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.urdf import with_payload

Applied = Callable[..., tuple[str, Path]]


def failed(reason: str, result: CalibrationResult | None = None) -> CalibrationResult:
    return replace(result or payload_result(), checks=(Check('x', False, 2.0, 1.0, '1', reason),))


@pytest.fixture
def urdf(tmp_path: Path) -> Path:
    path = tmp_path / 'arm.urdf'
    path.write_text(arm_urdf())
    return path


@pytest.fixture
def applied(call: Call) -> Applied:
    """Applies a result to a URDF; returns what is printed, and the written file."""
    def apply(
        result: CalibrationResult, urdf: Path, *arguments: object, code: int = 0
    ) -> tuple[str, Path]:
        file, out = urdf.with_name('result.yaml'), urdf.with_name('out.urdf')
        write_result(result, file)
        out.unlink(missing_ok=True)
        told = call('apply', file, '--urdf', urdf, '--out', out, *arguments, code=code)
        assert out.exists() is (code == 0)
        return told, out

    return apply


def test_a_payload_is_carried_afterwards(urdf: Path, applied: Applied) -> None:
    told, out = applied(payload_result(), urdf)
    loaded, bare = Robot(out.read_text()), Robot(urdf.read_text())
    mass = [sum(inertia.mass for inertia in robot.model.inertias) for robot in (loaded, bare)]
    assert mass[0] - mass[1] == pytest.approx(2.0)
    assert "2.0000 kg on link 'flange'" in told
    assert 'This URDF differs' not in told
    assert 'Its inertia was not identified' in told
    # The driver's flange also carries the wrist sensor, which the URDF has.
    sensor = bare.distal_inertia('flange')
    x, y, z = ((2.0 * payload_result().values(('com_x', 'com_y', 'com_z'))
                + sensor.mass * sensor.com) / (2.0 + sensor.mass))
    assert f'x: {x:.5f}, y: {y:.5f}, z: {z:.5f}' in told
    assert 'franka_msgs/srv/SetLoad' in told


def test_driver_values_are_in_the_frame_asked_for(urdf: Path, applied: Applied) -> None:
    bare = Robot(urdf.read_text())
    still = np.zeros(bare.n)
    moved = bare.transform_frame_to_root(still, 'tool0').actInv(
        bare.transform_frame_to_root(still, 'flange'))
    x, y, z = moved.act(payload_result().values(('com_x', 'com_y', 'com_z')))
    told, _ = applied(payload_result(), urdf, '--frame', 'tool0')
    assert f'x: {x:.5f}, y: {y:.5f}, z: {z:.5f}' in told


class TestKnownDriver:
    """A UR5, whose payload is in `tool0`; the frame `ee_link` is rotated against it."""

    @pytest.fixture
    def ur5(self, tmp_path: Path) -> Path:
        path = tmp_path / 'ur5.urdf'
        path.write_text(arm('ur5').urdf)
        return path

    @staticmethod
    def result(ur5: Path, frame: str) -> CalibrationResult:
        made = payload_result()
        return replace(made, frame=frame, robot=replace(made.robot, joint_names=tuple(
            name for name in Robot(ur5.read_text(), tool_frame='tool0').joint_names)))

    @pytest.mark.parametrize('arguments', [(), ('--frame', 'tool0')])
    def test_only_its_calls_are_printed_in_its_frame(
        self, ur5: Path, applied: Applied, arguments: tuple[str, ...]
    ) -> None:
        result = self.result(ur5, 'wrist_3_link')
        told, _ = applied(result, ur5, *arguments)
        assert "in frame 'tool0', that of Universal Robots" in told
        total, _ = driver_load(result, ur5.read_text(), 'tool0')
        assert dict(payload_calls(total))['Universal Robots'] in told
        assert 'franka' not in told
        assert 'xarm' not in told

    def test_a_rotated_frame_is_refused(self, ur5: Path, applied: Applied) -> None:
        told, _ = applied(self.result(ur5, 'tool0'), ur5, '--frame', 'ee_link', code=2)
        assert re.search(r"'ee_link' is 0\.0 mm off and turned by 120\.0° against 'tool0', in "
                         'which Universal Robots .* takes a payload. Leave --frame away', told)


def test_friction_goes_into_dynamics(urdf: Path, applied: Applied) -> None:
    told, out = applied(friction_result(), urdf)
    model = Robot(out.read_text()).model
    assert model.damping[5] == pytest.approx(0.6)
    assert model.friction[5] == pytest.approx(0.7)
    assert 'joint_6' in told
    assert 'off by' not in told


def test_how_far_a_line_is_off_its_law_is_stated(urdf: Path, applied: Applied) -> None:
    made = friction_result(laws={'joint_6': {'speeds': [0.1, 1.0]}})
    result = replace(made, parameters=(*made.parameters, *(
        Parameter(f'joint_6.exponent_{side}', '1', 0.5, 0.001)
        for side in ('forward', 'backward'))))
    told, out = applied(result, urdf)
    model, speed = Robot(out.read_text()).model, np.linspace(0.1, 1.0, 50)
    law = 0.7 + 0.6 * np.sqrt(speed)
    error = np.abs(law - model.friction[5] - model.damping[5] * speed).max()
    off, size = re.search(r'joint_6 \(off by up to (\S+) of (\S+) N·m\)', told).groups()
    assert float(off) == pytest.approx(error, rel=0.05)
    assert float(size) == pytest.approx(1.3)


def test_the_filter_of_a_wrist_sensor_gets_the_weight_in_its_frame(
    urdf: Path, applied: Applied
) -> None:
    """What control_filters/GravityCompensationWrench subtracts is what the sensor reads."""
    plain = payload_result()
    result = replace(plain, settings={**plain.settings, 'sensor_frame': 'ft_wrist'})
    text, out = applied(result, urdf)
    assert 'type: control_filters/GravityCompensationWrench' in text
    params = yaml.safe_load(text.partition('params: ')[2].splitlines()[0])
    tool, posture = params['tool'], np.array([0.3, -0.4, 0.6, 0.2, 0.9, -0.5])
    loaded = Robot(out.read_text())
    body = loaded.distal_inertia(params['sensor_frame'])
    assert tool['mass'] == pytest.approx(body.mass, abs=1e-4)
    np.testing.assert_allclose(tool['CoG'], body.com, atol=1e-5)
    assert tool['gravity_field'] == loaded.gravity.tolist()
    assert loaded.transform_frame_to_root(posture, params['world_frame']).isIdentity()
    assert 'control_filters' not in applied(plain, urdf)[0]


def test_the_filter_of_a_wrist_sensor_gets_the_gravity_of_the_result(
    urdf: Path, applied: Applied
) -> None:
    """That of a wall, and of a base whose lean was estimated."""
    plain, wall = payload_result(), [9.81, 0.0, 0.0]
    result = replace(plain, settings={
        **plain.settings, 'sensor_frame': 'ft_wrist', 'gravity': wall})
    assert 'gravity_field: [9.81, 0, 0]' in applied(result, urdf)[0]
    leaning = replace(result, parameters=(*result.parameters, *(
        Parameter(name, 'rad', value, 1e-4) for name, value in zip(
            static_poses.TILT, (0.05, -0.02), strict=True))))
    text = applied(leaning, urdf)[0]
    found = yaml.safe_load(text.partition('params: ')[2].splitlines()[0])['tool']['gravity_field']
    np.testing.assert_allclose(found, on_leaning_base(
        Robot(arm_urdf(), gravity=wall), np.array([0.05, -0.02])).gravity, atol=1e-3)
    assert np.linalg.norm(found[1:]) > 0.4


def test_friction_and_rotors_go_into_a_mujoco_model(
    urdf: Path, applied: Applied, tmp_path: Path
) -> None:
    joints = Robot(arm_urdf()).joint_names
    nested = '<geom size="0.1" mass="1"/>'
    for name in reversed(joints):
        nested = (f'<body><joint name="{name}" axis="0 0 1" damping="9"/>'
                  f'<geom size="0.1" mass="1"/>{nested}</body>')
    model, out = tmp_path / 'arm.xml', tmp_path / 'new.xml'
    model.write_text(f'<mujoco><!-- mine --><worldbody>{nested}</worldbody></mujoco>')
    told, _ = applied(friction_result(), urdf, '--mjcf', model, out)
    assert 'friction of joint_6' in told
    read = mujoco.MjModel.from_xml_path(str(out))
    assert read.joint('joint_6').damping[0] == pytest.approx(0.6)
    assert read.joint('joint_6').frictionloss[0] == pytest.approx(0.7)
    assert read.joint('joint_1').damping[0] == 9.0
    assert '<!-- mine -->' in out.read_text()

    names = parameter_names(joints)
    known = Robot(arm_urdf())
    value = np.concatenate((link_parameters(known).ravel(), np.full(6, 0.3), np.ones(6)))
    unknown = {'joint_2.rotor_inertia': 'not distinguished from zero'}
    rotors = replace(
        friction_result(), kind='arm', covariance_names=(), covariance=np.zeros((0, 0)),
        parameters=tuple(Parameter(name, '1', float(x), 0.01, note=unknown.get(name, ''))
                         for name, x in zip(names, value, strict=True)))
    applied(rotors, urdf, '--mjcf', model, out)
    read = mujoco.MjModel.from_xml_path(str(out))
    assert read.joint('joint_1').armature[0] == pytest.approx(0.3)
    assert read.joint('joint_2').armature[0] == 0.0


@pytest.mark.parametrize(('result', 'text', 'words'), [
    (friction_result(), '<mujoco><worldbody/></mujoco>', "has no joint 'joint_"),
    (friction_result(), '<mujoco>', 'is not well-formed XML'),
    (friction_result(), '<!DOCTYPE a><mujoco/>', 'or has a DOCTYPE'),
    (payload_result(), '<mujoco/>', "no properties of MuJoCo's joints")])
def test_a_mujoco_model_that_does_not_fit(
    urdf: Path, applied: Applied, tmp_path: Path, result: CalibrationResult, text: str, words: str
) -> None:
    (tmp_path / 'arm.xml').write_text(text)
    told, _ = applied(result, urdf, '--mjcf', tmp_path / 'arm.xml', tmp_path / 'new.xml', code=2)
    assert words in told


def test_damping_that_is_not_identified_stays(urdf: Path, applied: Applied) -> None:
    made = friction_result()
    rows = [i for i, name in enumerate(made.covariance_names) if '.viscous' not in name]
    result = replace(
        made, covariance_names=tuple(made.covariance_names[i] for i in rows),
        covariance=made.covariance[np.ix_(rows, rows)], parameters=tuple(
            replace(p, value=None, std=None, state=State.NOT_IDENTIFIED) if '.viscous' in p.name
            else p for p in made.parameters))
    _, out = applied(made, urdf)
    urdf.write_text(out.read_text())
    _, out = applied(result, urdf)
    model = Robot(out.read_text()).model
    assert model.friction[5] == pytest.approx(0.7)
    assert model.damping[5] == pytest.approx(0.6)


def test_another_description_is_reported(urdf: Path, applied: Applied) -> None:
    text = urdf.read_text()
    result = known(payload_result(), text)
    for change, reported in ((('<robot', '<!-- changed --><robot'), False),
                             (('<mass value="', '<mass value="1'), True)):
        urdf.write_text(text.replace(*change, 1))
        assert ('differs from the one' in applied(result, urdf)[0]) is reported


@pytest.mark.parametrize(('result', 'arguments', 'words'), [
    (failed('Too wide.'), (), 'verdict .* is fail: Too wide.*--force'),
    (replace(payload_result(), kind='drive_gains'), (), "'drive_gains' cannot be written"),
    (replace(payload_result(), frame='hand'), (), "no link 'hand'"),
    (payload_result(), ('--frame', 'link_2'), 'not fixed to each other'),
    (payload_result(), ('--frame', 'nowhere'), "'nowhere' is not in the robot description"),
    (replace(friction_result('joint_6'), parameters=(Parameter('x', '1', 1.0),),
             covariance_names=(), covariance=payload_result().covariance[:0, :0]), (),
     'no joint with identified friction'),
    (friction_result(values=(0.7, 1.2, 0.04, -0.256)), ('--force',),
     "'joint_6' would be 0.7 and its damping -0.256"),
])
def test_what_cannot_be_applied(
    urdf: Path, applied: Applied, result: CalibrationResult, arguments: tuple[str, ...], words: str
) -> None:
    told, _ = applied(result, urdf, *arguments, code=2)
    assert re.search(words, told), told


def test_only_a_payload_is_sent_to_a_driver(urdf: Path, applied: Applied) -> None:
    told, _ = applied(friction_result(), urdf, '--send', code=2)
    assert "--send is for a payload; 'result.yaml' is a result of friction." in told.replace(
        f'{urdf.parent}/', '')


def test_force_applies_a_failed_one(urdf: Path, applied: Applied) -> None:
    applied(failed('Too wide.'), urdf, '--force')


def test_an_output_that_cannot_be_written(urdf: Path, call: Call, tmp_path: Path) -> None:
    file = tmp_path / 'result.yaml'
    write_result(payload_result(), file)
    command = ('apply', file, '--urdf', urdf, '--out')
    told = call(*command, file / 'x', code=2)
    assert f'The URDF could not be written to {file / "x"}' in told
    # A folder that does not exist is created, as for reports.
    call(*command, tmp_path / 'new' / 'x')
    assert (tmp_path / 'new' / 'x').exists()


TOOL = RigidBodyInertia(1.25, np.array([0.01, -0.02, 0.1]), np.diag([2e-3, 3e-3, 4e-3]))


def two_joint_arm() -> Robot:
    urdf = Path(__file__).parents[1] / 'data' / 'two_joint.urdf'
    return Robot(urdf.read_text(), tool_frame='lower')


class TestDriverValues:
    """Payload values for drivers, in the frame of their flange."""

    def test_a_body_is_the_same_in_every_frame_of_its_link(self) -> None:
        arm = two_joint_arm()
        there = in_frame(arm, TOOL, 'sensor', 'upper')
        for name in ('mass', 'com', 'inertia'):
            back = in_frame(arm, there, 'upper', 'sensor')
            assert getattr(back, name) == pytest.approx(getattr(TOOL, name), rel=1e-12)
        # The sensor sits 0.3 m along x, turned by 0.5 rad about y.
        c, s = np.cos(0.5), np.sin(0.5)
        x, y, z = TOOL.com
        assert there.com == pytest.approx([0.3 + c * x + s * z, y, -s * x + c * z])
        assert np.trace(there.inertia) == pytest.approx(np.trace(TOOL.inertia))

    def test_calls_hold_the_values(self) -> None:
        ur, new_ur, franka, xarm, kinova, kuka, doosan, current = (
            call for _, call in payload_calls(TOOL))
        assert all(call.startswith('ros2 service call /')
                   for call in (ur, new_ur, franka, xarm, doosan, current))
        assert not kinova.startswith('ros2')
        assert not kuka.startswith('ros2')
        centre = 'mass: 1.2500, center_of_gravity: {x: 0.01000, y: -0.02000, z: 0.10000}'
        assert f'{{{centre}, ixx: 0.002000, iyy: 0.003000, izz: 0.004000, ixy' in ur
        assert ('center_of_mass: [0.01000, -0.02000, 0.10000], load_inertia: [0.002000, 0.000000'
                in franka)
        assert ('payload: {m: 1.2500, com: {x: 0.01000, y: -0.02000, z: 0.10000}, ixx: 0.002000, '
                'ixy') in new_ur
        assert 'weight: 1.2500, center_of_gravity: [10.00, -20.00, 100.00]' in xarm
        point = RigidBodyInertia(TOOL.mass, TOOL.com, np.zeros((3, 3)))
        ur, new_ur, *_ = (call for _, call in payload_calls(point))
        assert ur.endswith(f'"{{{centre}}}"')
        assert new_ur.endswith('z: 0.10000}}}"')


# Its principal axes are turned against the flange, and its moments are in no order.
TURNED = RigidBodyInertia(2.8, np.array([0.012, -0.034, 0.105]), np.array(
    pin.rpy.rpyToMatrix(*np.radians([5.0, -20.0, 30.0]))
    @ np.diag([4e-3, 1.5e-3, 3e-3])
    @ pin.rpy.rpyToMatrix(*np.radians([5.0, -20.0, 30.0])).T))


def of_driver(name: str, payload: RigidBodyInertia = TURNED) -> list[str]:
    return [call for label, call in payload_calls(payload) if label.partition(',')[0] == name]


class TestDocumentedFormats:
    """What makers document that their controllers take, read back."""

    @staticmethod
    def request(call: str, service: str) -> dict:
        *command, name, kind, request = shlex.split(call)
        assert command == ['ros2', 'service', 'call']
        assert (name, kind) == tuple(service.split())
        return yaml.safe_load(request)

    def test_kinova(self) -> None:
        """Kortex API, ControlConfig, ToolConfiguration: kg, and m in the interface module's frame.

        Source: api_python/doc/markdown/messages/ControlConfig/ToolConfiguration.md and
        Position.md of github.com/Kinovarobotics/kortex.
        """
        (text,) = of_driver('Kinova')
        assert yaml.safe_load(text) == {
            'tool_mass': 2.8, 'tool_mass_center': {'x': 0.012, 'y': -0.034, 'z': 0.105}}

    @pytest.mark.parametrize('body', [TURNED, TOOL])
    def test_kuka(self, body: RigidBodyInertia) -> None:
        """Mass [kg], centre [mm] and principal axes [°] in the flange frame, moments [kg·m²].

        Sources: A, B, C about z, y', x'' and units by KUKA's assembly instructions (KR IONTEC,
        load centre of gravity and mass moment of inertia); relative to the flange by
        KRC_WriteLoadData of KUKA.PLC mxAutomation, infosys.beckhoff.com TF5120; layout of the
        KRL structure LOAD as in LOAD_DATA of a controller's $config.dat.
        """
        (text,) = of_driver('KUKA', body)
        number = r'(-?\d+\.\d+)'
        match = re.fullmatch(
            rf'{{M {number},CM {{X {number},Y {number},Z {number},A {number},B {number},'
            rf'C {number}}},J {{X {number},Y {number},Z {number}}}}}', text)
        assert match is not None
        mass, x, y, z, *angles, jx, jy, jz = map(float, match.groups())
        assert mass == pytest.approx(body.mass)
        assert [x, y, z] == pytest.approx(1e3 * body.com)
        turns = [pin.AngleAxis(np.radians(angle), axis).toRotationMatrix()
                 for angle, axis in zip(angles, np.eye(3)[::-1], strict=True)]
        axes = turns[0] @ turns[1] @ turns[2]
        np.testing.assert_allclose(axes @ np.diag([jx, jy, jz]) @ axes.T, body.inertia, atol=1e-6)
        # The axes nearest to those of the flange, for whom compares them with a drawing.
        assert (np.diag(axes) > 0.8).all()
        assert ('A 0.000,B 0.000,C 0.000' in text) == (body is TOOL)

    def test_doosan(self) -> None:
        """Name, weight [kg], cog [mm] from the flange, inertia left at zero; then it is chosen.

        Sources: dsr_msgs2/srv/tool of github.com/DoosanRobotics/doosan-robot2, whose service
        passes them to add_tool of the Doosan API, which documents kg and mm; reference and
        inertia by the controller's command definitions (CommandDefine.org of the same
        repository); namespace dsr01 by its README.
        """
        create, choose = of_driver('Doosan')
        request = self.request(
            create, '/dsr01/tool/config_create_tool dsr_msgs2/srv/ConfigCreateTool')
        assert request == {'name': request['name'], 'weight': 2.8, 'cog': [12.0, -34.0, 105.0]}
        assert self.request(
            choose, '/dsr01/tool/set_current_tool dsr_msgs2/srv/SetCurrentTool') == {
                'name': request['name']}

    def test_franka_desk(self, tmp_path: Path, applied: Applied) -> None:
        """Mass, centre of mass, 16 and 9 numbers column by column, relative to the flange.

        Sources: endeffector-config.json in "End effector commissioning",
        download.franka.de/ride-cli-doc-v1.1.1, and the file of that name with these four keys in
        github.com/frankaemika/external_gripper_example, which Desk reads.
        """
        path, desk = tmp_path / 'panda.urdf', tmp_path / 'desk' / 'endeffector-config.json'
        path.write_text(arm('panda').urdf)
        known = Robot(path.read_text(), tool_frame='panda_link8')
        plain = payload_result()
        result = replace(plain, frame='panda_link8',
                         robot=replace(plain.robot, joint_names=tuple(known.joint_names)))
        told, _ = applied(result, path, '--desk', desk)
        assert 'end effector for Franka Desk' in told
        content, (total, _) = json.loads(desk.read_text()), driver_load(
            result, path.read_text(), 'panda_link8')
        assert set(content) == {'mass', 'centerOfMass', 'transformation', 'inertia'}
        assert content['mass'] == pytest.approx(total.mass, abs=1e-4)
        np.testing.assert_allclose(content['centerOfMass'], total.com, atol=1e-5)
        np.testing.assert_array_equal(
            np.reshape(content['transformation'], (4, 4), order='F'), np.eye(4))
        turned = json.loads(desk_settings(TURNED))['inertia']
        np.testing.assert_allclose(
            np.reshape(turned, (3, 3), order='F'), TURNED.inertia, atol=1e-6)

    @pytest.mark.parametrize(('result', 'words'), [
        (payload_result(), 'Only Franka arms have an end effector of Franka Desk'),
        (friction_result(), "'payload'")])
    def test_what_franka_desk_does_not_take(
        self, urdf: Path, applied: Applied, tmp_path: Path, result: CalibrationResult, words: str
    ) -> None:
        told, _ = applied(result, urdf, '--desk', tmp_path / 'desk.json', code=2)
        assert words in told
        assert not (tmp_path / 'desk.json').exists()


def test_the_total_payload_is_printed_beside_the_extra_one(urdf: Path, applied: Applied) -> None:
    """The driver needs all that its flange carries, also what the URDF has already."""
    gripper = ('<link name="gripper"><inertial><mass value="1.0"/><origin xyz="0 0 0.05"/>'
               '<inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>'
               '</link><joint name="mount" type="fixed"><parent link="tool0"/>'
               '<child link="gripper"/></joint></robot>')
    bare = Robot(urdf.read_text()).distal_inertia('flange').mass
    urdf.write_text(urdf.read_text().replace('</robot>', gripper))
    said, _ = applied(payload_result(), urdf)
    assert f'{1.0 + bare:.4f} kg distal to' in said
    assert f'The total is {3.0 + bare:.4f} kg' in said
    assert f'mass: {3.0 + bare:.4f}' in said


def known(result: CalibrationResult, urdf: str) -> CalibrationResult:
    """Return a result with what it states of the URDF that it was identified with."""
    robot = Robot(urdf, tool_frame=result.frame)
    return replace(
        result, robot=robot.identity,
        settings={'urdf_payload_mass': robot.distal_inertia(result.frame).mass})


class TestEarlierPayload:
    """A URDF that has the payload link of an earlier call."""

    @pytest.fixture
    def loaded(self, urdf: Path, applied: Applied) -> Path:
        """Return the URDF with a payload of 2 kg."""
        _, out = applied(payload_result(), urdf)
        return out.rename(urdf.with_name('loaded.urdf'))

    @pytest.mark.parametrize('stated', [True, False])
    def test_the_same_payload_measured_anew_replaces_it(
        self, urdf: Path, loaded: Path, stated: bool, applied: Applied
    ) -> None:
        anew = payload_result(mass=2.1)
        bare = Robot(urdf.read_text()).distal_inertia('flange').mass
        said, out = applied(known(anew, urdf.read_text()) if stated else anew, loaded)
        assert Robot(out.read_text()).distal_inertia('flange').mass == pytest.approx(bare + 2.1)
        assert "It replaces the URDF's link 'robocal_payload'" in said
        assert f'mass: {bare + 2.1:.4f}' in said

    def test_what_is_carried_beside_it_is_added(self, loaded: Path, applied: Applied) -> None:
        beside = known(payload_result(mass=0.5, com=(0.0, 0.0, 0.2)), loaded.read_text())
        before = Robot(loaded.read_text()).distal_inertia('flange')
        for _ in range(2):
            said, out = applied(beside, loaded)
            after = Robot(out.read_text()).distal_inertia('flange')
            assert after.mass == pytest.approx(before.mass + 0.5)
            assert after.mass * after.com == pytest.approx(
                before.mass * before.com + [0.0, 0.0, 0.1])
            assert 'in addition to the 2.0000 kg' in said
            assert 'both: 2.5000 kg' in said
            assert f'mass: {before.mass + 0.5:.4f}' in said

    def test_a_payload_of_neither_urdf_is_refused(self, loaded: Path, applied: Applied) -> None:
        result = replace(payload_result(), settings={'urdf_payload_mass': 0.7})
        result = replace(result, robot=replace(result.robot, urdf_sha256='0' * 64))
        told, _ = applied(result, loaded, code=2)
        assert 'was identified with a URDF that has 0.7000 kg there' in told

    @pytest.mark.parametrize('mounted', [False, True])
    def test_an_arm_keeps_a_payload_that_it_was_identified_without(
        self, urdf: Path, loaded: Path, mounted: bool, applied: Applied
    ) -> None:
        with_which = Robot((loaded if mounted else urdf).read_text(), tool_frame='flange')
        names = parameter_names(with_which.joint_names)
        links = link_parameters(with_which).ravel()
        values = np.concatenate((links, np.zeros(6), np.ones(6)))
        identified = known(replace(
            payload_result(), kind='arm', parameters=tuple(
                Parameter(name, '1', float(value))
                for name, value in zip(names, values, strict=True)),
            covariance_names=(), covariance=np.zeros((0, 0))), with_which.urdf)
        identified = replace(identified, frame='', settings={
            **identified.settings, 'tool_frame': 'flange'})
        _, out = applied(identified, loaded)
        merged, expected = Robot(out.read_text()), Robot(loaded.read_text())
        assert link_parameters(merged) == pytest.approx(link_parameters(expected), abs=1e-9)


UR_PARTS = {'shoulder': 'shoulder_pan', 'upper_arm': 'shoulder_lift', 'forearm': 'elbow',
            'wrist_1': 'wrist_1', 'wrist_2': 'wrist_2', 'wrist_3': 'wrist_3'}


def geometry_result(robot: Robot) -> CalibrationResult:
    """Return a result whose elbow is a millimetre further along x and turned about z."""
    moved = {'elbow_joint.x': 0.001, 'elbow_joint.rz': 0.002}
    return replace(
        payload_result(), kind='geometry', method='geometry', robot=robot.identity, frame='',
        parameters=tuple(
            Parameter(name, unit, moved.get(name, 0.0), 1e-5)
            for joint in robot.joint_names for axis, unit in zip(
                ('x', 'y', 'z', 'rx', 'ry', 'rz'), 3 * ('m',) + 3 * ('rad',), strict=True)
            for name in [f'{joint}.{axis}']),
        covariance_names=(), covariance=np.zeros((0, 0)))


@pytest.mark.parametrize('checksum', ['', 'calib_1234'])
def test_the_geometry_of_a_ur_arm_goes_into_the_file_of_its_driver(
    tmp_path: Path, applied: Applied, checksum: str
) -> None:
    """The file gives the frames that ur_description builds its joints from."""
    ur5, urdf = arm('ur5'), tmp_path / 'arm.urdf'
    control = ('<ros2_control name="ur"><hardware><param name="kinematics/hash">'
               f'{checksum}</param></hardware></ros2_control></robot>')
    urdf.write_text(ur5.urdf.replace('</robot>', control if checksum else '</robot>'))
    out = tmp_path / 'kinematics.yaml'
    told, calibrated = applied(geometry_result(ur5.robot()), urdf, '--ur-kinematics', out)
    found = yaml.safe_load(out.read_text())['kinematics']
    assert found.pop('hash') == checksum
    assert ('the calibration does not match' in told) == (not checksum)
    robot = Robot(calibrated.read_text(), tool_frame=ur5.tool)
    assert list(found) == list(UR_PARTS)
    for part, joint in UR_PARTS.items():
        placement = robot.model.jointPlacements[robot.model.getJointId(f'{joint}_joint')]
        numbers = found[part]
        np.testing.assert_allclose(
            [numbers[axis] for axis in ('x', 'y', 'z')], placement.translation, atol=1e-12)
        np.testing.assert_allclose(pin.rpy.rpyToMatrix(
            *(numbers[angle] for angle in ('roll', 'pitch', 'yaw'))), placement.rotation,
            atol=1e-12)
    bare = Robot(ur5.urdf, tool_frame=ur5.tool).model
    elbow = bare.getJointId('elbow_joint')
    assert found['forearm']['x'] != pytest.approx(
        bare.jointPlacements[elbow].translation[0], abs=1e-6)


def test_only_the_geometry_of_a_ur_arm_has_such_a_file(
    urdf: Path, tmp_path: Path, applied: Applied
) -> None:
    out = tmp_path / 'kinematics.yaml'
    for result, words in ((geometry_result(Robot(urdf.read_text())), 'Only UR arms'),
                          (payload_result(), 'geometry')):
        assert words in applied(result, urdf, '--ur-kinematics', out, code=2)[0]
        assert not out.exists()


FILE, URDF = Path('payload.yaml'), Path('cell/arm.urdf')
UR_JOINTS = ('shoulder_pan_joint', 'shoulder_lift_joint', 'elbow_joint', 'wrist_1_joint',
             'wrist_2_joint', 'wrist_3_joint')


def commands(result: CalibrationResult, **arguments) -> list[str]:
    steps = next_steps(result, arguments.pop('path', FILE), **arguments)
    return [command for step in steps for _, command in step.commands]


def of(joints: tuple[str, ...], frame: str) -> CalibrationResult:
    return replace(payload_result(), frame=frame, robot=replace(identity(), joint_names=joints))


def test_an_unknown_driver_gets_all_calls_and_the_frame_to_check() -> None:
    driver, _ = next_steps(payload_result(), FILE)
    assert [label for label, _ in driver.commands] == [
        'Universal Robots', 'Universal Robots, drivers from 2026 on', 'Franka', 'UFACTORY',
        'Kinova, SetToolConfiguration of the Kortex API, with the tool_transform of '
        'GetToolConfiguration [kg, m]', 'KUKA, load data of the tool [kg, mm, °, kg·m²]', 'Doosan',
        'Doosan, then']
    assert "'flange' if that is the driver's flange" in driver.text
    assert 'needs the sum' in driver.text


def test_a_known_driver_gets_its_own_call() -> None:
    driver, _ = next_steps(of(UR_JOINTS, 'tool0'), FILE)
    assert {label.partition(',')[0] for label, _ in driver.commands} == {'Universal Robots'}
    kuka, _ = next_steps(of(tuple(f'lbr_A{i}' for i in range(1, 8)), 'lbr_link_ee'), FILE)
    ((label, load),) = kuka.commands
    assert label == 'KUKA, load data of the tool [kg, mm, °, kg·m²]'
    assert load.startswith('{M 2.0000,CM {X ')
    assert "in frame 'lbr_link_ee'. " in kuka.text


def test_values_in_another_frame_than_the_known_drivers_are_not_shown() -> None:
    driver, _ = next_steps(of(UR_JOINTS, 'gripper'), FILE)
    assert not driver.commands
    assert "It needs the values in 'tool0', and these are in 'gripper'" in driver.text


def test_a_known_driver_gets_the_values_in_its_own_frame() -> None:
    ur5 = arm('ur5')
    result = of(UR_JOINTS, 'wrist_3_link')
    driver, _ = next_steps(result, FILE, urdf=(URDF, ur5.urdf))
    total, _ = driver_load(result, ur5.urdf, 'tool0')
    assert "in frame 'tool0'. The URDF has no further mass" in driver.text
    assert driver.commands[0] == payload_calls(total)[0]
    assert not np.allclose(total.com, result.values(('com_x', 'com_y', 'com_z')))


def test_what_the_urdf_has_at_the_flange_is_part_of_the_drivers_load() -> None:
    gripper = with_payload(arm_urdf(), RigidBodyInertia(
        0.5, np.zeros(3), 1e-4 * np.eye(3)), 'flange').replace('robocal_payload', 'gripper')
    driver, _ = next_steps(payload_result(), FILE, urdf=(URDF, gripper))
    assert 'It includes 0.5 kg that the URDF has there.' in driver.text
    assert 'mass: 2.5000' in driver.commands[0][1]


def test_with_the_description_the_driver_gets_the_total_and_the_urdf_its_changes() -> None:
    urdf = arm_urdf()
    driver, apply = next_steps(payload_result(), FILE, urdf=(URDF, urdf))
    total, _ = driver_load(payload_result(), urdf, 'flange')
    assert payload_calls(total)[0] in driver.commands
    assert 'no further mass' in driver.text
    assert '+  <link name="robocal_payload">' in apply.changes
    # Only what changes: no line of the original is replaced by its own layout.
    assert not re.search(r'^-(?!--)', apply.changes, re.M)
    assert 'differs' not in apply.text
    other_arm = urdf.replace('<mass value="', '<mass value="1', 1)
    _, other = next_steps(payload_result(), FILE, urdf=(URDF, other_arm))
    assert 'This URDF differs' in other.text


@pytest.mark.parametrize('urdf', [None, (URDF, arm_urdf())])
def test_friction_goes_into_the_urdf(urdf) -> None:
    (step,) = next_steps(friction_result(), Path('my results/friction.yaml'), urdf=urdf)
    ((_, command),) = step.commands
    options = build_parser().parse_args(shlex.split(command)[1:])
    assert options.file == 'my results/friction.yaml'
    assert ('<dynamics' in step.changes) == (urdf is not None)


def test_values_that_do_not_fit_the_urdf_are_a_sentence() -> None:
    steps = next_steps(replace(payload_result(), frame='hand'), FILE, urdf=(URDF, arm_urdf()))
    assert [re.search("no link 'hand'|'hand' is not in", step.text) is not None
            for step in steps] == [True, True]
    assert not any(step.commands for step in steps)


def test_a_stale_result_is_not_applied() -> None:
    stale = replace(friction_result(), source='bag; rm -rf /', inputs=(Input('arm', 'x', 'a'),))
    assert commands(stale, stale=True) == [
        "robocal estimate friction 'bag; rm -rf /'", 'robocal run friction']


def test_a_stale_input_is_renewed_first(tmp_path: Path) -> None:
    (tmp_path / 'history').mkdir()
    result = replace(failed('The drive gains result is stale. Do it again.'), inputs=(
        Input('drive_gains', 'known_mass, bare_bag', 'a'), Input('arm', 'unloaded, live', 'b')))
    assert commands(result, path=tmp_path / 'payload.failed.yaml') == [
        f'robocal estimate drive_gains bare_bag --results-dir {tmp_path}',
        'robocal run drive_gains', 'robocal run payload']


def test_an_arm_of_before_the_drive_gains_is_identified_again() -> None:
    gains = replace(friction_result(), kind='drive_gains')
    assert commands(gains) == ['robocal run payload']
    first = replace(gains, inputs=(Input('arm', 'none', ''),))
    assert commands(first) == ['robocal run payload']
    after = replace(gains, inputs=(Input('arm', 'unloaded, bare_bag', 'a'),))
    assert commands(after) == [
        'robocal estimate arm bare_bag', 'robocal run arm', 'robocal run payload']
    assert 'no longer used: identify it again' in gains_summary(after)
    assert 'arm' not in gains_summary(first)


def test_what_prevents_a_pass_comes_with_its_command() -> None:
    assert commands(failed('2 N·m RMS of torque are not explained (limit 1 N·m).')) == [
        'robocal run friction', 'robocal run payload']
    (first, again) = next_steps(failed('It is odd.'), FILE)
    assert 'troubleshooting' in first.text
    assert again.commands == (('on the robot', 'robocal run payload'),)
    open_ = replace(payload_result(), checks=(Check(
        'x', True, 0.0, 1.0, '1', "Nothing shows that the arm's own model holds.",
        evaluated=False),))
    assert 'robocal calibrate --for gravity' in commands(open_)


@pytest.mark.parametrize(('pattern', 'command'), [(item[0], item[2]) for item in REMEDIES])
def test_remedies_are_those_of_the_documentation(pattern: str, command: str) -> None:
    root = Path(__file__).parents[2]
    page = (root / 'docs' / 'troubleshooting.md').read_text(encoding='utf-8')
    assert command in page
    sources = ''.join(
        re.sub(r"""['"]\s*\n\s*f?['"]""", '', path.read_text(encoding='utf-8'))
        for path in (root / 'robocal_ros').rglob('*.py')
        if path.parts[-2:] != ('cli', 'report.py'))
    told = re.sub(r'\{[^{}]*\}', 'x', sources)
    for part in pattern.split('|'):
        assert re.search(part, told), part
