# SPDX-License-Identifier: Apache-2.0
"""Nodes start soon, cost nothing while they are not active, and use stored arms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from support.arms import arm
from support.friction_results import identified_arm, identity
from support.parameter_files import node_classes
from support.ros_rig import Spinner, arm_urdf, overrides

from robocal_ros import registry
from robocal_ros.results.store import ResultStore
from robocal_ros.robot.setup import ARM, DRIVE_GAINS
from robocal_ros.wrench.node import WrenchObserverNode

pytestmark = pytest.mark.usefixtures('ros')

SUCCESS = TransitionCallbackReturn.SUCCESS
NODES = registry.nodes()
# What takes a second to import, and is not needed before the first computation.
LATE = ('scipy.optimize', 'scipy.special', 'scipy.interpolate', 'scipy.stats', 'mujoco', 'plotly')


def made(name: str, results: Path, **values: Any) -> Any:
    return node_classes()[name](
        name, parameter_overrides=overrides(
            robot_description=arm_urdf(), results_dir=str(results), **values))


def test_nodes_import_late_what_takes_long() -> None:
    code = (f'import sys, {", ".join(NODES.values())}; '
            f'print(*(set({LATE}) & sys.modules.keys()))')
    told = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          check=True, timeout=60.0)
    assert told.stdout.split() == []


@pytest.mark.parametrize('name', NODES)
def test_fast_topics_are_heard_while_active_alone(name: str, tmp_path: Path) -> None:
    node = made(name, tmp_path, temperature_topic='temperature', imu_topic='imu/data',
                imu_frame='tool0')

    def fast() -> set[str]:
        return {topic.rpartition('/')[2] for subscription in node.subscriptions
                for topic in [subscription.topic_name]} & {
            'joint_states', 'wrench', 'controller_state', 'temperature', 'data', 'point'}

    with Spinner(node):
        assert node.trigger_configure() == SUCCESS
        assert not fast()
        assert node.trigger_activate() == SUCCESS
        assert 'joint_states' in fast()
        received = len(fast())
        assert node.trigger_deactivate() == SUCCESS
        assert not fast()
        assert node.trigger_activate() == SUCCESS
        assert len(fast()) == received
        assert node.trigger_deactivate() == SUCCESS
        assert node.trigger_cleanup() == SUCCESS
        assert not fast()


def weight(node: Any, q: np.ndarray) -> np.ndarray:
    """Return the holding torque of the arm as the node knows it."""
    if isinstance(node, WrenchObserverNode):
        node.observer.arm.held(q, np.zeros(6), np.zeros(6))
        return np.array(node.observer.arm.torque)
    return np.array(node.known_robot.gravity_torque(q))


@pytest.mark.parametrize('name', [
    'friction_identification', 'compliance_calibration', 'wrench_observer', 'leveling'])
def test_links_of_an_identified_arm_hold_unless_left_out_until_newer_drive_gains(
    name: str, tmp_path: Path
) -> None:
    robot, store = arm('robocal').robot(), ResultStore(tmp_path, identity())
    store.save(identified_arm(ARM, 1.1, time=10.0))
    node = made(name, tmp_path)
    q = np.linspace(0.1, 0.6, 6)

    def assert_held(factor: float) -> None:
        assert node.trigger_configure() == SUCCESS
        np.testing.assert_allclose(weight(node, q), factor * robot.gravity_torque(q), atol=1e-9)
        assert node.trigger_cleanup() == SUCCESS

    with Spinner(node):
        assert_held(1.1)
        for parameter in ('use_arm_model', 'use_drive_gains'):
            node.set_parameters(overrides(**{parameter: False}))
            assert_held(1.0)
            node.set_parameters(overrides(**{parameter: True}))
        store.save(identified_arm(DRIVE_GAINS, time=20.0))
        assert_held(1.0)
