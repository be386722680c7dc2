# SPDX-License-Identifier: Apache-2.0
"""Hidden errors of the joints' frames, against Pinocchio on a URDF that has them."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.arms import arm as published
from support.forward import Reference, Tool, sensed_wrench

from robocal_sim.model import Description, read_description
from robocal_sim.physics import CONTROL_STEP, ArmPhysics
from robocal_sim.simulator import ArmSimulator
from robocal_sim.truth import (
    ForceTorqueTruth,
    FrameTruth,
    HiddenTruth,
    JointTruth,
    ToolTruth,
)

DOWN = (0.0, 0.0, -9.81)


def transform(xyz: np.ndarray, rotation: Rotation) -> np.ndarray:
    placed = np.eye(4)
    placed[:3, :3], placed[:3, 3] = rotation.as_matrix(), xyz
    return placed


def displacements(joints: tuple[str, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Return shift [m] and rotation vector [rad] by joint, shape (6,) each."""
    drawn = np.random.default_rng(seed).uniform(-1.0, 1.0, (len(joints), 6))
    return dict(zip(joints, drawn * np.repeat([0.02, 0.05], 3), strict=True))


def displaced(urdf: str, moved: dict[str, np.ndarray]) -> str:
    """Return the URDF whose origins are followed by the displacements."""
    tree = ElementTree.fromstring(urdf)
    for name, part in moved.items():
        origin = tree.find(f"joint[@name='{name}']/origin")
        xyz, rpy = ([float(value) for value in origin.get(key, '0 0 0').split()]
                    for key in ('xyz', 'rpy'))
        placed = transform(xyz, Rotation.from_euler('xyz', rpy)) @ transform(
            part[:3], Rotation.from_rotvec(part[3:]))
        turned = Rotation.from_matrix(placed[:3, :3]).as_euler('xyz')
        origin.set('xyz', ' '.join(map(repr, placed[:3, 3].tolist())))
        origin.set('rpy', ' '.join(map(repr, turned.tolist())))
    return ElementTree.tostring(tree, 'unicode')


def joints_of(moved: dict[str, np.ndarray], compliance: float = 0.0) -> dict[str, JointTruth]:
    return {name: JointTruth(compliance=compliance, frame=tuple(part.tolist()))
            for name, part in moved.items()}


@pytest.mark.parametrize('name', ['robocal', 'ur5', 'xarm7', 'kinova', 'panda'])
def test_links_and_torques_are_those_of_the_displaced_urdf(name: str) -> None:
    one = published(name)
    chain = Reference(one.urdf, one.tool, DOWN)
    names = tuple(chain.model.names)[1:]
    description = read_description(one.urdf, names)
    moved = displacements(names)
    true = Reference(displaced(one.urdf, moved), one.tool, DOWN)
    generator = np.random.default_rng(1)
    angles = generator.uniform(-1.0, 1.0, (3, len(names)))
    for row in angles:
        physics = ArmPhysics(description, HiddenTruth(joints=joints_of(moved)), row)
        rotation, origin = physics.link_pose(one.tool)
        expected = true.placement(row, one.tool)
        np.testing.assert_allclose(origin, expected.translation, atol=1e-9)
        np.testing.assert_allclose(rotation, expected.rotation, atol=1e-9)
        torque = true.torque(row[None], *np.zeros((2, 1, len(names))))[0]
        np.testing.assert_allclose(physics.effort, torque, atol=1e-8)
        assert np.linalg.norm(origin - chain.placement(row, one.tool).translation) > 5e-3


def test_sensors_and_sag_are_those_of_the_displaced_arm(arm: Description, arm_urdf: str) -> None:
    tool = ToolTruth(2.3, (0.03, -0.02, 0.11), (0.011, 0.013, 0.006, 0.0, 0.0, 0.0), 'tool0')
    body = Tool(tool.mass, np.array(tool.centre_of_mass), np.diag(tool.inertia[:3]))
    moved, compliance = displacements(arm.joints), 2e-5
    urdf = displaced(arm_urdf, moved)
    physics = ArmPhysics(arm, HiddenTruth(
        joints=joints_of(moved, compliance), tool=tool,
        force_torque_sensors=(ForceTorqueTruth('ft_wrist'),)))
    encoders = np.array([0.3, 0.6, -0.7, 0.2, 0.5, 0.1])
    physics.rest_in(encoders)
    reference = Reference(urdf, 'tool0', DOWN, body)
    still = np.zeros((1, 6))
    torque = reference.torque(physics.position[None], still, still)[0]
    np.testing.assert_allclose(encoders - physics.position, compliance * torque, atol=1e-9)
    np.testing.assert_allclose(
        physics.link_pose('tool0')[1],
        reference.placement(physics.position, 'tool0').translation, atol=1e-9)
    (expected,) = sensed_wrench(urdf, 'ft_wrist', 'ft_wrist_joint',
                                (physics.position[None], still, still), DOWN, ('tool0', body),
                                end='tool0')
    physics.follow(physics.position, still[0], still[0], CONTROL_STEP)
    np.testing.assert_allclose(physics.wrench('ft_wrist'), expected, atol=1e-8)


@pytest.mark.parametrize('key', ['shift', 'turn'])
def test_drawn_displacements_have_the_given_standard_deviation(
    arm: Description, key: str
) -> None:
    def relative(frames: FrameTruth) -> list[np.ndarray]:
        """Return each link's placement in that of the root, of an arm at zero."""
        physics = ArmPhysics(arm, HiddenTruth(frames=frames))
        poses = [physics.link_pose(f'link_{number}') for number in range(1, 7)]
        return [transform(origin, Rotation.from_matrix(rotation)) for rotation, origin in poses]

    nominal, found = relative(FrameTruth()), []
    for seed in range(60):
        before = np.eye(4), np.eye(4)
        for exact, true in zip(nominal, relative(FrameTruth(**{key: 2e-3}, seed=seed)),
                               strict=True):
            step = [np.linalg.solve(parent, child)
                    for parent, child in zip(before, (exact, true), strict=True)]
            moved = np.linalg.solve(*step)
            found.append(moved[:3, 3] if key == 'shift'
                         else Rotation.from_matrix(moved[:3, :3]).as_rotvec())
            before = exact, true
    # 1080 numbers: their standard deviation is known to 2.2 %.
    assert np.std(found, axis=0) == pytest.approx(2e-3 * np.ones(3), rel=0.15)
    assert np.std(found) == pytest.approx(2e-3, rel=0.08)
    again = relative(FrameTruth(**{key: 2e-3}, seed=1))
    np.testing.assert_array_equal(again, relative(FrameTruth(**{key: 2e-3}, seed=1)))


def test_given_displacement_is_added_to_the_drawn_one_and_drives_know_neither(
    arm: Description
) -> None:
    start = np.array([0.3, 0.6, -0.7, 0.2, 0.5, 0.1])
    given = HiddenTruth(joints={'joint_2': JointTruth(frame=(0.0, 0.0, 0.1, 0.0, 0.0, 0.0))})
    physics = ArmPhysics(arm, given, start)
    np.testing.assert_allclose(
        physics.link_pose('link_2')[1] - ArmPhysics(arm, HiddenTruth(), start).link_pose(
            'link_2')[1], [0.0, 0.0, 0.1], atol=1e-12)
    # Without the torque of the URDF's arm, that of the displacement is left.
    external = HiddenTruth(effort_contains='external', frames=FrameTruth(0.01, 0.01))
    simulator = ArmSimulator(arm, external, start=start)
    for _ in range(100):
        simulator.step()
    assert 0.1 < np.abs(simulator.physics.reported).max() < 10.0
