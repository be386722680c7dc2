# SPDX-License-Identifier: Apache-2.0
"""Bags that `ros2 bag` records and plays give the result of the live run, and of the bag."""

from __future__ import annotations

import signal
from pathlib import Path

import yaml
from support.doc_sandbox import write
from support.live_graph import Client
from support.real_control import Shell, needs_real_control
from support.same_result import assert_same_result

from robocal_ros.cli.main import main
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import read_result

pytestmark = needs_real_control('ros2bag', 'rosbag2_transport')


def assert_equal(one: CalibrationResult, other: CalibrationResult) -> None:
    """Check that the same values came of the same samples, bit for bit."""
    assert_same_result(one, other)
    assert [(item.value, item.std) for item in one.parameters] == [
        (item.value, item.std) for item in other.parameters]
    assert (one.covariance == other.covariance).all()


def test_a_bag_played_by_ros2_bag_gives_the_result_of_the_bag(tmp_path: Path, ros: None) -> None:
    files = write(tmp_path)
    parameters = {'results_dir': str(tmp_path / 'replayed'), 'gain_std': 0.002,
                  'arm_model_std': 0.01, 'sensor_frame': 'ft_wrist', 'method': 'static_poses',
                  'qos_overrides./joint_states.subscription.reliability': 'reliable'}
    (tmp_path / 'node.yaml').write_text(yaml.safe_dump({
        '/**/payload_identification': {'ros__parameters': parameters}}))
    assert main(['estimate', 'payload', str(files / 'poses_bag'), '-o',
                 str(tmp_path / 'offline.yaml'), '--results-dir', str(tmp_path / 'offline'),
                 '--params-file', str(tmp_path / 'node.yaml')]) == 0
    shell, client = Shell(tmp_path / 'shell'), Client()
    with shell.launch(
        'replay.launch.py', bag=str(files / 'poses_bag'), nodes='payload_identification',
        params_file=str(tmp_path / 'node.yaml'),
    ) as launched:
        client.until(lambda: 'The bag has ended' in launched.said, what='the end of the bag')
        success, message = shell.call('/payload_identification/estimate').answer()
        assert success, message
        filed = next((tmp_path / 'replayed').rglob('payload.yaml'))
    client.close()
    assert_equal(read_result(filed), read_result(tmp_path / 'offline.yaml'))


def test_a_run_recorded_by_ros2_bag_gives_its_result(tmp_path: Path, ros: None) -> None:
    parameters = {'results_dir': str(tmp_path / 'live'), 'method': 'static_poses',
                  'sensor_frame': 'ft_wrist', 'sensor_topic': 'ft_wrist/wrench',
                  # Neither the node nor the recorder may lose a sample.
                  'qos_overrides./joint_states.subscription.reliability': 'reliable',
                  'qos_overrides./ft_wrist/wrench.subscription.reliability': 'reliable'}
    file = tmp_path / 'node.yaml'
    file.write_text(yaml.safe_dump({
        '/**/payload_identification': {'ros__parameters': parameters}}))
    # By itself, the recorder keeps one message of each topic, and loses those of bursts.
    profiles = tmp_path / 'profiles.yaml'
    profiles.write_text(yaml.safe_dump({topic: {
        'history': 'keep_last', 'depth': 1000, 'reliability': 'reliable',
        'durability': 'volatile'} for topic in ('/joint_states', '/ft_wrist/wrench')}))
    shell, client, node = Shell(tmp_path / 'shell'), Client(), 'payload_identification'
    topics = ('/joint_states', '/ft_wrist/wrench', '/robot_description', f'/{node}/marks')
    with shell.launch('bringup.launch.py', nodes=node, params_file=str(file),
                      real_time_factor='0.0') as launched:
        client.until(lambda: client.state(node) == 'active')
        recorder = shell.run(
            'bag', 'record', '-s', 'mcap', '-o', str(tmp_path / 'bag'),
            '--qos-profile-overrides-path', str(profiles), '--topics', *topics)
        client.until(lambda: all(f"Subscribed to topic '{name}'" in recorder.said
                                 for name in topics), what='the recorder')
        success, message = shell.call(f'/{node}/run').answer()
        assert success, (message, launched.said)
        recorder.send(signal.SIGINT)
        recorder.end()
    client.close()
    live, offline = tmp_path / 'live' / 'payload.yaml', tmp_path / 'offline.yaml'
    assert main(['estimate', 'payload', str(tmp_path / 'bag'), '-o', str(offline),
                 '--results-dir', str(tmp_path / 'offline'), '--params-file', str(file)]) == 0
    assert_equal(read_result(live), read_result(offline))
