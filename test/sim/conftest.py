# SPDX-License-Identifier: Apache-2.0
"""Robots and files shared by the tests of the simulation."""

from __future__ import annotations

import pytest
from support import ROOT

from demo import default_cell
from robocal_sim.model import Description, read_description
from robocal_sim.truth import Cell, HiddenTruth


@pytest.fixture(scope='session')
def arm_urdf() -> str:
    return default_cell.urdf()


@pytest.fixture(scope='session')
def arm(arm_urdf: str) -> Description:
    return read_description(arm_urdf)


@pytest.fixture(scope='session')
def truth() -> HiddenTruth:
    return default_cell.hidden_truth()


@pytest.fixture(scope='session')
def cell() -> Cell:
    return default_cell.reference_cell()


@pytest.fixture(scope='session')
def two_joint_urdf() -> str:
    return (ROOT / 'test' / 'data' / 'two_joint.urdf').read_text()
