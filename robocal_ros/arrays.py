# SPDX-License-Identifier: Apache-2.0
"""Array type of the package, immutable copies, and factors of covariances."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
"""Array of 64-bit floats; docstrings give the shapes."""

Flags = npt.NDArray[np.bool_]
"""Array of booleans; docstrings give the shapes."""


# Directions whose variance is below this share of the largest count as exact.
_NEGLIGIBLE = 1e-12


def frozen(values: npt.ArrayLike) -> Array:
    """Copy values into a read-only array of 64-bit floats."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def freeze(holder: object, *names: str) -> None:
    """Replace fields of a frozen dataclass by read-only copies, except those that are None."""
    for name in names:
        if (value := getattr(holder, name)) is not None:
            object.__setattr__(holder, name, frozen(value))


def covariance_factor(covariance: Array) -> Array:
    """Return F with F Fᵀ the covariance, columns in order of descending size, shape (p, r).

    Each column is one standard deviation along a principal direction of the quantities, which are
    scaled to unit standard deviation first, because their units differ.
    """
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    safe = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(safe, safe))
    kept = values > _NEGLIGIBLE * max(values.max(initial=0.0), 1e-300)
    return np.asarray(safe[:, None] * vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]
