# SPDX-License-Identifier: Apache-2.0
"""The first payload on a UR e-Series by the commands of docs/your-robot.md.

The driver is the simulated arm with controller, F/T sensor and currents of ur_robot_driver, at two
fifths of its rate.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from support import ROOT
from support.arms import foreign_urdf
from support.launch_stand_in import launched
from support.live_graph import CELL, NodeChild, as_launched

from robocal_ros.results import read_result

PAGE = (ROOT / 'docs' / 'your-robot.md').read_text(encoding='utf-8')
SECTION = PAGE[PAGE.index('\n## Universal Robots e-'):PAGE.index('\n## Universal Robots CB3')]
(COMMANDS,) = re.findall(r'```bash\n(.*?)```', SECTION, re.S)
(EDITS,) = re.findall(r'```yaml\n(.*?)```', SECTION, re.S)
LIMIT_COMMANDS, LIMIT_EDITS = 5, 6
MASS, CENTRE = 1.8, (0.02, -0.01, 0.07)
UNIT = 0.09
"""Current per torque [A/(N·m)]."""


def shown(command: str, folder: Path) -> str:
    """Run a shell command of the page; return what it prints."""
    line = command.replace('$(ros2 pkg prefix --share robocal_ros)', str(ROOT))
    line = re.sub(r'^robocal\b', f'{sys.executable} -m robocal_ros.cli.main', line)
    done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True,
                          timeout=300.0, env={**os.environ, 'PYTHONPATH': str(ROOT)})
    assert done.returncode == 0, f'{command}\n{done.stdout}\n{done.stderr}'
    return done.stdout


def node(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> NodeChild:
    """Start the node that a launch command of the page starts."""
    words = dict(word.split(':=') for word in command.split()[4:])
    words['params_file'] = str(folder / words['params_file'])
    # The simulated driver stamps by its own clock.
    (started,) = launched(monkeypatch, 'bringup.launch.py', **words, use_sim_time='true').started
    return as_launched(started, folder)


@pytest.fixture
def driver(tmp_path: Path) -> NodeChild:
    """Return the simulated driver, started."""
    joints = [f'{name}_joint' for name in (
        'shoulder_pan', 'shoulder_lift', 'elbow', 'wrist_1', 'wrist_2', 'wrist_3')]
    truth = tmp_path / 'truth.yaml'
    truth.write_text(yaml.safe_dump({
        'tool': {'parent': 'tool0', 'mass': MASS, 'centre_of_mass': list(CENTRE),
                 'inertia': [4e-3, 4e-3, 2e-3, 0.0, 0.0, 0.0]},
        'joints': {name: {'effort_scale': UNIT} for name in joints},
        'force_torque_sensors': [{
            'frame': 'tool0', 'message_frame': 'tool0_controller',
            'topic': 'force_torque_sensor_broadcaster/wrench'}]}), encoding='utf-8')
    urdf = foreign_urdf('ur10_robot.urdf')
    parameters = tmp_path / 'driver.yaml'
    parameters.write_text(yaml.safe_dump({'/**': {'ros__parameters': {
        'robot_description': urdf, 'controller': 'scaled_joint_trajectory_controller',
        'joints': joints, 'truth_file': str(truth), 'cell_file': str(CELL),
        'real_time_factor': 0.0, 'joint_states_rate': 200.0,
        'initial_positions': [0.0, -1.2, 1.2, -0.8, 0.9, 0.0]}}}), encoding='utf-8')
    return NodeChild('robocal_sim.node', ['--ros-args', '--params-file', str(parameters)],
                     tmp_path / 'driver.log')


def test_five_commands_and_six_parameters_lead_to_a_payload(
    driver: NodeChild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROS_HOME', str(tmp_path))
    doctor, copy, launch, run, show = commands = COMMANDS.splitlines()
    edits = yaml.safe_load(EDITS)
    assert len(commands) <= LIMIT_COMMANDS
    assert len(edits) <= LIMIT_EDITS
    with driver:
        told = shown(doctor, tmp_path)
        assert 'driver: Universal Robots e-Series, ur_robot_driver' in told
        assert launch in told
        assert re.search(r'cp \S*/config/examples/ur_e_series.yaml my_arm.yaml', told)
        shown(copy, tmp_path)
        file = tmp_path / 'my_arm.yaml'
        content = yaml.safe_load(file.read_text(encoding='utf-8'))
        # Faster than the example, to be quick; a late machine must not fail the run.
        content['/**/payload_identification']['ros__parameters'].update(
            edits, max_velocity=3.0, max_acceleration=12.0, state_timeout=5.0)
        file.write_text(yaml.safe_dump(content), encoding='utf-8')
        with node(launch, tmp_path, monkeypatch):
            shown(f'{run} --timeout 60', tmp_path)
            assert 'PASS' in shown(show, tmp_path).upper()
    (found,) = tmp_path.glob('robocal/*/payload.yaml')
    result = read_result(found)
    values = result.values(('mass', 'com_x', 'com_y', 'com_z'))
    errors = np.abs(values - np.array([MASS, *CENTRE]))
    assert (errors < 4.0 * np.array(
        [result.parameter(name).std for name in ('mass', 'com_x', 'com_y', 'com_z')])).all()
