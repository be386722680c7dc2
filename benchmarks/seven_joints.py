# SPDX-License-Identifier: Apache-2.0
"""A fictitious arm with seven joints and four F/T sensors, for measuring speed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

SENSORS = ('ft_3_proximal', 'ft_3_distal', 'ft_5_proximal', 'ft_wrist')
JOINTS = tuple(f'joint_{number}' for number in range(1, 8))


@cache
def urdf() -> str:
    """Return the URDF text."""
    return Path(__file__).with_suffix('.urdf').read_text(encoding='utf-8')
