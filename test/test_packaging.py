# SPDX-License-Identifier: Apache-2.0
"""The package as built by colcon, and its declared dependencies."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from support.imports import INSTALLED, MODULES, PACKAGE, ROOT, imports_in

import robocal_ros
from robocal_ros import registry
from robocal_ros.resources import share_directory

SHARED_FOLDERS = ('config', 'launch', 'urdf')
NOT_BUILT = shutil.ignore_patterns('.*', 'build', 'install', 'log', '__pycache__', '*.egg-info')
# Modules of libraries: rosdep key and PyPI package; None where there is none, or it is optional.
LIBRARIES = {
    'argcomplete': ('python3-argcomplete', 'argcomplete'),
    'coal': ('pinocchio', 'pin'),
    'cv2': ('python3-opencv', 'opencv-python-headless'),
    'daqp': (None, 'daqp'),
    # The extra of setup.py for `robocal fleet`; nothing else needs them.
    'dask': (None, None),
    'distributed': (None, None),
    'duckdb': (None, None),
    'fsspec': (None, None),
    'pyarrow': (None, None),
    # Benchmarks compare with these where they are installed.
    'cvxpy': (None, None),
    'figaroh': (None, None),
    'idyntree': (None, None),
    'launch': ('launch', None),
    'launch_ros': ('launch_ros', None),
    'msgspec': (None, 'msgspec'),
    'mujoco': ('python3-mujoco-pip', 'mujoco'),
    'numpy': ('python3-numpy', 'numpy'),
    'ompl': (None, 'ompl'),
    'pinocchio': ('pinocchio', 'pin'),
    # Takes the picture of the README, with the requirements of the tests.
    'playwright': (None, None),
    'jinja2': ('python3-jinja2', 'jinja2'),
    'lazy_loader': (None, 'lazy-loader'),
    'plotly': (None, 'plotly'),
    'rich': ('python3-rich', 'rich'),
    'rosbags': ('python3-rosbags-pip', 'rosbags'),
    'scipy': ('python3-scipy', 'scipy'),
    'tf_transformations': ('tf_transformations', None),
    'transforms3d': ('python3-transforms3d', 'transforms3d'),
    'viser': (None, 'viser'),
    # Part of viser, which serves through it.
    'websockets': (None, 'viser'),
    'xacro': ('xacro', 'xacro'),
    'yaml': ('python3-yaml', 'PyYAML'),
}
# Built into the environment from folders of scripts/.
NOT_ON_PYPI = {'control_msgs', 'tf2_msgs'}


@pytest.fixture(scope='module')
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install folder of the package, built by colcon from a copy of the repository."""
    workspace = tmp_path_factory.mktemp('workspace')
    shutil.copytree(ROOT, workspace / 'src' / PACKAGE, ignore=NOT_BUILT)
    colcon = shutil.which('colcon', path=f'{Path(sys.executable).parent}:{os.environ["PATH"]}')
    assert colcon is not None, 'colcon is missing; scripts/test installs it'
    done = subprocess.run(
        [colcon, 'build', '--event-handlers', 'console_direct+'],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace / 'install' / PACKAGE


@pytest.fixture(scope='module')
def site_packages(prefix: Path) -> Path:
    """Folder of the built package for PYTHONPATH."""
    (folder,) = prefix.glob('lib/python*/site-packages')
    return folder


@pytest.fixture(scope='module')
def console_scripts(site_packages: Path) -> dict[str, str]:
    """Declared executables and the functions they call."""
    (path,) = site_packages.glob('*/entry_points.txt')
    parser = configparser.ConfigParser()
    parser.read(path)
    return dict(parser['console_scripts'])


def files_below(folder: Path) -> set[str]:
    """Return the relative paths of the files in a folder, without byte code."""
    found = (path.relative_to(folder) for path in folder.rglob('*') if path.is_file())
    return {str(path) for path in found if '__pycache__' not in path.parts}


def test_every_executable_is_where_ros2_run_looks(
    prefix: Path, console_scripts: dict[str, str]
) -> None:
    folder = prefix / 'lib' / PACKAGE
    assert {path.name for path in folder.iterdir()} == set(console_scripts)
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())


def test_every_executable_has_its_function(console_scripts: dict[str, str]) -> None:
    for target in console_scripts.values():
        module, _, function = target.partition(':')
        assert callable(getattr(importlib.import_module(module), function)), target


def test_every_node_has_an_executable(console_scripts: dict[str, str]) -> None:
    folders = {path.parent.name for path in (ROOT / PACKAGE).glob('*/node.py')}
    assert {module.split('.')[1] for module in registry.nodes().values()} == folders
    assert set(registry.nodes()) <= set(console_scripts)


def test_the_package_is_in_the_ament_index(prefix: Path) -> None:
    assert (prefix / 'share/ament_index/resource_index/packages' / PACKAGE).is_file()
    assert (prefix / 'share' / PACKAGE / 'package.xml').is_file()


@pytest.mark.parametrize('folder', SHARED_FOLDERS)
def test_every_shared_file_is_installed(prefix: Path, folder: str) -> None:
    assert files_below(prefix / 'share' / PACKAGE / folder) == files_below(ROOT / folder)


def test_every_module_and_data_file_is_installed(site_packages: Path) -> None:
    assert files_below(site_packages / PACKAGE) == files_below(ROOT / PACKAGE)


@pytest.mark.parametrize('indexed', [True, False])
def test_installed_code_finds_the_installed_files(
    prefix: Path, site_packages: Path, indexed: bool
) -> None:
    program = (
        'from robocal_ros import resources; import sys; '
        'sys.stdout.write(resources.__file__ + " " + str(resources.share_directory()))'
    )
    inherited = os.environ.get('PYTHONPATH', '')
    environment = {**os.environ, 'PYTHONPATH': f'{site_packages}:{inherited}'}
    environment.pop('AMENT_PREFIX_PATH', None)
    if indexed:
        environment['AMENT_PREFIX_PATH'] = str(prefix)
    else:
        program = f'import sys; sys.prefix = {str(prefix)!r}; ' + program
    done = subprocess.run(
        [sys.executable, '-c', program],
        cwd=prefix,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    code, share = done.stdout.split()
    assert Path(code).is_relative_to(site_packages)
    assert Path(share) == prefix / 'share' / PACKAGE


def test_code_in_a_checkout_finds_the_files_of_the_checkout() -> None:
    assert share_directory() == ROOT


def declared_dependencies() -> set[str]:
    """Return the runtime dependencies of package.xml."""
    root = ElementTree.parse(ROOT / 'package.xml').getroot()
    return {element.text or '' for tag in ('depend', 'exec_depend') for element in root.iter(tag)}


def pinned_requirements() -> dict[str, set[str]]:
    """Return the versions that each PyPI package is pinned to."""
    pins: dict[str, set[str]] = {}
    for line in (ROOT / 'scripts/requirements/runtime.txt').read_text().splitlines():
        if line and not line.startswith('#'):
            match = re.fullmatch(r"([\w-]+)==([\w.]+)(; python_version [<>]=? '[\d.]+')?", line)
            assert match is not None, f'not one exact version: {line}'
            pins.setdefault(match[1], set()).add(match[2])
    return pins


@pytest.fixture(scope='module')
def imported() -> set[str]:
    """Imported top-level modules outside the standard library."""
    found = {item.top for path in MODULES for item in imports_in(path)}
    return found - sys.stdlib_module_names - {*INSTALLED, 'demo', 'benchmarks'}


def test_package_xml_names_everything_imported(imported: set[str]) -> None:
    keys = {LIBRARIES[name][0] if name in LIBRARIES else name for name in imported}
    assert keys - {None} <= declared_dependencies()


def test_the_requirements_name_everything_imported(imported: set[str]) -> None:
    wanted = {
        LIBRARIES[name][1] if name in LIBRARIES else f'ros-{name.replace("_", "-")}'
        for name in imported - NOT_ON_PYPI
    }
    assert wanted - {None} <= set(pinned_requirements())


def test_constraints_hold_every_requirement_at_the_same_version() -> None:
    folder = ROOT / 'scripts' / 'requirements'
    locked = set()
    for line in (folder / 'constraints.txt').read_text().splitlines():
        locked.add(line.partition(';')[0].strip().lower())
    for name in ('runtime', 'build', 'test'):
        for line in (folder / f'{name}.txt').read_text().splitlines():
            if line and not line.startswith('#'):
                assert line.partition(';')[0].strip().lower() in locked, line


def test_the_version_is_the_same_everywhere(site_packages: Path) -> None:
    stated = ElementTree.parse(ROOT / 'package.xml').getroot().findtext('version')
    assert stated == robocal_ros.__version__
    assert list(site_packages.glob(f'{PACKAGE}-{stated}-*.egg-info'))
