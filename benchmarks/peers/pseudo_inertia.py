# SPDX-License-Identifier: Apache-2.0
"""Least squares of a rigid body under the constraint of a positive semidefinite pseudo-inertia.

A semidefinite program (Wensing, Kim, Slotine, IEEE RA-L 3 (2018) 60, doi
10.1109/LRA.2017.2729659) in PyPI's ``cvxpy``, solved by ``clarabel``. This module is imported in
the environment of the other tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def identify(*, matrix: Any, wanted: Any, units: Any) -> Iterator[Any]:
    """Estimate the parameters; yields as for `process.run`.

    Args:
        matrix: Weighted columns of the ten parameters and of biases, shape (k, 10 + m).
        wanted: Weighted measured values, shape (k,).
        units: Pseudo-inertia matrix of each unit parameter, shape (10, 4, 4).

    """
    import cvxpy

    yield
    # The same sum of squares from a few rows.
    basis, triangle = np.linalg.qr(matrix)
    size = np.linalg.norm(triangle, axis=0)
    unknown = cvxpy.Variable(matrix.shape[1])
    pseudo = cvxpy.Variable((4, 4), PSD=True)
    body = sum(unit * (unknown[k] / size[k]) for k, unit in enumerate(units))
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares((triangle / size) @ unknown - basis.T @ wanted)),
        [pseudo == body])
    problem.solve(solver='CLARABEL')
    yield
    yield {'value': unknown.value / size}
