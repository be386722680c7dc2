# SPDX-License-Identifier: Apache-2.0
"""Location of the package's files: `config/`, `launch/` and `urdf/`."""

from __future__ import annotations

import sys
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

from robocal_ros.errors import ConfigurationError

_PACKAGE = 'robocal_ros'


def share_directory() -> Path:
    """Return the folder that contains `package.xml`, `config/`, `launch/` and `urdf/`.

    A source checkout (also a linked one) comes first, so that code and files are of one version;
    then the share folder of the ament index, then that of the interpreter's prefix.

    Raises:
        ConfigurationError: If none of them contains the package's files.

    """
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / 'package.xml').is_file():
        return checkout
    try:
        return Path(get_package_share_directory(_PACKAGE))
    # The index raises OSError if no AMENT_PREFIX_PATH is set.
    except (PackageNotFoundError, OSError):
        installed = Path(sys.prefix) / 'share' / _PACKAGE
    if (installed / 'package.xml').is_file():
        return installed
    raise ConfigurationError(
        f'The files of {_PACKAGE} (config, launch, urdf) were not found: expected package.xml in '
        f'{checkout}, in {installed}, or the package in the ament index. Source the workspace '
        'in which it was built, or run it from its source checkout.')
