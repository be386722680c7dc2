# SPDX-License-Identifier: Apache-2.0
"""Layers of the package: imports point one way, and few modules import ROS."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.imports import MODULES, PACKAGE, ROOT, Import, imports_in, imports_of, lent, name_of

ROS = re.compile(
    r'(rclpy|ament_index_python|launch|launch_ros|rosbag2_py|tf2_ros|tf_transformations'
    r'|.*_(interfaces|msgs|srvs))$'
)


@dataclass(frozen=True)
class Layer:
    """Permitted imports of one folder of the package.

    Attributes:
        below: Other layers that it may import, besides modules at the top of the package.
        ros: Modules that may import ROS; None for all.

    """

    below: frozenset[str]
    ros: frozenset[str] | None = frozenset()


_BELOW = frozenset({'results', 'robot', 'messages', 'estimation', 'estimators', 'arm', 'node'})
LAYERS = {
    '': Layer(frozenset(), frozenset({'resources'})),
    'results': Layer(frozenset()),
    'robot': Layer(frozenset({'results'})),
    'messages': Layer(frozenset({'results', 'robot'}), None),
    'estimation': Layer(frozenset({'robot', 'messages'})),
    'estimators': Layer(frozenset({'results', 'robot', 'messages'})),  # one module
    'arm': Layer(frozenset({'robot', 'messages'}), None),
    'node': Layer(frozenset({'results', 'robot', 'messages', 'estimators', 'arm'}), None),
    'payload': Layer(_BELOW, frozenset({'node'})),
    'friction': Layer(_BELOW | {'payload'}, frozenset({'node'})),
    'compliance': Layer(_BELOW, frozenset({'node'})),
    'leveling': Layer(_BELOW, frozenset({'node'})),
    'wrench': Layer(_BELOW, frozenset({'node', 'outputs'})),
    'launching': Layer(frozenset({'messages'}), None),  # one module
    'offline': Layer(_BELOW - {'arm', 'node'}),  # one module
    'fleet': Layer(frozenset({'results', 'robot', 'messages', 'estimators', 'offline', 'wrench'})),
    'cli': Layer(_BELOW | {'offline', 'fleet', 'payload', 'friction', 'compliance', 'wrench'},
                 None),
}
FLEET_LIBRARIES = {'dask', 'distributed', 'duckdb', 'fsspec', 'pyarrow'}
_PRODUCT = frozenset({PACKAGE})
PACKAGES = {
    PACKAGE: _PRODUCT,
    'robocal_sim': _PRODUCT | {'robocal_sim'},
    'demo': _PRODUCT | {'robocal_sim', 'demo'},
    'benchmarks': _PRODUCT | {'robocal_sim', 'demo', 'benchmarks'},
}
"""Packages that each package may import: the product imports no other."""
LENT = lent()
# The simulation must be able to prove the estimators wrong, and shares no mathematics with them.
SHARED_WITH_SIMULATION = ('errors', 'resources', 'messages.qos', 'messages.conversions',
                          'node.executables')


def layer_of(module: str) -> str:
    """Return the layer of a module of the package, '' for modules at its top."""
    names = module.split('.')[1:]
    return names[0] if names and names[0] in LAYERS else ''


def is_folder(layer: str) -> bool:
    """Return whether a layer is a package, not a single module."""
    return (ROOT / PACKAGE / layer).is_dir()


def unlent(imports: Iterable[Import], own: str = '') -> list[str]:
    """Return a sentence for every import from inside a package that does not lend the name.

    Args:
        imports: The imports.
        own: Package whose modules may import each other.

    """
    return [f'line {item.line}: {item.module} is internal; import what __init__.pyi lists'
            for item in imports
            if item.top == PACKAGE and layer_of(item.module) not in {'', own}
            and is_folder(layer_of(item.module)) and item.module not in LENT]


def violations(module: str, imports: Sequence[Import]) -> list[str]:
    """Return a sentence for every import that the module's layer forbids."""
    own = module.partition('.')[0]
    found = []
    for item in imports:
        if item.top in PACKAGES and item.top not in PACKAGES[own]:
            found.append(f'line {item.line}: {own} must not import {item.module}')
    if own == 'robocal_sim':
        allowed = tuple(f'{PACKAGE}.{name}' for name in SHARED_WITH_SIMULATION)
        found += [f'line {item.line}: the simulation must not import {item.module}'
                  for item in imports
                  if item.top == PACKAGE
                  and not LENT.get(item.module, item.module).startswith(allowed)]
    if own != PACKAGE:
        return found
    name = layer_of(module)
    layer = LAYERS[name]
    found += unlent(imports, name)
    for item in imports:
        if item.top == PACKAGE:
            target = layer_of(item.module)
            if target not in {'', name} | layer.below:
                found.append(f'line {item.line}: {name or module} must not import {item.module}')
        elif ROS.match(item.top) and layer.ros is not None \
                and module.rpartition('.')[2] not in layer.ros:
            found.append(f'line {item.line}: {module} must not import ROS ({item.module})')
    return found


@pytest.mark.parametrize('path', MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_layer_allows(path: Path) -> None:
    found = violations(name_of(path), imports_in(path))
    assert not found, f'{path.relative_to(ROOT)}: ' + '; '.join(found)


@pytest.mark.parametrize('path', [*sorted((ROOT / 'examples').glob('*.py')),
                                  *sorted((ROOT / 'docs').glob('*.md')), ROOT / 'README.md'],
                         ids=lambda path: path.name)
def test_examples_and_pages_import_what_packages_lend(path: Path) -> None:
    text = path.read_text(encoding='utf-8')
    sources = [text] if path.suffix == '.py' else re.findall(r'```python\n(.*?)```', text, re.S)
    assert not [item for source in sources for item in unlent(list(imports_of(source)))]


@pytest.mark.parametrize('package', sorted({name.rpartition('.')[0] for name in LENT}))
def test_a_package_has_what_it_lends(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(
        name.rpartition('.')[2] for name in LENT if name.rpartition('.')[0] == package)
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_the_libraries_of_the_fleet_are_imported_by_it_alone() -> None:
    """Nodes start as fast, and need no more, than without it."""
    users = {name_of(path) for path in MODULES if name_of(path).startswith(f'{PACKAGE}.')
             for item in imports_in(path) if item.top in FLEET_LIBRARIES}
    assert {layer_of(module) for module in users - {'robocal_ros.cli.fleet'}} == {'fleet'}
    program = ('import sys; from robocal_ros.cli import fleet, main; '
               'main.build_parser(); '
               f'sys.exit(bool({FLEET_LIBRARIES} & set(sys.modules)))')
    subprocess.run([sys.executable, '-c', program], check=True, timeout=60.0)


def sorted_modules(imported: dict[str, set[str]]) -> list[str]:
    """Return modules so that each follows those that it imports; CycleError for a circle."""
    return list(TopologicalSorter(imported).static_order())


def test_no_module_imports_itself_through_others() -> None:
    """Imports for type checking and those inside functions count too."""
    names = {name_of(path) for path in MODULES if path.name != '__init__.py'}
    imported = {
        name_of(path): {target for item in imports_in(path)
                        for target in (LENT.get(item.module, item.module),
                                       item.module.rpartition('.')[0])
                        if target in names and target != name_of(path)}
        for path in MODULES}
    assert set(sorted_modules(imported)) >= names


def test_a_circle_of_imports_is_found() -> None:
    with pytest.raises(CycleError):
        sorted_modules({'a': {'b'}, 'b': {'c'}, 'c': {'a'}})


def test_every_folder_of_the_package_is_a_layer() -> None:
    folders = {path.name for path in (ROOT / PACKAGE).iterdir() if any(path.glob('*.py'))}
    assert folders | {'estimators', 'launching', 'offline'} == set(LAYERS) - {''}


@pytest.mark.parametrize(('module', 'line'), [
    ('robocal_ros.estimation.signals', 'import rclpy.node'),
    ('robocal_ros.robot.model', 'from geometry_msgs.msg import Wrench'),
    ('robocal_ros.payload.estimator', 'import rclpy'),
    ('robocal_ros.robot.model', 'from robocal_ros import messages'),
    ('robocal_ros.payload.model', 'from robocal_ros.friction.model import DIRECTIONS'),
    ('robocal_ros.payload.model', 'from robocal_ros.robot.model import Robot'),
    ('robocal_ros.payload.model', 'def late():\n    import robocal_sim.truth'),
    ('robocal_ros.cli.show', 'from demo import default_cell'),
    ('robocal_sim.physics', 'from robocal_ros.robot.model import Robot'),
    ('demo.stage', 'import benchmarks.arm'),
])
def test_a_forbidden_import_is_found(module: str, line: str) -> None:
    assert violations(module, list(imports_of(line, module)))


@pytest.mark.parametrize(('module', 'line'), [
    ('robocal_ros.payload.model', 'import numpy, scipy.linalg, pinocchio'),
    ('robocal_ros.payload.model', 'from .samples import JointSamples'),
    ('robocal_ros.payload.model', 'from robocal_ros.robot import Robot'),
    ('robocal_ros.cli.run', 'from robocal_ros.messages import qos'),
    ('robocal_sim.node', 'from robocal_ros.messages import qos'),
    ('demo.stage', 'from robocal_sim.truth import HiddenTruth'),
])
def test_an_allowed_import_passes(module: str, line: str) -> None:
    assert violations(module, list(imports_of(line, module))) == []
