# SPDX-License-Identifier: Apache-2.0
"""Friction of a real arm, against the model that its publishers found in the same data.

The record (TX40, 9 s of fast motion at 5 kHz, motor side) holds no constant speeds. The laws of
the package are fitted to friction torques from a regression of this file, and the command line
estimates friction jointly with the rigid bodies from a bag.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from scipy.signal import butter, filtfilt
from support.arms import arm

from robocal_ros.cli.main import main
from robocal_ros.friction.fit import DirectionFit, Side, fit_degree, information_criterion
from robocal_ros.friction.model import MODELS
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import from_yaml
from robocal_ros.robot.friction_law import friction_by_joint

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


def joint_side(motor: np.ndarray, torque: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return joint angles and torques of the motors' angles and torques."""
    gear = np.diag([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
    angle_gear, torque_gear = gear.copy(), gear.copy()
    angle_gear[5, 4] = torque_gear[4, 5] = 32.0
    angle = np.linalg.solve(angle_gear, motor.T).T
    angle[:, 1] -= np.pi / 2.0
    angle[:, 2] += np.pi / 2.0
    return angle, (torque_gear @ torque.T).T


class Record:
    """Joint-side motion and torque, and what rigid bodies leave of the torque."""

    def __init__(self) -> None:
        with np.load(TX40 / 'tx40.npz') as data:
            motor, torque = data['motor_pos'], data['motor_torque']
        period = 2e-4
        angle, torque = joint_side(motor, torque)
        low_pass = butter(4, 30.0 * 2.0 * period)

        def smooth(values: np.ndarray) -> np.ndarray:
            return filtfilt(*low_pass, values, axis=0)

        q = smooth(angle)
        v = np.gradient(q, period, axis=0)
        a = np.gradient(smooth(v), period, axis=0)
        tau = smooth(torque)
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
    return [DirectionFit(Side(*side, *np.zeros((2, len(side[0])))), model) for side in sides]


def torques(found: list[DirectionFit], sides: Sides) -> np.ndarray:
    """Return the fitted torques at the speeds of both sides."""
    forward, backward = (fit.at(side[0], np.zeros_like(side[0]))
                         for fit, side in zip(found, sides, strict=True))
    return np.concatenate((forward, -backward))


@pytest.mark.parametrize('joint', range(6))
def test_laws_agree_with_the_published_ones(tx40, joint, record_property):
    sides = tx40.sides(joint, slice(None))
    found = fits(sides, 'coulomb_viscous')
    v = np.concatenate((sides[0][0], -sides[1][0]))
    published = DRY[joint] * np.sign(v) + VISCOUS[joint] * v + OFFSET[joint]
    own = float(np.sqrt(np.mean(published**2)))
    difference = float(np.sqrt(np.mean((torques(found, sides) - published)**2)))
    record_property('curve', f'{[fit.value.round(2).tolist() for fit in found]} [N·m, N·m·s/rad]; '
                    f'{difference:.3f} of {own:.2f} N·m RMS from the published one')
    assert difference < SHARES[joint] * own


@pytest.mark.parametrize('joint', range(6))
def test_viscous_friction_is_seen(tx40, joint):
    sides = tx40.sides(joint, slice(None))
    criteria = {model: information_criterion(
        dict(zip('fb', fits(sides, model), strict=True)), None) for model in MODELS[:2]}
    assert min(criteria, key=criteria.__getitem__) == 'coulomb_viscous'


@pytest.mark.parametrize('joint', range(6))
def test_the_first_part_predicts_friction_of_the_last(tx40, joint, record_property):
    border = int(0.7 * len(tx40.q))
    found = fits(tx40.sides(joint, slice(None, border)), 'coulomb_viscous')
    held_out = tx40.sides(joint, slice(border, None))
    predicted = torques(found, held_out)
    torque = np.concatenate((held_out[0][1], -held_out[1][1]))
    left = float(np.sqrt(np.mean((torque - predicted)**2)))
    record_property('held out', f'{left:.3f} N·m RMS left, of '
                    f'{np.sqrt(np.mean(torque**2)):.2f} N·m friction')
    assert fit_degree(torque, predicted) < 20.0


@pytest.fixture(scope='module')
def tx40_bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record as a bag of joint states at 1 kHz, efforts averaged over each period."""
    if not TX40.is_dir():
        pytest.skip('The measured data of the TX40 are not beside the project (../shared/data).')
    bags = pytest.importorskip('support.bag_examples')
    with np.load(TX40 / 'tx40.npz') as data:
        angle, torque = joint_side(data['motor_pos'], data['motor_torque'])
    angle, torque = (values.reshape(-1, 5, 6).mean(axis=1) for values in (angle, torque))
    names = [f'joint_{i}' for i in range(1, 7)]
    return bags.write(tmp_path_factory.mktemp('tx40') / 'bag', [
        bags.joint_state(1e-3 * (i + 1), names, *row)
        for i, row in enumerate(zip(
            angle, np.gradient(angle, 1e-3, axis=0), torque, strict=True))])


def estimated(bag: Path, folder: Path, *arguments: str) -> tuple[int, CalibrationResult]:
    """Return exit code and result of the command line."""
    code = main(['estimate', 'friction', str(bag), '--urdf', str(TX40 / 'tx40_mdh_modified.urdf'),
                 '-p', 'coupled_joints:=[joint_5+joint_6]', '-p', 'tool_frame:=link_6',
                 *arguments, '-o', str(folder / 'friction.yaml')])
    # A failed result has a name of its own.
    newest = max(folder.glob('friction*.yaml'), key=lambda file: file.stat().st_mtime_ns)
    return code, from_yaml(newest.read_text())


def test_the_command_line_finds_the_published_friction(tx40_bag, tmp_path):
    """The torques of all joints, offsets included, and Coulomb and viscous friction."""
    _, result = estimated(tx40_bag, tmp_path, '-p', 'model:=coulomb_viscous')
    assert result.verdict is Verdict.PASS
    laws = friction_by_joint(result)
    for joint, (dry, viscous, offset) in enumerate(zip(DRY, VISCOUS, OFFSET, strict=True)):
        law = laws[f'joint_{joint + 1}']
        v = np.linspace(*law.speeds, 50)
        v = np.concatenate((v, -v))
        published = dry * np.sign(v) + viscous * v + offset
        left = np.sqrt(np.mean((law.torque(v) - published)**2) / np.mean(published**2))
        # Published friction is estimated, too. Joint 6 shares a motor with joint 5.
        assert left < (0.04 if joint < 5 else 0.06), joint
        for name, value in (('coulomb', dry), ('viscous', viscous)):
            both = [result.parameter(f'joint_{joint + 1}.{name}_{direction}')
                    for direction in ('forward', 'backward')]
            assert all(abs(p.value - value) < 3.3 * p.std + abs(offset)
                       or name == 'viscous' for p in both)
            assert np.mean([p.value for p in both]) == pytest.approx(
                value, abs=3.3 * max(p.std for p in both))


def test_sublinear_friction_is_chosen_and_predicts_better(tx40_bag, tmp_path):
    """The viscous part of the arm's first joints is sublinear; held-out speeds show it."""
    _, result = estimated(tx40_bag, tmp_path)
    assert result.verdict is Verdict.PASS
    for joint in ('joint_1', 'joint_2', 'joint_3', 'joint_4', 'joint_5'):
        law = result.settings['laws'][joint]
        assert law['model'].startswith('coulomb_power')
        assert law['criteria']['coulomb_power'] < law['criteria']['coulomb_viscous'] - 10.0
        assert 0.5 < result.parameter(f'{joint}.exponent_forward').value < 0.9


def test_some_joints_are_estimated_alone(tx40_bag, tmp_path):
    code, result = estimated(
        tx40_bag, tmp_path, '-p', 'measure_joints:=[joint_1,joint_3,joint_4,joint_5]')
    assert code == 0
    assert result.verdict is Verdict.PASS
    assert len(result.checks) == 8


def test_friction_of_a_coupled_wrist_needs_the_coupling(tx40_bag, tmp_path):
    _, coupled = estimated(tx40_bag, tmp_path)
    _, apart = estimated(tx40_bag, tmp_path, '-p', "coupled_joints:=['']")
    left = {name: {fit.what: fit.after for fit in result.fit}['joint_6']
            for name, result in (('coupled', coupled), ('apart', apart))}
    assert left['coupled'] < 0.7 * left['apart']


def test_a_motion_without_constant_speeds_is_refused_where_runs_are_wanted(tmp_path, capsys):
    """A UR10's bag: all joints move at once."""
    if not UR10.exists():
        pytest.skip('The measured bags of the UR10 are not beside the project (../shared/data).')
    urdf = tmp_path / 'arm.urdf'
    urdf.write_text(arm('ur5').urdf)
    assert main(['estimate', 'friction', str(UR10), '--urdf', str(urdf), '-p', 'method:=runs',
                 '-p', f'tool_frame:={arm("ur5").tool}', '-o', str(tmp_path / 'out.yaml')]) != 0
    assert 'No constant-speed run' in (said := capsys.readouterr().err)
    assert 'with all other joints at rest' in said
