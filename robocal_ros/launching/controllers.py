# SPDX-License-Identifier: Apache-2.0
"""The controllers that a ros2_control parameter file names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from robocal_ros.errors import ConfigurationError

_MANAGER = 'controller_manager'


@dataclass(frozen=True)
class Controller:
    """A controller to spawn.

    Attributes:
        name: Its name.
        type: Its plugin, ``package/Class``.

    """

    name: str
    type: str

    @property
    def package(self) -> str:
        """The package that the plugin comes with."""
        return self.type.partition('/')[0]


def controllers_in(file: str) -> list[Controller]:
    """Return the controllers whose type a parameter file tells the controller manager.

    Args:
        file: A ROS parameter file; the manager's key may have any namespace.

    Raises:
        ConfigurationError: If it is no such file, or names no controller.

    """
    try:
        content = yaml.safe_load(Path(file).read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f'{file} is no parameter file: {error}') from error
    found = []
    for key, section in (content.items() if isinstance(content, dict) else ()):
        if str(key).rpartition('/')[2] != _MANAGER or not isinstance(section, dict):
            continue
        for name, values in (section.get('ros__parameters') or {}).items():
            if isinstance(values, dict) and isinstance(values.get('type'), str):
                found.append(Controller(str(name), values['type']))
    if not found:
        raise ConfigurationError(
            f'{file} names no controller: expected {_MANAGER} → ros__parameters → <controller> → '
            'type, as in config/controllers.yaml.')
    return found
