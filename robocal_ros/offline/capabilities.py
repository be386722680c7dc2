# SPDX-License-Identifier: Apache-2.0
"""Catalogue of the capabilities that estimate from bags.

Nothing here imports numerical libraries before a capability is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from robocal_ros.errors import ConfigurationError

if TYPE_CHECKING:
    from robocal_ros.capability import Capability, Follower

CAPABILITIES = {
    'payload': 'payload.estimate:PAYLOAD',
    'drive_gains': 'payload.estimate:GAINS',
    'arm': 'payload.estimate:ARM_IDENTIFICATION',
    'friction': 'friction.estimate:FRICTION',
    'compliance': 'compliance.estimate:COMPLIANCE',
    'wrench': 'wrench.bag:FOLLOWER',
}
"""Module and name of everything that estimates from bags."""


def capability(name: str) -> Capability | Follower[Any]:
    """Return a capability by name; raises ConfigurationError for an unknown one.

    Only its own modules are imported, to start sooner.
    """
    if name not in CAPABILITIES:
        raise ConfigurationError(
            f"'{name}' is not a capability that estimates from bags; expected one of "
            f'{", ".join(CAPABILITIES)}.')
    module, _, item = CAPABILITIES[name].partition(':')
    found: Capability | Follower[Any] = getattr(
        import_module(f'robocal_ros.{module}'), item)
    return found
