# SPDX-License-Identifier: Apache-2.0
"""Keeps a test run to itself: no other robot's traffic, no files in the user's home."""

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

# A shell has what it runs in the background ignore Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Read when rclpy is first imported, which happens while pytest collects: fixtures are too late.
_home = Path(tempfile.mkdtemp(prefix='robocal_test_'))
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ['HOME'] = str(_home)
os.environ['ROS_HOME'] = str(_home / '.ros')
os.environ['ROS_LOG_DIR'] = str(_home / '.ros' / 'log')
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'


def _claim_domain() -> int:
    """Return a ROS domain that no other test run of this machine uses while this one lives."""
    claims = Path(tempfile.gettempdir()) / 'robocal_test_domains'
    claims.mkdir(exist_ok=True)
    # Low numbers are what people choose by hand; domains above 101 run into the ports that
    # Linux hands out to clients.
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
