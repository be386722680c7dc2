# SPDX-License-Identifier: Apache-2.0
"""`robocal bench`: accuracy and speed, against the numbers to reach."""

from __future__ import annotations

import argparse

NAME = 'bench'
SUMMARY = 'measure accuracy and speed on the simulated arm'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""


def run(options: argparse.Namespace) -> int:
    """Run."""
    return 0
