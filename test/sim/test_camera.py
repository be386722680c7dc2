# SPDX-License-Identifier: Apache-2.0
"""The camera of the simulated arm, against a projection of its own and Pinocchio's kinematics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import yaml
from scipy.spatial.transform import Rotation
from std_srvs.srv import Trigger
from support.sim_rig import Rig

from robocal_ros.errors import ConfigurationError, DataError
from robocal_sim.model import Description
from robocal_sim.sensors import CameraSensor
from robocal_sim.simulator import ArmSimulator
from robocal_sim.truth import (
    BoardTruth,
    CameraTruth,
    Cell,
    HiddenTruth,
    JointNoise,
    JointTruth,
    parse_truth,
)

LENS = (-0.21, 0.08, 1.2e-3, -0.8e-3, -0.011)
BOARD = BoardTruth(4, 6, 0.03, 'tool0', (0.01, -0.02, 0.05), (0.1, -0.2, 0.4))
CAMERA = CameraTruth(610.0, 605.0, 322.0, 238.0, 640, 480, BOARD, LENS, link='base_link',
                     xyz=(1.26, -0.02, 0.36), rpy=(-1.09, 0.43, 1.58))
START = np.array([0.1, 0.5, 0.2, 0.3, -0.4, 0.2])
HERE = np.eye(3), np.zeros(3)


def pixel(point: np.ndarray, camera: CameraTruth) -> tuple[float, float]:
    """Return the pixel of a point in the camera's frame: CameraInfo's `plumb_bob`, by hand."""
    k1, k2, p1, p2, k3 = camera.distortion
    a, b = point[0] / point[2], point[1] / point[2]
    r2 = a * a + b * b
    factor = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
    return (camera.fx * (a * factor + 2 * p1 * a * b + p2 * (r2 + 2 * a * a)) + camera.cx,
            camera.fy * (b * factor + p1 * (r2 + 2 * b * b) + 2 * p2 * a * b) + camera.cy)


def placed(xyz: tuple[float, ...], rpy: tuple[float, ...]) -> pin.SE3:
    return pin.SE3(Rotation.from_euler('xyz', rpy).as_matrix(), np.array(xyz))


def facing(distance: float = 0.5, **changes: object) -> CameraTruth:
    """Return a camera in the root frame whose view is centred on a board that faces it."""
    board = BoardTruth(4, 6, 0.03, '', (-0.075, 0.045, distance), (np.pi, 0.0, 0.0))
    return replace(CAMERA, **{'board': board, 'xyz': (0.0,) * 3, 'rpy': (0.0,) * 3, **changes})


def seen(camera: CameraTruth, seed: int = 0) -> np.ndarray:
    return CameraSensor(camera, np.random.default_rng(seed)).measure(HERE, HERE)


@pytest.mark.parametrize('on_tool', [False, True])
def test_pixels_are_those_of_the_deflected_and_displaced_arm(
    arm: Description, arm_urdf: str, on_tool: bool
) -> None:
    moved = np.random.default_rng(2).uniform(-1.0, 1.0, (6, 6)) * np.repeat((0.01, 0.02), 3)
    joints = {name: JointTruth(compliance=3e-5, frame=tuple(row))
              for name, row in zip(arm.joints, moved, strict=True)}
    model = pin.buildModelFromXML(arm_urdf)
    for index, row in enumerate(moved, start=1):
        model.jointPlacements[index] *= pin.SE3(pin.exp3(row[3:]), row[:3])
    data = model.createData()
    # The links from the encoders, by the torques that deflect the joints.
    links = START
    for _ in range(8):
        links = START - 3e-5 * pin.computeGeneralizedGravity(model, data, links)
    pin.framesForwardKinematics(model, data, links)
    tool = data.oMf[model.getFrameId('tool0')]
    camera = CAMERA
    if on_tool:
        wrist = placed((0.03, 0.01, 0.04), (0.05, 0.1, -0.2))
        beside = tool * wrist * placed((-0.08, 0.05, 0.6), (3.0, 0.1, 0.2))
        rpy = Rotation.from_matrix(beside.rotation).as_euler('xyz')
        camera = replace(CAMERA, link='tool0', xyz=(0.03, 0.01, 0.04), rpy=(0.05, 0.1, -0.2),
                         board=replace(BOARD, link='', xyz=tuple(beside.translation),
                                       rpy=tuple(rpy)))
    board = camera.board
    eye = placed(camera.xyz, camera.rpy)
    plane = placed(board.xyz, board.rpy)
    relative = ((tool * eye).actInv(plane) if on_tool else eye.actInv(tool * plane))
    simulator = ArmSimulator(arm, HiddenTruth(camera=camera, joints=joints), start=START)
    rows = simulator.photograph()
    assert rows.shape == (24, 6 + 5)
    np.testing.assert_allclose(rows[:, :6], np.tile(START, (24, 1)))
    for number, row in enumerate(rows):
        corner = 0.03 * np.array([number % 6, number // 6, 0.0])
        np.testing.assert_allclose(row[6:9], corner, atol=1e-12)
        assert row[9:] == pytest.approx(pixel(relative.act(corner), camera), abs=1e-3)
    # Distortion and sag are seen.
    flat = ArmSimulator(arm, HiddenTruth(camera=replace(camera, distortion=(0.0,) * 5),
                                         joints=joints), start=START).photograph()
    assert np.abs(flat[:, 9:] - rows[:, 9:]).max() > 0.3
    stiff = {name: replace(joint, compliance=0.0) for name, joint in joints.items()}
    firm = ArmSimulator(arm, HiddenTruth(camera=camera, joints=stiff), start=START).photograph()
    assert np.abs(firm[:, 9:] - rows[:, 9:]).max() > 0.1


def test_corners_have_the_given_noise_and_angles_the_steps_of_the_encoders(
    arm: Description
) -> None:
    exact = seen(facing())
    sensor = CameraSensor(facing(corner_sigma=0.2), np.random.default_rng(1))
    off = np.array([sensor.measure(HERE, HERE)[:, 3:] - exact[:, 3:] for _ in range(200)])
    assert off.std(axis=(0, 1)) == pytest.approx([0.2, 0.2], rel=0.05)
    noise = Cell(JointNoise(position_quantisation=0.07))
    rows = ArmSimulator(arm, HiddenTruth(camera=facing()), noise, start=START).photograph()
    np.testing.assert_allclose(rows[0, :6], np.round(START / 0.07) * 0.07)


def test_corners_outside_the_image_are_left_out() -> None:
    whole = seen(facing())
    assert len(whole) == 24
    cut = seen(facing(width=int(np.median(whole[:, 3])) + 1))
    assert 0 < len(cut) < 24
    assert cut[:, 3].max() <= np.median(whole[:, 3])
    np.testing.assert_array_equal(cut, [row for row in whole if row[:2].tolist() in
                                        cut[:, :2].tolist()])


@pytest.mark.parametrize(('camera', 'words'), [
    (facing(-0.5), '24 are behind it'),
    (facing(rpy=(0.0, 0.9, 0.0)), '24 are outside the image'),
    (facing(board=replace(facing().board, rpy=(0.0, 0.0, 0.0))), '24 are seen from behind'),
    (facing(board=replace(facing().board, rpy=(np.pi - 1.3, 0.0, 0.0))), 'too obliquely'),
])
def test_a_photograph_without_corners_is_refused_with_the_reason(
    camera: CameraTruth, words: str
) -> None:
    with pytest.raises(DataError, match=rf'none of the 24 .*{words}.*Move the arm'):
        seen(camera)


def test_distortion_does_not_fold_what_is_beside_the_view_into_the_image() -> None:
    camera = facing(0.5, distortion=(-0.3, 0.0, 0.0, 0.0, 0.0), rpy=(0.0, 0.98, 0.0),
                    board=replace(facing().board, visibility_angle=1.5))
    beside = placed(camera.xyz, camera.rpy).actInv(np.array([0.0, 0.0, 0.5]))
    folded = pixel(beside, camera)
    assert 0.0 < folded[0] < 640.0
    assert 0.0 < folded[1] < 480.0
    with pytest.raises(DataError, match='outside the image'):
        seen(camera)


def test_an_arm_without_a_camera_has_none(arm: Description, truth: HiddenTruth) -> None:
    assert HiddenTruth().camera is truth.camera is None
    with pytest.raises(ConfigurationError, match='no camera'):
        ArmSimulator(arm, truth).photograph()


def test_the_camera_leaves_the_noise_of_other_sensors_as_it_is(
    arm: Description, truth: HiddenTruth, cell: Cell
) -> None:
    one, other = (ArmSimulator(arm, replace(truth, camera=camera), cell, seed=3)
                  for camera in (None, facing(corner_sigma=0.1)))
    other.photograph()
    for _ in range(20):
        for first, second in zip(one.step().wrenches, other.step().wrenches, strict=True):
            np.testing.assert_array_equal(first.values, second.values)


def test_values_and_links_of_the_camera_are_checked(arm: Description) -> None:
    left = HiddenTruth(camera=CAMERA).prefixed('left_')
    assert (left.camera.link, left.camera.board.link) == ('left_base_link', 'left_tool0')
    with pytest.raises(ConfigurationError, match=r'left_base_link.*left_tool0'):
        ArmSimulator(arm, left)
    content = {'camera': yaml.safe_load(yaml.safe_dump(plain(CAMERA)))}
    assert parse_truth(content).camera == CAMERA
    content['camera']['board']['rows'] = 2.5
    with pytest.raises(ConfigurationError, match='camera: board: rows: expected a whole number'):
        parse_truth(content)


def plain(camera: CameraTruth) -> dict[str, object]:
    """Return a camera as a YAML file has it."""
    def listed(value: object) -> object:
        if isinstance(value, dict):
            return {key: listed(item) for key, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return listed(asdict(camera))


# -------------------------------------------------------------------------- node


@pytest.fixture(scope='module')
def rig(ros: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    path = Path(tmp_path_factory.mktemp('truth')) / 'truth.yaml'
    path.write_text(yaml.safe_dump({'force_torque_sensors': [{'frame': 'ft_wrist'}],
                                    'camera': plain(CAMERA),
                                    'sockets': {'ball': [0.0, 0.0, 0.15], 'parent': 'tool0',
                                                'places': {'left': [0.5, 0.1, 0.3],
                                                           'away': [0.0, -0.7, 0.3]}}}))
    with Rig('photographed', truth_file=str(path), initial_positions=START.tolist()) as rig:
        yield rig


def call(rig: Rig, name: str) -> Trigger.Response:
    client = rig.node.create_client(Trigger, f'sim_arm/{name}')
    rig.until(client.service_is_ready)
    return rig.wait(client.call_async(Trigger.Request()))


def test_photograph_answers_with_a_line_for_each_corner(rig: Rig) -> None:
    answer = call(rig, 'photograph')
    assert answer.success, answer.message
    rows = np.array([[float(part) for part in line.split(',')]
                     for line in answer.message.splitlines()])
    assert rows.shape == (24, 11)
    np.testing.assert_allclose(rows[:, :6], np.tile(START, (24, 1)), atol=1e-6)
    assert (np.ptp(rows[:, 9:], axis=0) > 20.0).all()


def test_guide_answers_with_the_line_of_the_joint_states(rig: Rig) -> None:
    refused = call(rig, 'guide')
    assert not refused.success
    assert "no socket ''" in refused.message
    rig.set('sim_arm', socket='left')
    answer = call(rig, 'guide')
    assert answer.success, answer.message
    rig.advance(0.2)
    angles = [float(part) for part in answer.message.split(',')]
    np.testing.assert_allclose(rig.position, angles, atol=1e-8)
    rig.set('sim_arm', socket='away')
    assert call(rig, 'guide').success
    assert 'outside the image. Move the arm' in call(rig, 'photograph').message
