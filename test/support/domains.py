# SPDX-License-Identifier: Apache-2.0
"""ROS domains and ports of test runs."""

from __future__ import annotations

import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

_CLAIMS: list[IO[str]] = []


def claim_domain() -> int:
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
        _CLAIMS.append(claim)
        return domain
    raise RuntimeError(f'Every ROS domain is claimed by a test run; see {claims}.')


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])
