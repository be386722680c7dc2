# SPDX-License-Identifier: Apache-2.0
"""Choice of a ROS domain without other nodes."""

from __future__ import annotations

import os

import pytest
from support.fake_procedure import Running

from demo import domains
from demo.domains import own_domain
from robocal_ros.cli.doctor import chosen_domain
from robocal_ros.errors import ConfigurationError

DOMAIN = int(os.environ['ROS_DOMAIN_ID'])


def test_a_chosen_domain_with_nodes_is_refused() -> None:
    fake = Running(DOMAIN)
    try:
        assert chosen_domain() == DOMAIN
        with pytest.raises(ConfigurationError, match=f'domain {DOMAIN}.*: /[a-z_]+[.,]'):
            own_domain()
    finally:
        fake.close()


def test_a_domain_without_nodes_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def nodes_on(domain: int) -> list[str]:
        looked.append(domain)
        return ['/somebody'] if len(looked) < 3 else []

    monkeypatch.setattr(domains, '_nodes_on', nodes_on)
    monkeypatch.delenv('ROS_DOMAIN_ID')
    domain = own_domain()
    assert domain == looked[2]
    assert os.environ['ROS_DOMAIN_ID'] == str(domain)
    assert len(set(looked)) == 3
    monkeypatch.setattr(domains, '_nodes_on', lambda _: ['/somebody'])
    monkeypatch.delenv('ROS_DOMAIN_ID')
    with pytest.raises(ConfigurationError, match='all have nodes'):
        own_domain()


