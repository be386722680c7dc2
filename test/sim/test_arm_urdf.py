# SPDX-License-Identifier: Apache-2.0
"""Description of the default arm: complete, physical, and mostly free of self-collision."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pinocchio as pin
import pytest
import xacro
import yaml
from rclpy.parameter import Parameter
from support.arms import PROJECT_ARM, ROOT

from robocal_sim.node import PARAMETERS

LINKS = [
    'base_link', *(f'link_{number}' for number in range(1, 7)), 'flange', 'tool0',
    'ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
    'ft_wrist', 'imu_link_2', 'imu_link_3', 'imu_flange',
]


def process(**arguments: str) -> str:
    return xacro.process_file(str(PROJECT_ARM), mappings=arguments).toxml()


@pytest.fixture(scope='module')
def model(arm_urdf: str) -> pin.Model:
    return pin.buildModelFromXML(arm_urdf)


def test_links_and_joints(arm_urdf: str, model: pin.Model) -> None:
    root = ElementTree.fromstring(arm_urdf)
    assert set(LINKS) <= {link.get('name') for link in root.iter('link')}
    assert list(model.names)[1:] == [f'joint_{number}' for number in range(1, 7)]
    assert not list(root.iter('mesh'))


@pytest.mark.parametrize(('hardware', 'plugin'), [
    ('sim', None), ('real', None),
    ('mock', 'mock_components/GenericSystem'), ('gazebo', 'gz_ros2_control/GazeboSimSystem'),
])
def test_hardware_argument_selects_the_control_block(hardware: str, plugin: str | None) -> None:
    root = ElementTree.fromstring(process(hardware=hardware, mock_effort='true'))
    blocks = root.findall('ros2_control')
    assert len(blocks) == (plugin is not None)
    for block in blocks:
        assert block.findtext('hardware/plugin') == plugin
        joints = block.findall('joint')
        assert len(joints) == 6
        for joint in joints:
            commands = [item.get('name') for item in joint.findall('command_interface')]
            states = [item.get('name') for item in joint.findall('state_interface')]
            assert commands == ['position']
            assert states == ['position', 'velocity', 'effort']


def test_prefix_applies_to_every_link_and_joint() -> None:
    root = ElementTree.fromstring(process(prefix='left_', hardware='mock'))
    for element in (*root.iter('link'), *root.iter('joint')):
        assert element.get('name', '').startswith('left_')


def test_mount_argument_rotates_the_base() -> None:
    model = pin.buildModelFromXML(process(mount_rpy='3.141592653589793 0 0'))
    base = model.frames[model.getFrameId('base_link')]
    assert base.placement.rotation == pytest.approx(np.diag([1.0, -1.0, -1.0]), abs=1e-12)


def test_size_and_zero_posture(model: pin.Model) -> None:
    data = model.createData()
    pin.framesForwardKinematics(model, data, pin.neutral(model))
    for name in ('link_2', 'link_3', 'link_6'):
        assert data.oMf[model.getFrameId(name)].rotation == pytest.approx(np.eye(3), abs=1e-12)
    tool = data.oMf[model.getFrameId('tool0')]
    assert tool.rotation[:, 2] == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)
    shoulder = data.oMi[2].translation
    stretched = pin.neutral(model)
    stretched[2] = -np.pi / 2
    pin.framesForwardKinematics(model, data, stretched)
    reach = np.linalg.norm((data.oMf[model.getFrameId('tool0')].translation - shoulder)[[0, 2]])
    assert reach == pytest.approx(1.05, abs=0.01)
    base = 10.0
    assert 40.0 < pin.computeTotalMass(model) + base < 50.0


def test_inertias_are_physical(model: pin.Model) -> None:
    for inertia in list(model.inertias)[1:]:
        moments = np.linalg.eigvalsh(inertia.inertia)
        assert inertia.mass > 0.3
        assert moments[0] > 0.0
        assert moments[0] + moments[1] > moments[2]


def test_drives_hold_ten_kilograms_in_any_posture(model: pin.Model) -> None:
    loaded = model.copy()
    frame = loaded.frames[loaded.getFrameId('tool0')]
    load = pin.Inertia(10.0, np.array([0.0, 0.0, 0.05]), 0.02 * np.eye(3))
    loaded.appendBodyToJoint(frame.parentJoint, load, frame.placement)
    data = loaded.createData()
    rng = np.random.default_rng(0)
    worst = np.zeros(6)
    for _ in range(2000):
        q = rng.uniform(loaded.lowerPositionLimit, loaded.upperPositionLimit)
        worst = np.maximum(worst, np.abs(pin.computeGeneralizedGravity(loaded, data, q)))
    assert (worst < 0.7 * loaded.upperEffortLimit).all()


def test_collision_shapes_leave_most_of_the_workspace_free(
    arm_urdf: str, model: pin.Model, tmp_path: Path
) -> None:
    path = tmp_path / 'arm.urdf'
    path.write_text(arm_urdf, encoding='utf-8')
    geometry = pin.buildGeomFromUrdf(model, str(path), pin.COLLISION)
    for first, a in enumerate(geometry.geometryObjects):
        for second, b in enumerate(geometry.geometryObjects):
            distant = model.parents[b.parentJoint] != a.parentJoint
            if first < second and a.parentJoint != b.parentJoint and distant:
                geometry.addCollisionPair(pin.CollisionPair(first, second))
    data, state = model.createData(), geometry.createData()

    def collides(q: np.ndarray) -> bool:
        return bool(pin.computeCollisions(model, data, geometry, state, q, True))

    assert not collides(np.zeros(6))
    assert not collides(np.array([0.5, 0.3, 0.6, 0.0, 0.8, 1.0]))
    # Folded with the hand through the turret.
    assert collides(np.array([0.0, 0.0, np.radians(100.0), 0.0, 0.0, 0.0]))
    rng = np.random.default_rng(1)
    lower, upper = model.lowerPositionLimit, model.upperPositionLimit
    hits = sum(collides(rng.uniform(lower, upper)) for _ in range(500))
    assert hits / 500 < 0.25


def test_parameter_file_lists_every_parameter_with_its_default() -> None:
    text = (ROOT / 'config' / 'sim' / 'sim_arm.yaml').read_text(encoding='utf-8')
    values = yaml.safe_load(text)['/**/sim_arm']['ros__parameters']
    for parameter in PARAMETERS:
        if isinstance(parameter.default, Parameter.Type):
            assert f'# {parameter.name}:' in text
            continue
        value = values
        for part in parameter.name.split('.'):
            value = value[part]
        assert value == parameter.default
        assert type(value) is type(parameter.default)
