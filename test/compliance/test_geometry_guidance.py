# SPDX-License-Identifier: Apache-2.0
"""Guidance for postures moved to by hand: what is known, what contradicts, and which next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.geometry import Cell
from benchmarks.second_world import ARMS, urdf_of
from robocal_ros.compliance.geometry import ArmGeometry, Observations, ObservedSet
from robocal_ros.compliance.guidance import Advice, advise
from robocal_ros.compliance.measurement import Target
from robocal_ros.compliance.model import Mounted
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.robot import Robot

CELL = Cell(1)
ROBOT = Robot(urdf_of(CELL.name), tool_frame=ARMS[CELL.name].tool)
VALUES = ComplianceParameters(target_xyz=CELL.stated.tolist())


@pytest.fixture(scope='module')
def sets() -> tuple[ObservedSet, ...]:
    return Cell(1).sockets().sets


def part(item: ObservedSet, count: int) -> ObservedSet:
    return replace(item, posture=item.posture[:count], reading=item.reading[:count],
                   lines=item.lines[:count])


def advice(*sets: ObservedSet, count: int = 3) -> Advice:
    return advise(ROBOT, Observations(sets), VALUES, Mounted(None), count=count)


def test_more_postures_tell_more_and_only_enough_give_an_estimate(sets) -> None:
    one, some, many = advice(part(sets[0], 1)), advice(*sets[:2]), advice(*sets)
    assert one.off is None
    assert 0 <= one.known < some.known < many.known < many.total == 7 * ROBOT.n + 3
    assert many.off is not None
    assert many.off < 5e-4
    assert many.doubt == ''
    # A joint about gravity has no compliance that its weight could tell.
    assert all(f'{ROBOT.joint_names[0]}.compliance' not in item.least for item in (one, many))


def test_what_is_proposed_is_in_contact_and_tells_more_than_chance(sets) -> None:
    told = advice(*sets[:3], count=4)
    assert told.postures.shape == (4, ROBOT.n)
    points = np.array([ROBOT.pose_and_jacobian(q, ROBOT.tool_frame, CELL.stated)[1]
                       for q in told.postures])
    # By the nominal arm, whose frames are off by millimetres.
    assert np.ptp(points, axis=0).max() < 1e-2
    assert ((told.postures > ROBOT.lower) & (told.postures < ROBOT.upper)).all()

    def known(q: np.ndarray) -> float:
        last = sets[2]
        more = replace(last, posture=np.vstack((last.posture, q)),
                       reading=np.zeros((len(last) + len(q), 0)))
        rows = ArmGeometry(
            ROBOT, Mounted(None), Target(ROBOT.tool_frame, CELL.stated),
            Observations((*sets[:2], more)), VALUES).scaled(1e-4)
        return float(np.linalg.slogdet(np.eye(rows.shape[1]) + rows.T @ rows)[1])

    others = [known(advise(ROBOT, Observations(sets[:3]), VALUES, Mounted(None), count=4,
                           seed=seed).postures[::-1]) for seed in (1, 2)]
    assert known(told.postures) > known(sets[2].posture[:4]) + 1.0
    np.testing.assert_allclose(others, known(told.postures), rtol=0.02)


def test_a_ball_that_slipped_is_noticed_at_once(sets) -> None:
    last = sets[-1]
    posture = last.posture.copy()
    posture[-1] += 2e-3
    told = advice(*sets[:-1], replace(last, posture=posture))
    assert told.off is not None
    assert told.off > 1e-3
    assert 'It contradicts the others by' in told.doubt
    posture[-1] = sets[-2].posture[-1]
    assert 'from the socket' in advice(*sets[:-1], replace(last, posture=posture)).doubt


def test_a_tracker_has_postures_anywhere_and_a_camera_none() -> None:
    assert advice(part(Cell(1).tracker().sets[0], 10)).postures.shape == (3, ROBOT.n)
    data = Cell(1).camera('camera')
    told = advise(ROBOT, data, VALUES, Mounted(None))
    assert told.postures.shape == (0, ROBOT.n)
    assert told.known > 20
