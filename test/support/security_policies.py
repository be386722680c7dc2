# SPDX-License-Identifier: Apache-2.0
"""SROS 2 policies from the graph of the running nodes; run this module to write them."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter

from demo import default_cell
from demo.compliance import known_load
from robocal_ros.node.calibration_node import SUCCESS
from support.parameter_files import ROOT, node_classes

POLICIES = ROOT / 'config' / 'sros2' / 'policies.xml'
OPERATOR, PROGRAMS = '/operator', ('robocal_run', 'robocal_doctor', 'robocal_recorder')
# What nodes use of the arm and its sensors depends on these.
PARAMETERS = {
    'payload_identification': {'method': 'static_poses', 'sensor_frame': 'ft_wrist'},
    'friction_identification': {'temperature_topic': 'temperature'},
    'compliance_calibration': {**known_load(default_cell.hidden_truth()),
                               'attach_service': 'sim_arm/attach_load',
                               'detach_service': 'sim_arm/detach_load'},
    'leveling': {'imu_topic': 'imu_flange/imu'},
    'wrench_observer': {'tool_wrench_frame': 'gripper'},
}

Rights = dict[tuple[str, str], set[str]]
"""Names by kind and right, such as ('topics', 'publish')."""

_VERBS = (('publisher', 'topics', 'publish'), ('subscriber', 'topics', 'subscribe'),
          ('service', 'services', 'reply'), ('client', 'services', 'request'))
_ACTION = '/_action/'
# Looks at the graph in a row that see the same, until it counts as complete.
_LOOKS_ALIKE = 4
_HEAD = """\
<?xml version='1.0' encoding='utf-8'?>
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- What each node of this package may do, and no more: its topics, services and actions on the
     default arm, without a namespace. Other sensors, another controller: rename them here.
     docs/safety.md says how to use it. Generated from the running nodes. -->
"""


def generalized(name: str, node: str) -> str:
    """Return a name relative to its node, with * for the joints and links of an arm."""
    if name.startswith(f'/{node}/'):
        name = f'~{name[len(node) + 1:]}'
        return re.sub(r'^~/(links|joints)/.*', r'~/\1/*', name)
    return name


def used(look: Node, node: str) -> Rights:
    """Return what a node in the graph uses."""
    found: Rights = {}
    for what, kind, right in _VERBS:
        names = getattr(look, f'get_{what}_names_and_types_by_node')(node, '/')
        for name, _ in names:
            if _ACTION in name:
                found.setdefault(('actions', 'call'), set()).add(name.partition(_ACTION)[0])
            else:
                found.setdefault((kind, right), set()).add(generalized(name, node))
    # Subscribed until it has arrived.
    found.setdefault(('topics', 'subscribe'), set()).add('/robot_description')
    return found


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


def running(folder: Path) -> dict[str, Rights]:
    """Configure and activate all nodes in this process; return what each uses."""
    look = rclpy.create_node('observer')
    nodes = []
    try:
        for name, make in node_classes().items():
            values = {'robot_description': default_cell.urdf(), 'results_dir': str(folder),
                      'use_sim_time': True, **PARAMETERS.get(name, {})}
            nodes.append(make(name, parameter_overrides=[
                Parameter(key, value=value) for key, value in values.items()]))
            assert nodes[-1].trigger_configure() == SUCCESS
            assert nodes[-1].trigger_activate() == SUCCESS
        # Entities appear in the graph a moment after they are made.
        end, alike, found = time.monotonic() + 60.0, 0, {}
        while time.monotonic() < end and alike < _LOOKS_ALIKE:
            time.sleep(0.5)
            names = dict(look.get_node_names_and_namespaces())
            if not all(node.get_name() in names for node in nodes):
                continue
            known, found = found, {node.get_name(): used(look, node.get_name()) for node in nodes}
            complete = all(('services', 'reply') in rights and ('topics', 'publish') in rights
                           for rights in found.values())
            alike = alike + 1 if complete and known == found else 0
        return found
    finally:
        for node in nodes:
            node.release()
            node.destroy_node()
        look.destroy_node()


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


if __name__ == '__main__':
    rclpy.init()
    POLICIES.parent.mkdir(exist_ok=True)
    POLICIES.write_text(text(running(Path('/tmp'))), encoding='utf-8')
