# SPDX-License-Identifier: Apache-2.0
"""The SROS 2 policies permit exactly what the running nodes use; so does the reference list it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import rclpy
from rclpy.context import Context
from support.domains import claim_domain
from support.parameter_files import ROOT
from support.security_policies import (
    OPERATOR,
    POLICIES,
    REFERENCE,
    IncompleteGraphError,
    Interfaces,
    Rights,
    operator,
    permissions,
    permitted,
    reference,
    running,
)

from robocal_ros import registry


@pytest.fixture(scope='module')
def interfaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Interfaces]:
    # A domain of its own: nodes of earlier tests may still be in this process, or in the graph.
    return running(tmp_path_factory.mktemp('results'), claim_domain())


@pytest.fixture(scope='module')
def graph(interfaces: dict[str, Interfaces]) -> dict[str, Rights]:
    return {node: permissions(item) for node, item in interfaces.items()}


@pytest.fixture(scope='module')
def policies() -> dict[str, Rights]:
    return permitted(ElementTree.parse(POLICIES).getroot())


def test_each_node_has_an_enclave(policies: dict[str, Rights]) -> None:
    assert set(policies) == {*(f'/{name}' for name in registry.nodes()), OPERATOR}


@pytest.mark.parametrize('node', sorted(registry.nodes()))
def test_a_node_may_do_what_it_does_and_nothing_else(
    graph: dict[str, Rights], policies: dict[str, Rights], node: str
) -> None:
    assert policies[f'/{node}'] == graph[node], (
        'Run `PYTHONPATH=.. python -m support.security_policies` in test/, and read the change.')


def test_the_operator_may_call_the_nodes_and_command_nothing_else(
    graph: dict[str, Rights], policies: dict[str, Rights]
) -> None:
    assert policies[OPERATOR] == operator(graph)
    assert ('actions', 'call') not in policies[OPERATOR]
    assert policies[OPERATOR]['topics', 'publish'] == {'/rosout', '/parameter_events'}


def test_only_nodes_that_move_or_hold_the_arm_may_call_the_controller(
    policies: dict[str, Rights]
) -> None:
    """The observer may for hold_on_contact; SROS 2 knows no right to cancel alone."""
    callers = {path for path, rights in policies.items() if ('actions', 'call') in rights}
    assert callers == {f'/{name}' for name in registry.nodes()}


def test_the_reference_lists_the_services_and_topics_of_the_running_nodes(
    interfaces: dict[str, Interfaces]
) -> None:
    assert REFERENCE.read_text(encoding='utf-8') == reference(interfaces), (
        'Run `PYTHONPATH=.. python -m support.security_policies` in test/, and read the change.')


def test_a_graph_that_is_not_complete_yet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IncompleteGraphError, match='lacks nodes'):
        running(tmp_path, claim_domain(), limit=0.0)


def test_nothing_is_written_beside_another_node_of_the_same_name() -> None:
    domain = claim_domain()
    context = Context()
    rclpy.init(context=context, domain_id=domain)
    namesake = rclpy.create_node('leveling', context=context)
    try:
        before = POLICIES.stat().st_mtime_ns
        done = subprocess.run(
            [sys.executable, '-m', 'support.security_policies'], cwd=ROOT / 'test', text=True,
            env={**os.environ, 'ROS_DOMAIN_ID': str(domain), 'PYTHONPATH': str(ROOT)},
            capture_output=True, timeout=300.0, check=False)
    finally:
        namesake.destroy_node()
        rclpy.shutdown(context=context)
    assert done.returncode != 0
    assert 'already has these nodes: leveling.' in done.stderr
    assert POLICIES.stat().st_mtime_ns == before


def test_a_node_does_not_start_unprotected_where_security_is_enforced(tmp_path: Path) -> None:
    """Neither without a keystore, nor on a middleware without the security plugins."""
    done = subprocess.run(
        [sys.executable, '-c', 'from robocal_ros.node.executables import leveling; leveling()',
         '--ros-args', '--enclave', '/leveling'],
        capture_output=True, text=True, timeout=60.0, check=False,
        env={**os.environ, 'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'Enforce',
             'ROS_SECURITY_KEYSTORE': str(tmp_path)})
    assert done.returncode != 0
    assert 'security' in done.stderr.lower()
