# SPDX-License-Identifier: Apache-2.0
"""Published methods for payloads from a wrist sensor."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.process import run
from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload.model import centred, moving, static_wrench_regressor
from robocal_ros.payload.static_poses import measure
from robocal_ros.robot import PSEUDO_INERTIA, NewtonEuler, Robot

_CUTOFF = 5.0


def _rows_in_motion(robot: Robot, joints: JointSamples, sensor: WrenchSamples) -> Array:
    """Return columns of body, biases and readings of filtered samples over the noise of a fit.

    Returns:
        Shape (6 k, 17); readings are the last column.

    """
    period = float(np.median(np.diff(joints.time)))
    time = joints.time[0] + period * np.arange(int(np.ptp(joints.time) / period))
    even = np.column_stack([np.interp(time, joints.time, column) for column in joints.position.T])
    q = low_passed(even, period, _CUTOFF)
    v = np.gradient(q, period, axis=0)
    a = np.gradient(v, period, axis=0)
    rate = float(np.median(np.diff(sensor.time)))
    smooth = (low_passed(sensor.wrench, rate, _CUTOFF) if _CUTOFF * rate < 0.4
              else sensor.wrench)
    used = slice(int(1.0 / period), -int(1.0 / period), max(1, int(0.2 / (_CUTOFF * period))))
    measured = np.column_stack([np.interp(time[used], sensor.time, column)
                                for column in smooth.T])
    bodies = -NewtonEuler(robot, sensor.frame).wrench_regressor(q[used], v[used], a[used])
    own = robot.distal_inertia(sensor.frame).to_pinocchio().toDynamicParameters()
    biases = np.broadcast_to(np.eye(6), (len(bodies), 6, 6))
    rows = np.concatenate((bodies, biases, (measured - bodies @ own)[:, :, None]), axis=2)
    value = np.linalg.lstsq(rows[:, :, :16].reshape(-1, 16), rows[:, :, 16].ravel(), rcond=None)[0]
    noise = (rows[:, :, 16] - rows[:, :, :16] @ value).std(axis=0)
    return np.asarray((rows / noise[:, None]).reshape(-1, 17))


def in_motion(robot: Robot, joints: JointSamples, sensor: WrenchSamples) -> dict[str, Array]:
    """Return mass and centre of mass in the tool frame by methods for motions.

    Total least squares also has errors of the columns (Kubus, Kröger, Wahl, IROS 2008, 1845, doi
    10.1109/IROS.2008.4650661); the semidefinite program keeps the pseudo-inertia positive, if the
    other tools are installed.
    """
    rows = _rows_in_motion(robot, joints, sensor)
    matrix, wanted = rows[:, :16], rows[:, 16]
    size = np.linalg.norm(rows, axis=0)
    last = np.linalg.svd(rows / size, full_matrices=False)[2][-1]
    found = {'weighted least squares': np.linalg.lstsq(matrix, wanted, rcond=None)[0],
             'total least squares': -last[:-1] / last[-1] * size[-1] / size[:-1]}
    done = run('benchmarks.peers.tools:semidefinite', peer=True, repeats=0,
               units=PSEUDO_INERTIA, matrix=matrix, wanted=wanted)
    if done.answer is not None:
        found['pseudo-inertia SDP'] = done.answer['value']
    return {name: centred(moving(robot, sensor.frame) @ value[:10])[:4]
            for name, value in found.items()}


def at_rest(robot: Robot, joints: JointSamples, sensor: WrenchSamples) -> dict[str, Array]:
    """Return mass and centre of mass in the tool frame by least squares at rest, with biases."""
    matrix, wanted = [], []
    for item in measure(robot, joints, sensor):
        rows = static_wrench_regressor(item.rotation.T @ np.asarray(robot.gravity))
        matrix.append(rows)
        own = np.concatenate(([item.distal.mass], item.distal.mass * item.distal.com))
        wanted.append(item.wrench - rows[:, :4] @ own)
    value = np.linalg.lstsq(np.concatenate(matrix), np.concatenate(wanted), rcond=None)[0]
    body = np.concatenate((value[:4], 1e-3 * np.eye(3)[np.triu_indices(3)]))
    return {'static calibration': centred(moving(robot, sensor.frame) @ body)[:4]}
