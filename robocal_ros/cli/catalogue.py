# SPDX-License-Identifier: Apache-2.0
"""All capabilities that can estimate from a bag."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from robocal_ros.errors import ConfigurationError

if TYPE_CHECKING:
    from robocal_ros.capability.capability import Capability, Follower
    from robocal_ros.wrench.bag import WrenchFollowing


# Module and name of each; its numerics take long to import, and only one is used at a time.
_WHERE = {
    'payload': ('payload.estimate', 'PAYLOAD'),
    'drive_gains': ('payload.estimate', 'DRIVE_GAINS'),
    'friction': ('friction.estimate', 'FRICTION'),
    'compliance': ('compliance.estimate', 'COMPLIANCE'),
    'wrench': ('wrench.bag', 'FOLLOWER'),
}
CAPABILITIES = tuple(_WHERE)
"""Names of the capabilities."""


def capability(name: str) -> Capability | Follower[WrenchFollowing]:
    """Return a capability by name; raises ConfigurationError with the names there are."""
    if name not in _WHERE:
        raise ConfigurationError(
            f"There is no capability '{name}' that estimates from bags; expected one of "
            f'{", ".join(CAPABILITIES)}.')
    module, item = _WHERE[name]
    found: Capability | Follower[WrenchFollowing] = getattr(
        importlib.import_module(f'robocal_ros.{module}'), item)
    return found
