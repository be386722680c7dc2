# SPDX-License-Identifier: Apache-2.0
"""Robots and files shared by the tests of the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest
import xacro

from robocal_sim.model import Description, read_description
from robocal_sim.truth import Cell, HiddenTruth, load_cell, load_truth

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='session')
def arm_urdf() -> str:
    return xacro.process_file(str(ROOT / 'urdf' / 'robocal_arm.urdf.xacro')).toxml()


@pytest.fixture(scope='session')
def arm(arm_urdf: str) -> Description:
    return read_description(arm_urdf)


@pytest.fixture(scope='session')
def truth() -> HiddenTruth:
    return load_truth(ROOT / 'config' / 'sim' / 'hidden_truth.yaml')


@pytest.fixture(scope='session')
def cell() -> Cell:
    return load_cell(ROOT / 'config' / 'sim' / 'reference_cell.yaml')


@pytest.fixture(scope='session')
def two_joint_urdf() -> str:
    return (ROOT / 'test' / 'data' / 'two_joint.urdf').read_text()
