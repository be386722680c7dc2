# SPDX-License-Identifier: Apache-2.0
"""What there is to start, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ament_index_python.packages import PackageNotFoundError, get_package_prefix

from robocal_ros.errors import ConfigurationError

Remapping: TypeAlias = tuple[str, str]

PACKAGE = 'robocal_ros'
NODES = (
    'payload_identification',
    'friction_identification',
    'compliance_calibration',
    'wrench_observer',
    'leveling',
)
"""The lifecycle nodes, one for each capability."""
ESTIMATING = NODES[:3]
"""Those that make a result of what they have recorded."""

TF_IN_NAMESPACE: tuple[Remapping, ...] = (('/tf', 'tf'), ('/tf_static', 'tf_static'))
"""Keeps the frames of two arms of one type apart; without a namespace it changes nothing."""
CLOCK_IN_NAMESPACE: tuple[Remapping, ...] = (('/clock', 'clock'),)
"""Keeps the clocks of two simulators apart."""


@dataclass(frozen=True)
class Process:
    """A node in a process of its own.

    Attributes:
        package: The ROS package that it comes with.
        executable: Its executable there.
        name: Name of the node; empty keeps the one that it gives itself.
        namespace: Absolute namespace, empty for the root.
        parameters: Parameter files (str) and values (mappings); later ones win.
        remappings: Pairs of names, from and to.
        arguments: Command line in front of what ROS adds.
        lifecycle: Whether it is a lifecycle node.
        required: Whether everything ends when it does.

    """

    package: str
    executable: str
    name: str = ''
    namespace: str = ''
    parameters: tuple[str | Mapping[str, Any], ...] = ()
    remappings: tuple[Remapping, ...] = ()
    arguments: tuple[str, ...] = ()
    lifecycle: bool = False
    required: bool = False


@dataclass(frozen=True)
class Command:
    """A command that is no node.

    Attributes:
        words: Program and arguments.

    """

    words: tuple[str, ...]


@dataclass(frozen=True)
class Inclusion:
    """A launch file of another package.

    Attributes:
        package: The package.
        file: The file's path in the package's share folder.
        arguments: Its launch arguments.

    """

    package: str
    file: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Remark:
    """Something that the user is told.

    Attributes:
        text: A sentence.

    """

    text: str


Item: TypeAlias = Process | Command | Inclusion | Remark


def is_installed(package: str) -> bool:
    """Return whether a ROS package is found in the sourced workspaces."""
    try:
        get_package_prefix(package)
    # The index raises OSError if no AMENT_PREFIX_PATH is set.
    except (PackageNotFoundError, OSError):
        return False
    return True


def require(packages: Iterable[str], purpose: str, installed: Callable[[str], bool]) -> None:
    """Refuse if packages are missing, before anything is started.

    Args:
        packages: Names of ROS packages.
        purpose: What needs them, as the user asked for it.
        installed: Tells whether a package is there.

    Raises:
        ConfigurationError: With all that are missing.

    """
    missing = [name for name in dict.fromkeys(packages) if not installed(name)]
    if missing:
        debian = ' '.join(f'ros-$ROS_DISTRO-{name.replace("_", "-")}' for name in missing)
        raise ConfigurationError(
            f'{purpose} needs {", ".join(missing)}, which no sourced workspace has. Install '
            f'them (sudo apt install {debian}) or source the workspace that holds them.')


def capability_nodes(
    names: Iterable[str],
    namespace: str,
    params_file: str,
    overrides: Mapping[str, Any],
    remappings: tuple[Remapping, ...] = (),
) -> list[Process]:
    """Return the lifecycle nodes.

    Args:
        names: Which of ``NODES``.
        namespace: Absolute namespace, empty for the root.
        params_file: Parameter file, empty for the defaults.
        overrides: Parameter values that win over the file's.
        remappings: Pairs of names, from and to.

    """
    # Only two entries, file first: what is given under a node's own name would keep the place of
    # its first appearance, so a value in front of the file and another behind it don't mix.
    files = (params_file,) if params_file else ()
    return [
        Process(PACKAGE, name, name=name, namespace=namespace, lifecycle=True,
                parameters=(*files, dict(overrides)), remappings=remappings)
        for name in names
    ]
