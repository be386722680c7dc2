# SPDX-License-Identifier: Apache-2.0
"""URDF files: identified values go in, and the model has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robocal_ros.errors import ConfigurationError, FileFormatError, ModelError
from robocal_ros.robot import (
    PAYLOAD_LINK,
    RigidBodyInertia,
    Robot,
    SteadyFriction,
    least_inertia,
    read_urdf,
    with_friction,
    with_payload,
)

URDF = (Path(__file__).parents[1] / 'data' / 'two_joint.urdf').read_text()
TOOL = RigidBodyInertia(1.25, np.array([0.01, -0.02, 0.1]), np.diag([2e-3, 3e-3, 4e-3]))
LAW = SteadyFriction(*(np.array(pair) for pair in (
    (0.6, 0.8), (1.0, 1.2), (0.04, 0.05), (0.3, 0.5))))


def robot(urdf: str) -> Robot:
    return Robot(urdf, tool_frame='lower')


@pytest.mark.parametrize('frame', ['lower', 'sensor', 'left'])
def test_the_arm_carries_what_was_written(frame: str) -> None:
    merged = robot(with_payload(URDF, TOOL, frame))
    expected = robot(URDF).with_payload(TOOL, frame) if frame != 'left' else None
    rng = np.random.default_rng(1)
    for q, v, a in rng.normal(size=(5, 3, 2)):
        if expected is not None:
            assert merged.inverse_dynamics(q, v, a) == pytest.approx(
                expected.inverse_dynamics(q, v, a), rel=1e-12)
    own = merged.distal_inertia(PAYLOAD_LINK)
    assert own.mass == TOOL.mass
    assert own.com == pytest.approx(TOOL.com, rel=1e-12)
    assert own.inertia == pytest.approx(TOOL.inertia, rel=1e-9, abs=1e-15)


def test_writing_twice_is_writing_once() -> None:
    once = with_payload(URDF, TOOL, 'lower')
    assert with_payload(once, TOOL, 'lower') == once
    lighter = RigidBodyInertia(0.5, TOOL.com, TOOL.inertia)
    again = robot(with_payload(once, lighter, 'sensor'))
    assert again.distal_inertia(PAYLOAD_LINK).mass == 0.5
    assert sum(again.model.inertias[i].mass for i in (1, 2)) == pytest.approx(
        sum(robot(URDF).model.inertias[i].mass for i in (1, 2)) + 0.5)


def test_an_unknown_inertia_is_a_small_one() -> None:
    point = RigidBodyInertia(2.0, TOOL.com, np.zeros((3, 3)))
    found = robot(with_payload(URDF, point, 'lower')).distal_inertia(PAYLOAD_LINK)
    assert found.inertia == pytest.approx(least_inertia(2.0) * np.eye(3))
    # A ball of 2 kg of aluminium has a radius of 56 mm.
    assert least_inertia(2.0) == pytest.approx(0.4 * 2.0 * 0.0561**2, rel=2e-3)


def test_comments_and_everything_else_stay() -> None:
    text = with_payload(URDF.replace('<robot ', '<!-- mine -->\n<robot ').replace(
        '<link name="ground"/>', '<link name="ground"/><!-- the floor -->'), TOOL, 'lower')
    assert '<!-- the floor -->' in text
    assert 'package://nowhere/upper.dae' in text
    assert 'mimic' in text


def test_friction_is_the_mean_of_both_directions() -> None:
    text = with_friction(URDF, {'shoulder': LAW, 'elbow': LAW})
    model = robot(text).model
    assert list(model.damping) == pytest.approx([0.4, 0.4])
    assert list(model.friction) == pytest.approx([0.7, 0.7])
    assert text.count('<dynamics') == 2


@pytest.mark.parametrize(('write', 'words'), [
    (lambda urdf: with_payload(urdf, TOOL, 'hand'), "no link 'hand'.*it has ground, upper"),
    (lambda urdf: with_friction(urdf, {'wrist': LAW}), "no joint 'wrist'.*it has shoulder"),
])
def test_names_that_are_not_there(write, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        write(URDF)


@pytest.mark.parametrize('text', ['<robot', 'nothing', '<sdf/>'])
def test_what_is_no_urdf(text: str) -> None:
    with pytest.raises(ModelError, match='URDF'):
        with_payload(text, TOOL, 'lower')


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / 'binary.urdf').write_bytes(b'\xff\xfe\x00')
    with pytest.raises(FileFormatError, match='UTF-8'):
        read_urdf(tmp_path / 'binary.urdf')
    with pytest.raises(ConfigurationError, match='cannot be read'):
        read_urdf(tmp_path / 'missing.urdf')
    with pytest.raises(FileFormatError, match=r'xacro .*arm\.urdf\.xacro -o arm\.urdf'):
        read_urdf(Path('arm.urdf.xacro'))
