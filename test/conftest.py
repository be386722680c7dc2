# SPDX-License-Identifier: Apache-2.0
"""Isolation of a test run: its own ROS domain and home directory."""

from __future__ import annotations

import atexit
import fcntl
import os
import random
import shutil
import signal
import tempfile
from pathlib import Path
from typing import IO

# Shells start background jobs with SIGINT ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# rclpy reads these when it is first imported, during collection: fixtures would be too late.
_home = Path(tempfile.mkdtemp(prefix='robocal_test_'))
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ['HOME'] = str(_home)
os.environ['ROS_HOME'] = str(_home / '.ros')
os.environ['ROS_LOG_DIR'] = str(_home / '.ros' / 'log')
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'


def _claim_domain() -> int:
    """Return a ROS domain that no other test run on this machine uses at the same time."""
    claims = Path(tempfile.gettempdir()) / 'robocal_test_domains'
    claims.mkdir(exist_ok=True)
    # Low numbers are chosen by hand; domains above 101 use Linux's ephemeral ports.
    for domain in random.SystemRandom().sample(range(30, 102), 72):
        claim = (claims / str(domain)).open('w')
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return domain
    raise RuntimeError(f'Every ROS domain is claimed by a test run; see {claims}.')


_claims: list[IO[str]] = []
os.environ['ROS_DOMAIN_ID'] = str(_claim_domain())

pytest_plugins = ['support.fixtures']
