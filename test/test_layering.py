# SPDX-License-Identifier: Apache-2.0
"""Which part of the package may import which, so that data have one way through it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from imports import MODULES, PACKAGE, ROOT, Import, imports_in, imports_of, name_of

ROS = re.compile(
    r'(rclpy|ament_index_python|launch|launch_ros|rosbag2_py|tf2_ros|tf_transformations'
    r'|.*_(interfaces|msgs|srvs))$'
)


@dataclass(frozen=True)
class Layer:
    """What the modules of one part may import.

    Attributes:
        parts: Other parts of the package.
        ros: Whether ROS is allowed.
        libraries: The only third-party modules; None allows any.

    """

    parts: frozenset[str]
    ros: bool = False
    libraries: frozenset[str] | None = None


_MATHEMATICS = frozenset({'numpy', 'scipy'})
LAYERS = {
    '': Layer(frozenset(), libraries=frozenset()),
    'errors': Layer(frozenset(), libraries=frozenset()),
    'resources': Layer(frozenset({'errors'}), ros=True, libraries=frozenset()),
    'core': Layer(frozenset({'errors'}),
                  libraries=_MATHEMATICS | {'pinocchio', 'coal', 'daqp', 'ompl'}),
    'io': Layer(frozenset({'errors', 'core', 'resources'})),
    'capabilities': Layer(frozenset({'errors', 'core', 'io'})),
    'ros': Layer(frozenset({'errors', 'core', 'io', 'capabilities', 'resources'}), ros=True),
    'sim': Layer(frozenset({'errors'}), libraries=_MATHEMATICS | {'mujoco', 'yaml'}),
    'nodes': Layer(
        frozenset({'errors', 'core', 'io', 'capabilities', 'ros', 'sim', 'resources'}), ros=True),
    'cli': Layer(frozenset({'errors', 'core', 'io', 'capabilities', 'ros', 'resources'}),
                 ros=True),
}
# The simulated robot is a robot: one node is it, and all others know it over ROS alone.
SIMULATION_NODE = re.compile(r'_?sim_')
# What compares estimates with the hidden truth has to know both.
TRUTH_READER = re.compile(rf'{PACKAGE}\.cli\.(demo|tours|benchmarks)(\.|$)')


def part_of(module: str) -> str:
    """Return the part of the package that a module is in, '' for the package itself."""
    names = module.split('.')[1:]
    return names[0] if names and names[0] in LAYERS else ''


def violations(module: str, imports: Iterable[Import]) -> list[str]:
    """Return a sentence for every import that the module's layer forbids."""
    part = part_of(module)
    layer = LAYERS[part]
    allowed = layer.parts
    if part == 'nodes' and not SIMULATION_NODE.match(module.rpartition('.')[2]):
        allowed -= {'sim'}
    if TRUTH_READER.match(module):
        allowed |= {'sim'}
    found = []
    for item in imports:
        if item.top == PACKAGE:
            target = part_of(item.module)
            if target not in {'', part} | allowed:
                found.append(f'line {item.line}: {part} must not import {item.module}')
        elif ROS.match(item.top):
            if not layer.ros:
                found.append(f'line {item.line}: {part} must not import ROS ({item.module})')
        elif (
            layer.libraries is not None
            and item.top not in layer.libraries
            and item.top not in sys.stdlib_module_names
        ):
            found.append(f'line {item.line}: {part} must not import {item.top}')
    return found


@pytest.mark.parametrize('path', MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    found = violations(name_of(path), imports_in(path))
    assert not found, f'{path.relative_to(ROOT)}: ' + '; '.join(found)


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {
        path.stem for path in (ROOT / PACKAGE).iterdir() if path.is_dir() or path.suffix == '.py'
    }
    assert parts - {'__init__', '__pycache__', 'py'} <= set(LAYERS)


@pytest.mark.parametrize(
    ('module', 'line'),
    [
        ('core.payload', 'import rclpy.node'),
        ('core.payload', 'from geometry_msgs.msg import Wrench'),
        ('core.payload', 'from robocal_ros import io'),
        ('core.payload', 'from ..ros import qos'),
        ('core.payload', 'import yaml'),
        ('core.payload', 'def late():\n    import robocal_ros.sim.truth'),
        ('io.bags', 'import rclpy'),
        ('ros.qos', 'from robocal_ros.nodes import sim_arm'),
        ('sim.physics', 'from robocal_ros.core.robot import Robot'),
        ('nodes.payload_identification', 'from robocal_ros.sim.truth import HiddenTruth'),
        ('cli.show', 'from robocal_ros.sim.truth import HiddenTruth'),
        ('errors', 'import numpy'),
    ],
)
def test_a_forbidden_import_is_found(module: str, line: str) -> None:
    name = f'{PACKAGE}.{module}'
    assert len(violations(name, imports_of(line, name))) == 1


@pytest.mark.parametrize(
    ('module', 'line'),
    [
        ('core.payload', 'import numpy, scipy.linalg, pinocchio'),
        ('core.payload', 'from .samples import JointSamples'),
        ('nodes.sim_arm', 'from robocal_ros.sim.truth import HiddenTruth'),
        ('cli.run', 'from robocal_ros.ros import qos'),
        ('io.report', 'from robocal_ros import __version__'),
    ],
)
def test_an_allowed_import_is_let_pass(module: str, line: str) -> None:
    name = f'{PACKAGE}.{module}'
    assert violations(name, imports_of(line, name)) == []
