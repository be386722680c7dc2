# SPDX-License-Identifier: Apache-2.0
"""Keeps a test run to itself: no other robot's traffic, no files in the user's home."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import tempfile
from pathlib import Path

# Read when rclpy is first imported, which happens while pytest collects: fixtures are too late.
_home = Path(tempfile.mkdtemp(prefix='robocal_test_'))
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ['HOME'] = str(_home)
os.environ['ROS_HOME'] = str(_home / '.ros')
os.environ['ROS_LOG_DIR'] = str(_home / '.ros' / 'log')
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
# Domains above 101 run into the ports that Linux hands out to clients.
# Workers that run side by side must not draw the same one.
_worker = int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw'))
os.environ['ROS_DOMAIN_ID'] = str(1 + 25 * (_worker % 4) + random.SystemRandom().randrange(25))
