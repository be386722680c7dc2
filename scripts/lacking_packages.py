# SPDX-License-Identifier: Apache-2.0
"""List the requirements that a ROS 2 distribution does not provide.

usage: lacking_packages.py KEPT REQUIREMENTS...

Prints the lines of the requirement files whose module cannot be found, and writes constraints for
pip to KEPT: the versions of installed packages that must not change.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Modules whose name differs from the package; None where there is no module.
_MODULES = {
    'colcon-common-extensions': 'colcon_core',
    'example-robot-data': 'example_robot_data',
    'lazy-loader': 'lazy_loader',
    'myst-parser': 'myst_parser',
    'pin': 'pinocchio',
    'pytest-xdist': 'xdist',
    'PyYAML': 'yaml',
    'scipy-stubs': None,
    'types-PyYAML': None,
}
_KEPT = ('numpy', 'scipy')


def is_lacking(requirement: str) -> bool:
    """Return whether pip has to install the package of a line of a requirement file."""
    name = re.split(r'[=;<>~ ]', requirement, maxsplit=1)[0]
    if not name or name.startswith(('#', 'ros-')):
        return False
    module = _MODULES.get(name, name)
    return module is None or importlib.util.find_spec(module) is None


def kept_versions() -> list[str]:
    """Return pins of the installed packages that compiled ROS messages depend on."""
    pins = []
    for name in _KEPT:
        try:
            pins.append(f'{name}=={version(name)}')
        except PackageNotFoundError:
            continue
    return pins


def main(kept: str, *files: str) -> None:
    """Write the two lists."""
    Path(kept).write_text('\n'.join([*kept_versions(), '']), encoding='utf-8')
    for file in files:
        for line in Path(file).read_text(encoding='utf-8').splitlines():
            if is_lacking(line):
                sys.stdout.write(f'{line}\n')


main(*sys.argv[1:])
