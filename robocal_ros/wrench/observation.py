# SPDX-License-Identifier: Apache-2.0
"""What is known of all sub-chains at one instant, and how samples become that."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.wrench.contact import Contact, Gates

FILLING = 'Filling the window'
"""How the reason begins that passes by itself."""


@dataclass(frozen=True)
class ObserverSettings:
    """How samples become wrenches.

    Attributes:
        window: Window over which motion and readings are smoothed; the delay is half of it [s].
        max_delay: A sensor further behind than this is not waited for [s].
        use_velocity: Whether velocities of the joint states are used; else positions are
            differentiated.
        gates: What counts as a contact.

    """

    window: float = 0.02
    max_delay: float = 0.02
    use_velocity: bool = True
    gates: Gates = field(default_factory=Gates)


@dataclass(slots=True)
class Observation:
    """What is known at one instant.

    Attributes:
        stamp: Stamp of the sample that gave it [s].
        delay: The estimate is of the instant ``stamp`` − ``delay`` [s].
        links: Indices of the sub-chains that it is about.
        wrench: External wrench on each sub-chain, in its frame about its origin; rows of
            others and of those with a reason mean nothing, shape (k, 6) [N, N·m].
        reasons: By sub-chain, why its wrench is not known; empty where it is.
        in_contact: By sub-chain, whether it is pushed.
        contacts: Contacts by sub-chain.
        external: External joint torques; None where they are not followed, shape (n,) [N·m].
        colliding: Which joints carry more than friction explains, shape (n,).
        posture: Joint angles; None without joint states, shape (n,) [rad].

    """

    stamp: float
    delay: float
    links: tuple[int, ...]
    wrench: Array
    reasons: list[str]
    in_contact: list[bool]
    contacts: dict[int, Contact]
    external: Array | None = None
    colliding: npt.NDArray[np.bool_] | None = None
    posture: Array | None = None
