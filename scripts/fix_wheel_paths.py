# SPDX-License-Identifier: Apache-2.0
"""Point the CMake files of the ROS 2 wheels at this environment.

The wheels' exports name the include folders of Python and NumPy on the machine that built them.
CMake refuses folders that do not exist, so they are replaced by this interpreter's own. Run by
the environment's Python; running it again changes nothing.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import numpy

_FOREIGN = r'/opt/python/cp\d+-cp\d+'
_NUMPY = re.compile(_FOREIGN + r'/lib/python[\d.]+/site-packages/numpy/_?core/include')
_PYTHON = re.compile(_FOREIGN + r'/include/python[\d.]+\d')


def fix(path: Path) -> None:
    """Rewrite one file if it names a foreign folder."""
    before = path.read_text(encoding='utf-8')
    after = _NUMPY.sub(lambda _: numpy.get_include(), before)
    after = _PYTHON.sub(lambda _: sysconfig.get_path('include'), after)
    if after != before:
        # A new file, not a change in place: installers may hard-link files to their cache.
        new = path.with_suffix('.new')
        new.write_text(after, encoding='utf-8')
        new.replace(path)


for export in sorted((Path(sys.prefix) / 'share').glob('*/cmake/*.cmake')):
    fix(export)
