# SPDX-License-Identifier: Apache-2.0
"""Array type of the package, and immutable copies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
"""Array of 64-bit floats; docstrings give the shapes."""

Flags = npt.NDArray[np.bool_]
"""Array of booleans; docstrings give the shapes."""


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
