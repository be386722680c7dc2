# SPDX-License-Identifier: Apache-2.0
"""Keeping a run to itself: a ROS domain on which nobody else is, on this machine only."""

from __future__ import annotations

import os
import random

from robocal_ros.cli.doctor import chosen_domain
from robocal_ros.cli.node_client import RosSession
from robocal_ros.errors import ConfigurationError

# Domains above 101 run into the ports that Linux hands out to clients.
_DOMAINS = range(1, 102)
_TRIES = 5


def own_domain() -> int:
    """Return a domain without nodes: the chosen one, else any; this process stays local.

    Raises:
        ConfigurationError: If nodes are on the chosen one.

    """
    os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    chosen = chosen_domain()
    if chosen is not None:
        there = _nodes_on(chosen)
        if there:
            raise ConfigurationError(
                f'ROS domain {chosen} was chosen by ROS_DOMAIN_ID, but these nodes are on it: '
                f'{", ".join(there)}. A simulated arm among them would mix with theirs: end '
                'them, choose another domain, or unset ROS_DOMAIN_ID.'
            )
        return chosen
    for domain in random.SystemRandom().sample(_DOMAINS, _TRIES):
        if not _nodes_on(domain):
            os.environ['ROS_DOMAIN_ID'] = str(domain)
            return domain
    raise ConfigurationError(
        f'{_TRIES} ROS domains tried at random all have nodes on them. Set ROS_DOMAIN_ID to a '
        'free one.'
    )


def _nodes_on(domain: int) -> list[str]:
    with RosSession('robocal_looking', domain) as session:
        return session.other_nodes()
