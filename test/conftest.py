# SPDX-License-Identifier: Apache-2.0
"""Isolation of a test run: its own ROS domain and home directory."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

from support.domains import claim_domain

# Shells start background jobs with SIGINT ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# rclpy reads these when it is first imported, during collection: fixtures would be too late.
_home = Path(tempfile.mkdtemp(prefix='robocal_test_'))
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ['HOME'] = str(_home)
os.environ['ROS_HOME'] = str(_home / '.ros')
os.environ['ROS_LOG_DIR'] = str(_home / '.ros' / 'log')
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
os.environ['ROS_DOMAIN_ID'] = str(claim_domain())

pytest_plugins = ['support.fixtures']
