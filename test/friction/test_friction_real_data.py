# SPDX-License-Identifier: Apache-2.0
"""Friction of a real arm, against the model that its publishers found in the same data.

The record (TX40, 9 s of fast motion at 5 kHz, motor side) holds no constant speeds, so rigid-body
torque is fitted beside friction and taken off here; the points that are left, torque against
speed, go through the laws of the package.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from scipy.signal import butter, filtfilt
from support.arms import arm

from robocal_ros.errors import DataError
from robocal_ros.friction.estimate import estimate
from robocal_ros.friction.fit import (
    DirectionFit,
    fit_degree,
    fit_direction,
    information_criterion,
    law,
)
from robocal_ros.friction.model import MODELS
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.messages.samples import JointSamples, Recording

DATA = Path(__file__).resolve().parents[3] / 'shared' / 'data'
TX40 = DATA / 'staubli_tx40'
UR10 = DATA / 'ur10_bags' / 'ur10_exciting_trajectory.db3'

# As published with the record: viscous, dry friction and offset of each joint.
VISCOUS = (8.05, 5.53, 1.97, 1.11, 1.86, 0.65)
DRY = (7.14, 8.26, 6.34, 2.48, 3.03, 0.282)
OFFSET = (0.392, 1.37, 0.326, -0.102, -0.0288, 0.127)
# Largest RMS difference of the curves, a share of the published one's RMS.
SHARES = (0.04, 0.05, 0.03, 0.02, 0.05, 0.05)
BINS = 12

Sides = tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]


class Record:
    """Joint-side motion and torque, and what rigid bodies leave of the torque."""

    def __init__(self) -> None:
        with np.load(TX40 / 'tx40.npz') as data:
            motor, torque = data['motor_pos'], data['motor_torque']
        gear = np.diag([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
        angle_gear, torque_gear = gear.copy(), gear.copy()
        angle_gear[5, 4] = torque_gear[4, 5] = 32.0
        period = 2e-4
        angle = np.linalg.solve(angle_gear, motor.T).T
        angle[:, 1] -= np.pi / 2.0
        angle[:, 2] += np.pi / 2.0
        low_pass = butter(4, 30.0 * 2.0 * period)

        def smooth(values: np.ndarray) -> np.ndarray:
            return filtfilt(*low_pass, values, axis=0)

        q = smooth(angle)
        v = np.gradient(q, period, axis=0)
        a = np.gradient(smooth(v), period, axis=0)
        tau = smooth((torque_gear @ torque.T).T)
        # Half a second at each end belongs to the filter; one in ten samples is enough.
        part = slice(2500, -2500, 10)
        self.q, self.velocity, self.a, self.torque = q[part], v[part], a[part], tau[part]
        self.residual = np.zeros(6)
        self.friction = self._friction()

    def _friction(self) -> np.ndarray:
        model = pin.buildModelFromUrdf(str(TX40 / 'tx40_mdh_modified.urdf'))
        data = model.createData()
        count, v, a = len(self.q), self.velocity, self.a
        bodies = np.stack([pin.computeJointTorqueRegressor(model, data, *row)
                           for row in zip(self.q, v, a, strict=True)])
        columns = np.zeros((count, 6, 27))
        for joint in range(6):
            columns[:, joint, joint] = v[:, joint]
            columns[:, joint, 6 + joint] = np.tanh(v[:, joint] / 0.02)
            columns[:, joint, 12 + joint] = a[:, joint]
            columns[:, joint, 18 + joint] = 1.0
        # The wrist's two last joints share a motor's inertia and friction.
        columns[:, 4, 24], columns[:, 5, 24] = a[:, 5], a[:, 4]
        columns[:, 4, 25], columns[:, 5, 25] = v[:, 5], v[:, 4]
        columns[:, 4:, 26] = np.tanh((v[:, 4] + v[:, 5]) / 0.02)[:, None]
        matrix = np.concatenate((bodies, columns), axis=2).reshape(6 * count, -1)
        measured, weight = self.torque.reshape(-1), np.ones(6)
        for _ in range(3):
            scale = np.tile(1.0 / weight, count)
            value, *_ = np.linalg.lstsq(matrix * scale[:, None], measured * scale, rcond=1e-9)
            left = (measured - matrix @ value).reshape(count, 6)
            weight = left.std(axis=0)
        self.residual = weight
        own = np.r_[0:12, 18:24]
        return left + columns[:, :, own] @ value[60:][own]

    def sides(self, joint: int, part: slice) -> Sides:
        """Return |v|, |F| and deviations in bins of speed, forward and backward."""
        found = []
        for sign in (1.0, -1.0):
            v = sign * self.velocity[part, joint]
            moving = v > 0.05
            speed, torque = v[moving], sign * self.friction[part, joint][moving]
            edges = np.quantile(speed, np.linspace(0.0, 1.0, BINS + 1))
            place = np.clip(np.searchsorted(edges, speed, side='right') - 1, 0, BINS - 1)
            rows = [place == i for i in range(BINS)]
            # Filtered at 30 Hz and sampled at 500 Hz: about one sample in eight is news.
            found.append((np.array([speed[r].mean() for r in rows]),
                          np.array([torque[r].mean() for r in rows]),
                          np.array([torque[r].std() / np.sqrt(r.sum() / 8.0) for r in rows])))
        return tuple(found)


@pytest.fixture(scope='module')
def tx40() -> Record:
    if not TX40.is_dir():
        pytest.skip('The measured data of the TX40 are not beside the project (../shared/data).')
    return Record()


def fits(sides: Sides, model: str) -> list[DirectionFit]:
    return [fit_direction(*side, model) for side in sides]


@pytest.mark.parametrize('joint', range(6))
def test_laws_agree_with_the_published_ones(tx40, joint, record_property):
    sides = tx40.sides(joint, slice(None))
    found = law(*fits(sides, 'coulomb_viscous'))
    v = np.concatenate((sides[0][0], -sides[1][0]))
    published = DRY[joint] * np.sign(v) + VISCOUS[joint] * v + OFFSET[joint]
    own = float(np.sqrt(np.mean(published**2)))
    difference = float(np.sqrt(np.mean((found.torque(v) - published)**2)))
    record_property('curve', f'Fc {found.coulomb.round(2)} N·m, B {found.viscous.round(2)} '
                    f'N·m·s/rad; {difference:.3f} of {own:.2f} N·m RMS from the published one')
    assert difference < SHARES[joint] * own


@pytest.mark.parametrize('joint', range(6))
def test_viscous_friction_is_seen(tx40, joint):
    sides = tx40.sides(joint, slice(None))
    criteria = {model: information_criterion(fits(sides, model)) for model in MODELS[:2]}
    assert min(criteria, key=criteria.__getitem__) == 'coulomb_viscous'


@pytest.mark.parametrize('joint', range(6))
def test_the_first_part_predicts_friction_of_the_last(tx40, joint, record_property):
    border = int(0.7 * len(tx40.q))
    found = law(*fits(tx40.sides(joint, slice(None, border)), 'coulomb_viscous'))
    held_out = tx40.sides(joint, slice(border, None))
    v = np.concatenate((held_out[0][0], -held_out[1][0]))
    torque = np.concatenate((held_out[0][1], -held_out[1][1]))
    left = float(np.sqrt(np.mean((torque - found.torque(v))**2)))
    record_property('held out', f'{left:.3f} N·m RMS left, of '
                    f'{np.sqrt(np.mean(torque**2)):.2f} N·m friction')
    assert fit_degree(torque, found.torque(v)) < 20.0


def test_a_real_exciting_motion_without_constant_speeds_is_refused():
    """A UR10's bag: all joints at once, which no steady friction can be read from."""
    if not UR10.exists():
        pytest.skip('The measured bags of the UR10 are not beside the project (../shared/data).')
    typesys = pytest.importorskip(
        'rosbags.typesys', reason='Reading the bags needs the PyPI package rosbags.')
    types = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    with sqlite3.connect(f'file:{UR10}?mode=ro&immutable=1', uri=True) as bag:
        blobs = [row[0] for row in bag.execute('SELECT data FROM messages ORDER BY timestamp')]
    messages = [types.deserialize_cdr(blob, 'sensor_msgs/msg/JointState') for blob in blobs]
    robot = arm('ur5').robot()
    order = [list(messages[0].name).index(name) for name in robot.joint_names]
    time = np.array([m.header.stamp.sec + 1e-9 * m.header.stamp.nanosec for m in messages])
    keep = np.concatenate(([True], np.diff(time) > 0.0))
    columns = [np.array([getattr(m, what) for m in messages])[keep][:, order]
               for what in ('position', 'velocity', 'effort')]
    samples = JointSamples(robot.joint_names, time[keep], *columns, source='ur10')
    with pytest.raises(DataError, match='No constant-speed run .*with all other joints at rest'):
        estimate(robot, Recording(samples), FrictionParameters())
