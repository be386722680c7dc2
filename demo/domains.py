# SPDX-License-Identifier: Apache-2.0
"""Choice of a ROS domain without other nodes, restricted to this machine."""

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
    """Return a domain without nodes and restrict this process to this machine.

    The domain is ROS_DOMAIN_ID if that is set, else a random one, to which it is then set.

    Raises:
        ConfigurationError: The chosen domain has nodes, or no free one was found.

    """
    os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    chosen = chosen_domain()
    if chosen is not None:
        there = _nodes_on(chosen)
        if there:
            raise ConfigurationError(
                f'ROS domain {chosen}, chosen by ROS_DOMAIN_ID, already has these nodes: '
                f'{", ".join(there)}. They would interfere with the simulated arm. Stop them, '
                'choose another domain, or unset ROS_DOMAIN_ID.'
            )
        return chosen
    for domain in random.SystemRandom().sample(_DOMAINS, _TRIES):
        if not _nodes_on(domain):
            os.environ['ROS_DOMAIN_ID'] = str(domain)
            return domain
    raise ConfigurationError(
        f'{_TRIES} random ROS domains all have nodes. Set ROS_DOMAIN_ID to a free one.'
    )


def _nodes_on(domain: int) -> list[str]:
    with RosSession('robocal_domain_check', domain) as session:
        return session.other_nodes()
