# SPDX-License-Identifier: Apache-2.0
"""External forces by iDynTree (PyPI ``idyntree``), imported in the environment of other tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.wrench_peers import IdynTree


def observe(
    *, urdf: str, joints: Sequence[str], sensors: Sequence[str], q: Any, v: Any, a: Any,
    readings: Any,
) -> Callable[[], Callable[[], Any]]:
    """Return the estimation, which returns the forces on the last part of the arm.

    Args:
        urdf: URDF text with the payload.
        joints: Names of the moving joints.
        sensors: Links that F/T sensors carry.
        q: Joint angles, shape (k, n) [rad].
        v: Joint velocities, shape (k, n) [rad/s].
        a: Joint accelerations, shape (k, n) [rad/s²].
        readings: Of all sensors, shape (k, s, 6) [N, N·m].

    """
    peer = IdynTree(urdf, joints, sensors)

    def solve() -> Callable[[], Any]:
        found = np.array([peer.wrenches(*row)[-1, :3]
                          for row in zip(q, v, a, readings, strict=True)])

        def answer() -> Any:
            return found

        return answer

    return solve
