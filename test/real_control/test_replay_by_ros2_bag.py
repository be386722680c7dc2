# SPDX-License-Identifier: Apache-2.0
"""A bag that `ros2 bag play` plays gives the result of the bag."""

from __future__ import annotations

from pathlib import Path

import yaml
from support.doc_sandbox import write
from support.live_graph import Client
from support.real_control import Shell, needs_real_control
from support.same_result import assert_same_result

from robocal_ros.cli.main import main
from robocal_ros.results.store import read_result

pytestmark = needs_real_control('ros2bag', 'rosbag2_transport')


def test_a_bag_played_by_ros2_bag_gives_the_result_of_the_bag(
    tmp_path: Path, ros: None
) -> None:
    files = write(tmp_path)
    parameters = {'results_dir': str(tmp_path / 'replayed'), 'gain_std': 0.002,
                  'arm_model_std': 0.01, 'sensor_frame': 'ft_wrist',
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
    assert_same_result(read_result(filed), read_result(tmp_path / 'offline.yaml'))
