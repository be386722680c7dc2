# SPDX-License-Identifier: Apache-2.0
"""The compliance node on the simulated arm, with few short dwells, and the hidden truth."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from support.live_graph import TRUTH, Process

NODE = 'compliance_calibration'
POSTURES = 10
HIDDEN = yaml.safe_load(TRUTH.read_text())


def compliance_node(log: Path, results: Path, opened: Path) -> Process:
    """Start a compliance node, active at once."""
    tracker, load = HIDDEN['tracker'], HIDDEN['load']
    values = {
        'use_sim_time': True, 'autostart': True, 'results_dir': results, 'state_timeout': 5.0,
        'max_velocity': 2.0, 'max_acceleration': 6.0, 'posture_count': POSTURES,
        'posture_range': 0.8, 'dwell': 0.6, 'settle': 0.2, 'reference_every': 5,
        'registration': 'three_point', 'target_frame': 'flange',
        'target_xyz': json.dumps(tracker['target_xyz']), 'visibility_angle': 2.1,
        'tracker_position': '[2.5, -1.0, 0.3]', 'load_mass': float(load['mass']),
        'load_com': json.dumps(load['centre_of_mass']), 'load_frame': 'flange',
        'attach_service': 'sim_arm/attach_load', 'detach_service': 'sim_arm/detach_load'}
    return Process('robocal_ros.compliance.node', log, name=NODE, opened=opened, **values)
