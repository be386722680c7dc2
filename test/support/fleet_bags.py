# SPDX-License-Identifier: Apache-2.0
"""Small marked bags of friction runs, as a fleet would record them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from robocal_ros.fleet.catalogue import BAGS, utc
from robocal_ros.messages.bag_writer import BagWriter
from robocal_ros.robot.model import Robot
from support import ROOT
from support.bag_examples import JOINT_STATE, MARKS, STRING, joint_state, marks, text

URDF = ROOT / 'test' / 'data' / 'two_joint.urdf'
NAMES = ('shoulder', 'elbow')
PARAMETERS = (('tool_frame', 'lower'), ('model', 'coulomb_viscous'))
"""Parameters that these bags need."""

FRICTION = '/friction_identification/marks'


@cache
def _robot() -> Robot:
    return Robot(URDF.read_text(), tool_frame='lower')


def write_runs(
    path: Path, *, coulomb: float = 0.5, begin: float = 1.7e9, seed: int = 1,
    marked: str = FRICTION, namespace: str = '', described: bool = True,
) -> Path:
    """Write the elbow to and fro at a few speeds, with Coulomb friction and gravity.

    Args:
        path: Folder of the bag; must not exist.
        coulomb: Coulomb friction [N·m].
        begin: First stamp [s].
        seed: Seed of the noise.
        marked: Topic of the marks of the run, empty for none.
        namespace: Namespace of all topics.
        described: Whether the robot description is recorded.

    """
    rng = np.random.default_rng(seed)
    time, angle, rows = begin, 0.2, []
    for speed in (0.1, 0.2, 0.3, 0.4, 0.5):
        for sign in (0, 1, 0, -1):
            for _ in range(100 if sign else 30):
                time, angle = time + 0.02, angle + 0.02 * sign * speed
                q = np.array([0.1, angle])
                tau = _robot().gravity_torque(q) + [0.0, (coulomb + 0.3 * speed) * sign]
                rows.append((time, q, tau + 0.02 * rng.normal(size=2)))
    with BagWriter(path) as bag:
        bag.add(f'{namespace}/joint_states', JOINT_STATE)
        stamp = round(begin * 1e9)
        if described:
            bag.add(f'{namespace}/robot_description', STRING)
            bag.write(f'{namespace}/robot_description', stamp, text(URDF.read_text()))
        if marked:
            bag.add(f'{namespace}{marked}', MARKS)
            bag.write(f'{namespace}{marked}', stamp,
                      marks('begin', 'run', joint_states=f'{begin:.9f}'))
        for at, q, tau in rows:
            bag.write(f'{namespace}/joint_states', round(at * 1e9),
                      joint_state(at, NAMES, q, (0.0, 0.0), tau))
        if marked:
            bag.write(f'{namespace}{marked}', round(time * 1e9),
                      marks('end', 'run', joint_states=f'{time:.9f}'))
    return path


def tried(seconds: float, outcome: str, **changes: object) -> pa.Table:
    """Return the row of a catalogue about an attempt at a time [s], with other columns changed."""
    row = dict.fromkeys(BAGS.names, '') | {
        'bag': '/bags/a', 'robot': 'arm', 'kind': 'friction', 'outcome': outcome,
        'tried': utc(seconds), 'seconds': 1.0}
    return pa.Table.from_pylist([row | changes], BAGS)
