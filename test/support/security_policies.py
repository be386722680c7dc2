# SPDX-License-Identifier: Apache-2.0
"""Files from the graph of the running nodes: SROS 2 policies and the reference of the nodes.

Run this module to write them.
"""

from __future__ import annotations

import re
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rclpy.node import Node
from rclpy.parameter import Parameter

from demo import default_cell
from demo.compliance import known_load
from robocal_ros.cli.node_client import RosSession
from robocal_ros.node.calibration_node import SUCCESS, CalibrationNode
from support.parameter_files import ROOT, node_classes

POLICIES = ROOT / 'config' / 'sros2' / 'policies.xml'
REFERENCE = ROOT / 'docs' / 'nodes.md'
OPERATOR, PROGRAMS = '/operator', ('robocal_run', 'robocal_doctor', 'robocal_recorder')
# What nodes use of the arm and its sensors depends on these.
PARAMETERS = {
    'payload_identification': {'method': 'static_poses', 'sensor_frame': 'ft_wrist'},
    'friction_identification': {'temperature_topic': 'temperature'},
    'compliance_calibration': {**known_load(default_cell.hidden_truth()),
                               'attach_service': 'sim_arm/attach_load',
                               'detach_service': 'sim_arm/detach_load'},
    'leveling': {'imu_topic': 'imu_flange/imu'},
    'wrench_observer': {'tool_wrench_frame': 'gripper', 'hold_on_contact': True},
}

Rights = dict[tuple[str, str], set[str]]
"""Names by kind and right, such as ('topics', 'publish')."""

Interfaces = dict[tuple[str, str], dict[str, str]]
"""Types by name, by kind and right."""

_VERBS = (('publisher', 'topics', 'publish'), ('subscriber', 'topics', 'subscribe'),
          ('service', 'services', 'reply'), ('client', 'services', 'request'))
_ACTION = '/_action/'
_HEAD = """\
<?xml version='1.0' encoding='utf-8'?>
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- What each node of this package may do, and no more: its topics, services and actions on the
     default arm, without a namespace. Other sensors, another controller: rename them here.
     docs/safety.md says how to use it. Generated from the running nodes. -->
"""


def used(look: Node, node: str) -> Interfaces:
    """Return what a node in the graph uses, with names relative to the node."""
    found: Interfaces = {}
    for what, kind, right in _VERBS:
        names = getattr(look, f'get_{what}_names_and_types_by_node')(node, '/')
        for name, (message, *_) in names:
            if _ACTION in name:
                actions = found.setdefault(('actions', 'call'), {})
                # Cancellation and status have types that all actions share.
                if '/action/' in message:
                    actions[name.partition(_ACTION)[0]] = message.rpartition('_')[0]
            else:
                own = re.sub(rf'^/{node}/', '~/', name)
                found.setdefault((kind, right), {})[own] = message
    # Subscribed until it has arrived.
    found.setdefault(('topics', 'subscribe'), {})['/robot_description'] = 'std_msgs/msg/String'
    return found


def made(node: Node) -> Rights:
    """Return what a node in this process has created, with names relative to it."""
    found: Rights = {}
    for kind, right, names in (
            ('topics', 'publish', [item.topic_name for item in node.publishers]),
            ('topics', 'subscribe', [item.topic_name for item in node.subscriptions]),
            ('services', 'reply', [item.service_name for item in node.services]),
            ('services', 'request', [item.service_name for item in node.clients])):
        for name in names:
            action, separator, _ = name.partition(_ACTION)
            found.setdefault(('actions', 'call') if separator else (kind, right), set()).add(
                re.sub(rf'^/{node.get_name()}/', '~/', action))
    return found


def permissions(interfaces: Interfaces) -> Rights:
    """Return the names, with * for the joints and links of an arm."""
    return {key: {re.sub(r'^~/(links|joints)/.*', r'~/\1/*', name) for name in names}
            for key, names in interfaces.items()}


def permitted(policies: ElementTree.Element) -> dict[str, Rights]:
    """Return the rights in a policy file, by enclave."""
    found: dict[str, Rights] = {}
    for enclave in policies.iter('enclave'):
        rights = found.setdefault(enclave.attrib['path'], {})
        for profile in enclave.iter('profile'):
            for group in profile:
                (right, value), = group.attrib.items()
                assert value == 'ALLOW'
                rights.setdefault((group.tag, right), set()).update(
                    str(item.text) for item in group)
    return found


class IncompleteGraphError(Exception):
    """What the nodes use cannot be told from the graph."""


def running(
    folder: Path, domain: int | None = None, limit: float = 180.0
) -> dict[str, Interfaces]:
    """Configure and activate all nodes in this process; return what each uses.

    Args:
        folder: Folder of the results.
        domain: ROS domain of the nodes, that of the environment by default.
        limit: Longest wait until the graph is complete [s].

    Raises:
        IncompleteGraphError: If it still lacks what a node has created, or if another node of the
            same name is in the domain, with which the graph mixes up this one.

    """
    nodes: list[CalibrationNode] = []
    with RosSession('observer', domain) as session:
        _refuse(session.other_nodes())
        try:
            for name, make in node_classes().items():
                values = {'robot_description': default_cell.urdf(), 'results_dir': str(folder),
                          'use_sim_time': True, **PARAMETERS.get(name, {})}
                nodes.append(make(name, context=session.node.context, parameter_overrides=[
                    Parameter(key, value=value) for key, value in values.items()]))
                for transition in (nodes[-1].trigger_configure, nodes[-1].trigger_activate):
                    if transition() != SUCCESS:
                        raise IncompleteGraphError(f"'{name}' does not start; see the log.")
            return _complete(session.node, nodes, time.monotonic() + limit)
        finally:
            for node in nodes:
                node.release()
                node.destroy_node()


def _refuse(others: Iterable[str]) -> None:
    """Raise an IncompleteGraphError if other nodes have the name of one of this package."""
    if namesakes := {name.rpartition('/')[2] for name in others} & {*node_classes()}:
        raise IncompleteGraphError(
            f'This ROS domain already has these nodes: {", ".join(sorted(namesakes))}. End them, '
            'or choose another ROS_DOMAIN_ID.')


def _complete(look: Node, nodes: Sequence[CalibrationNode], end: float) -> dict[str, Interfaces]:
    """Return what nodes use, once two looks see the same, with all that they have created."""
    found: dict[str, Interfaces] = {}
    missing = ['nodes']
    while time.monotonic() < end:
        time.sleep(0.5)
        names = look.get_node_names()
        _refuse(name for name in names if names.count(name) > 1)
        if not {node.get_name() for node in nodes} <= {*names}:
            continue
        known, found = found, {node.get_name(): used(look, node.get_name()) for node in nodes}
        missing = [f'{node.get_name()}: {name}' for node in nodes
                   for key, created in made(node).items()
                   for name in created - {*found[node.get_name()].get(key, ())}]
        if not missing and known == found:
            return found
    raise IncompleteGraphError(
        f'The graph still changes, or lacks {", ".join(missing) or "nothing"}.')


def operator(nodes: Mapping[str, Rights]) -> Rights:
    """Return the rights of `robocal`: call all services of the nodes, read what they publish."""
    def full(name: str, node: str) -> str:
        return name.replace('~', f'/{node}', 1)

    return {
        ('topics', 'publish'): {'/rosout', '/parameter_events'},
        ('topics', 'subscribe'): {'/clock', '/joint_states', '/robot_description'} | {
            full(name, node) for node, rights in nodes.items()
            for name in rights['topics', 'publish'] | rights['topics', 'subscribe']},
        ('services', 'request'): {full(name, node) for node, rights in nodes.items()
                                  for name in rights['services', 'reply']},
    }


def text(nodes: Mapping[str, Rights]) -> str:
    """Return the policy file."""
    root = ElementTree.Element('policy', version='0.2.0')
    enclaves = ElementTree.SubElement(root, 'enclaves')

    def add(path: str, node: str, rights: Rights) -> None:
        enclave = next((item for item in enclaves if item.get('path') == path), None)
        if enclave is None:
            enclave = ElementTree.SubElement(enclaves, 'enclave', path=path)
            ElementTree.SubElement(enclave, 'profiles')
        profile = ElementTree.SubElement(enclave[0], 'profile', ns='/', node=node)
        for (kind, right), names in sorted(rights.items()):
            group = ElementTree.SubElement(profile, kind, {right: 'ALLOW'})
            for name in sorted(names):
                ElementTree.SubElement(group, kind.removesuffix('s')).text = name

    for node, rights in nodes.items():
        add(f'/{node}', node, rights)
    for program in PROGRAMS:
        add(OPERATOR, program, operator(nodes))
    ElementTree.indent(root, '  ')
    return f'{_HEAD}{ElementTree.tostring(root, "unicode")}\n'


_REFERENCE_HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from the running nodes and the docstrings of their services. -->
# Nodes: services, topics, actions

The names are those of nodes without a namespace on the package's arm. Those that begin with `~/`
are below the node: `~/run` of the node `leveling` is `/leveling/run`. Names of sensors follow from
parameters ([parameters.md](parameters.md)); topics of a link or a joint exist once for each. Every
node has the services of lifecycle nodes and of parameters, too.

`~/status` has phase, progress and counts as values, from a motion on also `longest turn`: the
longest time for which one callback kept the executor during motions of this service [ms]. What
monitors the arm waits for so long. It is wall time: other processes of a busy machine count.
"""
_VERB_NAMES = {('services', 'reply'): 'service', ('services', 'request'): 'calls',
               ('topics', 'publish'): 'publishes', ('topics', 'subscribe'): 'subscribes',
               ('actions', 'call'): 'action client'}
# What rclpy gives every node, or every lifecycle node.
_COMMON = ('rcl_interfaces/', 'lifecycle_msgs/', 'rosgraph_msgs/', 'type_description_interfaces/')


def _purpose(node: str, name: str) -> str:
    """Return the first sentence of a service's docstring."""
    if name == '~/cancel':
        return 'End the procedure and hold the arm.'
    method = getattr(node_classes()[node], name.removeprefix('~/'), None)
    return '' if method is None else str(method.__doc__).splitlines()[0].replace('``', '`')


def reference(nodes: Mapping[str, Interfaces]) -> str:
    """Return the page of services, topics and actions of each node."""
    page = _REFERENCE_HEAD
    for node, interfaces in nodes.items():
        page += f'\n## {node}\n\n| | name | type | purpose |\n|---|---|---|---|\n'
        for key, verb in _VERB_NAMES.items():
            rows = {(re.sub(r'^~/(link|joint)s/[^/]+', r'~/\1s/<\1>', name), kind)
                    for name, kind in interfaces.get(key, {}).items()
                    if not kind.startswith(_COMMON)}
            for name, kind in sorted(rows):
                purpose = _purpose(node, name) if verb == 'service' else ''
                page += f'| {verb} | `{name}` | {kind} | {purpose} |\n'
    return page


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as results:
        found = running(Path(results))
    POLICIES.parent.mkdir(exist_ok=True)
    POLICIES.write_text(text({node: permissions(item) for node, item in found.items()}),
                        encoding='utf-8')
    REFERENCE.write_text(reference(found), encoding='utf-8')
