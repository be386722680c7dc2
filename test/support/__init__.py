# SPDX-License-Identifier: Apache-2.0
"""Robots, recordings and processes that several test modules share."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Folder of the repository."""
