# SPDX-License-Identifier: Apache-2.0
"""Where the files that come with the package lie: `config/`, `launch/` and `urdf/`."""

from __future__ import annotations

import sys
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

from robocal_ros.errors import ConfigurationError

_PACKAGE = 'robocal_ros'


def share_directory() -> Path:
    """Return the folder that holds `package.xml`, `config/`, `launch/` and `urdf/`.

    Code that runs out of a source checkout (also one linked into an environment or a
    workspace) gets the checkout, so that code and files never come from two versions. Code that
    was installed gets the share folder, through the ament index or below the prefix of the
    running interpreter.

    Raises:
        ConfigurationError: None of these places holds the package's files.

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
        'that it was built in, or run it from its source checkout.'
    )
