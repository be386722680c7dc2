# SPDX-License-Identifier: Apache-2.0
"""The example parameter files of other robots: every name exists and every value is allowed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.parameter_files import node_classes, tables
from support.ros_rig import ROOT, overrides

from robocal_ros import parameters
from robocal_ros.node.calibration_node import SUCCESS

pytestmark = pytest.mark.usefixtures('ros')

SECTIONS = [
    (path.stem, key.rpartition('/')[2], section['ros__parameters'])
    for path in sorted((ROOT / 'config' / 'examples').glob('*.yaml'))
    for key, section in yaml.safe_load(path.read_text(encoding='utf-8')).items()
]


@pytest.mark.parametrize(('file', 'node', 'given'), SECTIONS,
                         ids=[f'{file}-{node}' for file, node, _ in SECTIONS])
def test_every_parameter_is_known_and_in_its_range(
    file: str, node: str, given: dict[str, Any]
) -> None:
    known = {item.name: item for item in parameters.declarations(tables()[node])}
    assert set(given) <= set(known)
    for name, value in given.items():
        default = known[name].default
        assert type(value) is type(default), name
        if isinstance(value, list):
            assert {type(element) for element in value} == {type(default[0])}, name
        assert not known[name].problem(value), name


def test_they_cover_every_node() -> None:
    covered = {file: {node for name, node, _ in SECTIONS if name == file}
               for file in ('universal_robots', 'franka')}
    assert covered['universal_robots'] == set(tables())
    assert covered['franka'] == set(tables()) - {'wrench_observer'}


def foreign_urdf(name: str) -> str:
    """Return the URDF text of a robot that the tests' requirements bring."""
    (path,) = Path(sys.prefix).glob(
        f'lib/python*/site-packages/cmeel.prefix/share/example-robot-data/robots/*/urdf/{name}')
    return path.read_text(encoding='utf-8')


@pytest.mark.parametrize(('file', 'node', 'given'), SECTIONS,
                         ids=[f'{file}-{node}' for file, node, _ in SECTIONS])
def test_the_node_configures_on_such_a_robot(
    file: str, node: str, given: dict[str, Any], tmp_path: Path
) -> None:
    urdf = foreign_urdf('ur10_robot.urdf' if file == 'universal_robots' else 'panda.urdf')
    values = {name: 'panda_link8' if value == 'fr3_link8' else value
              for name, value in given.items()}
    subject = node_classes()[node](node, parameter_overrides=overrides(
        **values, robot_description=urdf, results_dir=str(tmp_path)))
    assert subject.trigger_configure() == SUCCESS
    subject.trigger_cleanup()
    subject.destroy_node()
