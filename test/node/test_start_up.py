# SPDX-License-Identifier: Apache-2.0
"""Nodes start soon, and cost nothing while they are not active."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from support.ros_rig import Spinner, arm_urdf, overrides

from robocal_ros.node.executables import NODES as MODULES

pytestmark = pytest.mark.usefixtures('ros')

SUCCESS = TransitionCallbackReturn.SUCCESS
NODES = {
    'payload_identification': 'PayloadIdentification',
    'friction_identification': 'FrictionIdentification',
    'compliance_calibration': 'ComplianceCalibration',
    'wrench_observer': 'WrenchObserverNode',
    'leveling': 'Leveling',
}
# What takes a second to import, and is not needed before the first computation.
LATE = ('scipy.optimize', 'scipy.special', 'scipy.interpolate', 'scipy.stats', 'mujoco', 'plotly')


def made(name: str, results: Path, **values: Any) -> Any:
    return getattr(import_module(MODULES[name]), NODES[name])(
        name, parameter_overrides=overrides(
            robot_description=arm_urdf(), results_dir=str(results), **values))


@pytest.mark.parametrize('name', NODES)
def test_a_node_imports_late_what_takes_long(name: str) -> None:
    code = (f'import sys, {MODULES[name]}; '
            f'print(*({LATE} & sys.modules.keys()))').replace(str(LATE), f'set({LATE})')
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
