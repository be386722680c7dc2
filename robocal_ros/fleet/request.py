# SPDX-License-Identifier: Apache-2.0
"""Options of an estimation of many bags, as sent to the workers."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass

from robocal_ros import __version__, registry
from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet import storage

ROBOT = '{robot}'
"""Placeholder for a robot's name in URIs."""

NAMESPACE, FOLDER = 'namespace', 'folder'
"""Sources of a robot's name besides its description and patterns."""


@dataclass(frozen=True)
class Request:
    """What to estimate, and how.

    Attributes:
        output: URI of the output folder.
        urdf: URI of the URDF; empty for the description in each bag.
        params_files: URIs of parameter files; later ones override earlier ones.
        overrides: Names and texts of single parameters, which override files.
        results_dir: URI of the folder of stored results to build on; empty for none.
        robot_from: Source of robot names: ``namespace``, ``folder``, or a regular expression with
            one group that is searched in the bag's URI; empty for the description's name.
        namespace: Namespace of the robot's topics; empty for all.
        remapped: Names and topics in the bags.
        capabilities: What to estimate; empty for all that marks name.

    ``urdf``, ``params_files`` and ``results_dir`` may contain ``{robot}``.

    """

    output: str
    urdf: str = ''
    params_files: tuple[str, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    results_dir: str = ''
    robot_from: str = ''
    namespace: str = ''
    remapped: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the options; raises ConfigurationError."""
        for name in self.capabilities:
            if name not in registry.estimators():
                raise ConfigurationError(f"'{name}' is not a capability; expected one of "
                                         f'{", ".join(registry.estimators())}.')
        if self.robot_from not in ('', NAMESPACE, FOLDER):
            try:
                groups = re.compile(self.robot_from).groups
            except re.error as error:
                raise ConfigurationError(
                    f"--robot-from '{self.robot_from}' is no regular expression: {error}."
                ) from error
            if groups != 1:
                raise ConfigurationError(
                    f"--robot-from '{self.robot_from}' has {groups} groups; expected '{NAMESPACE}'"
                    f", '{FOLDER}', or a regular expression with one group, such as "
                    "'/(arm_[0-9]+)/'.")
        for uri in (self.urdf, *self.params_files):
            if ROBOT in uri and not self.robot_from:
                raise ConfigurationError(
                    f"'{uri}' depends on the robot's name, which is in the URDF. Say with "
                    '--robot-from where the names come from.')

    def sha256(self) -> str:
        """Return the hash of the options, the files that they name, and the version.

        Raises:
            ConfigurationError: If a file does not exist.

        """
        content, files = asdict(self), []
        del content['output']
        for option, uri in (('--urdf', self.urdf), ('--results-dir', self.results_dir),
                            *(('--params-file', uri) for uri in self.params_files)):
            if not uri:
                continue
            inner = storage.joined(uri, '*.yaml') if option == '--results-dir' else uri
            # Of all robots.
            fs, path = storage.opened(inner.replace(ROBOT, '*'))
            try:
                names = sorted(fs.glob(path) if '*' in path else [path])
                files += [(name, hashlib.sha256(fs.cat_file(name)).hexdigest()) for name in names]
            except OSError as error:
                raise ConfigurationError(
                    f"{option} '{uri}' cannot be read: {error}. Correct its name.") from error
            if not names and option != '--results-dir':
                raise ConfigurationError(f"{option} '{uri}': there is no such file.")
        return hashlib.sha256(json.dumps([__version__, content, files]).encode()).hexdigest()
