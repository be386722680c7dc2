# SPDX-License-Identifier: Apache-2.0
"""Package build for colcon and pip."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = 'robocal_ros'
ROOT = Path(__file__).resolve().parent
SHARE = f'share/{PACKAGE}'


def version() -> str:
    """Return the version stated in `robocal_ros/__init__.py`.

    Raises:
        RuntimeError: The file states no version.

    """
    path = ROOT / PACKAGE / '__init__.py'
    found = re.search(r"^__version__ = '([^']+)'$", path.read_text(encoding='utf-8'), re.M)
    if found is None:
        raise RuntimeError(f"{path} has no line of the form __version__ = '1.2.3'; add it")
    return found[1]


def shared_files() -> list[tuple[str, list[str]]]:
    """Return the files to install below share, by destination folder."""
    targets: dict[str, list[str]] = {
        'share/ament_index/resource_index/packages': [f'resource/{PACKAGE}'],
        SHARE: ['package.xml'],
    }
    for folder in ('config', 'launch', 'urdf'):
        for path in sorted((ROOT / folder).rglob('*')):
            if path.is_file() and '__pycache__' not in path.parts:
                relative = path.relative_to(ROOT)
                targets.setdefault(f'{SHARE}/{relative.parent}', []).append(str(relative))
    return list(targets.items())


setup(
    name=PACKAGE,
    version=version(),
    description='Lifecycle nodes that calibrate a robot arm',
    license='Apache-2.0',
    url='https://github.com/robocal-ros/robocal_ros',
    maintainer='robocal_ros maintainers',
    maintainer_email='robocal-ros@users.noreply.github.com',
    packages=find_packages(include=[PACKAGE, f'{PACKAGE}.*', 'robocal_sim']),
    package_data={PACKAGE: ['py.typed', '*.pyi', '*/*.pyi', 'templates/*']},
    data_files=shared_files(),
    python_requires='>=3.10',
    install_requires=['setuptools'],
    # `robocal fleet`: nothing else imports these.
    extras_require={'fleet': ['distributed', 'duckdb', 'fsspec', 'pyarrow']},
    zip_safe=False,
    entry_points={
        'console_scripts': [
            'compliance_calibration = robocal_ros.node.executables:compliance_calibration',
            'friction_identification = robocal_ros.node.executables:friction_identification',
            'leveling = robocal_ros.node.executables:leveling',
            'payload_identification = robocal_ros.node.executables:payload_identification',
            'sim_arm = robocal_sim.executable:sim_arm',
            'wrench_observer = robocal_ros.node.executables:wrench_observer',
            'robocal = robocal_ros.cli.main:main',
        ],
    },
)
