# SPDX-License-Identifier: Apache-2.0
"""Textbook and published methods, given the samples of the product's: arms, payloads, friction."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy

from benchmarks.peers.process import run
from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.friction.runs import read_runs
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload import PayloadParameters, arm_identification
from robocal_ros.payload.arm_regression import Law
from robocal_ros.payload.model import centred, moving, static_wrench_regressor
from robocal_ros.payload.static_poses import measure
from robocal_ros.results import CalibrationResult, rms
from robocal_ros.robot import PSEUDO_INERTIA, NewtonEuler, Robot, arm_regressor, identified_model

CUTOFFS = (1.0, 2.0, 5.0, 10.0)
"""Cutoffs of the filter that other methods are tried with [Hz]."""

_RANK = 1e-4
_TRANSITION = 0.03
# Cutoffs of the filters for payloads and for friction, and least speed of its samples.
_BODY_CUTOFF, _RUNS_CUTOFF = 5.0, 10.0
_LEAST_SPEED = 0.005


# ------------------------------------------------------------------------------- arms


def product(
    *, urdf: str, joints: Sequence[str], time: Array, position: Array, effort: Array, q: Array,
    v: Array, a: Array, tool: str,
) -> Iterator[Any]:
    """Identify by the product, and predict; yields as for `process.run`."""
    robot, values, n = Robot(urdf, tool_frame=tool), PayloadParameters(), len(joints)
    samples = JointSamples(tuple(joints), time, position, np.zeros_like(position), effort)
    yield
    result = arm_identification.estimate(
        robot, samples, values, scale=np.ones(n),
        scale_covariance=values.gain_std**2 * np.eye(n))
    yield
    yield {'torque': predicted(robot, result, q, v, a), 'verdict': result.verdict.value}


def predicted(robot: Robot, result: CalibrationResult, q: Array, v: Array, a: Array) -> Array:
    """Return the efforts that an identified arm predicts, shape (k, n) [N·m]."""
    model = identified_model(robot, result).robot
    torque = np.array([model.inverse_dynamics(*row) for row in zip(q, v, a, strict=True)])
    transmitted = torque - model.model.armature * a
    for column, joint in enumerate(robot.joint_names):
        transition, *extras = result.settings['laws'][joint]
        law = Law(transition, tuple(extras))
        torque[:, column] += law.columns(v[:, column], transmitted[:, column]) @ result.values(
            [f'{joint}.{name}' for name in law.names])
    return torque * result.values([f'{joint}.effort_scale' for joint in robot.joint_names])


def textbook(
    *, urdf: str, joints: Sequence[str], time: Array, position: Array, effort: Array, q: Array,
    v: Array, a: Array, tool: str, cutoff: float, weighted: bool,
) -> Iterator[Any]:
    """Identify base parameters and friction by least squares, and predict.

    Khalil, Dombre, Modeling, Identification and Control of Robots, 2002, ch. 12: filtered samples,
    base parameters by a pivoted QR, and for ``weighted`` the residual of each joint as its noise.
    Yields as for `process.run`.
    """
    robot = Robot(urdf, tool_frame=tool)
    n = len(joints)
    period = float(np.median(np.diff(time)))

    def rows(q: Array, v: Array, a: Array) -> Array:
        """Return links, rotors, offsets, dry and viscous friction, shape (n, k, 14 n)."""
        every = [arm_regressor(robot, q, v, a).transpose(1, 0, 2)]
        for values in (a, np.ones_like(v), np.tanh(v / _TRANSITION), v):
            every.append(values.T[:, :, None] * np.eye(n)[:, None, :])
        return np.concatenate(every, axis=2)

    yield
    smooth = low_passed(position, period, cutoff)
    speed = np.gradient(smooth, period, axis=0)
    edge = max(1, int(1.0 / period))
    used = slice(edge, -edge, max(1, int(0.2 / (cutoff * period))))
    columns = rows(smooth[used], speed[used], np.gradient(speed, period, axis=0)[used])
    chosen = independent(columns.reshape(-1, columns.shape[2]))
    matrix, wanted = columns[:, :, chosen], low_passed(effort, period, cutoff)[used].T
    noise = np.ones(n)
    for _ in range(2 if weighted else 1):
        factor = np.concatenate([part / s for part, s in zip(matrix, noise, strict=True)])
        value = np.linalg.lstsq(factor, (wanted / noise[:, None]).ravel(), rcond=None)[0]
        noise = (wanted - matrix @ value).std(axis=1)
    yield
    yield {'torque': (rows(q, v, a)[:, :, chosen] @ value).T}


def independent(columns: Array) -> Array:
    """Return the indices of independent columns, by a pivoted QR."""
    norm = np.linalg.norm(columns, axis=0)
    kept = np.flatnonzero(norm > _RANK * norm.max())
    triangle, order = scipy.linalg.qr(columns[:, kept], mode='r', pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.sort(kept[order[:int((size > _RANK * size[0]).sum())]])


def lean(urdf: str, joints: Sequence[str]) -> str:
    """Return a URDF of the moving joints and bodies alone, which all tools read alike."""
    tree = ElementTree.fromstring(urdf)
    for link in tree.findall('link'):
        for what in ('visual', 'collision'):
            for item in link.findall(what):
                link.remove(item)
    for joint in tree.findall('joint'):
        for what in ('mimic', 'safety_controller', 'calibration', 'dynamics'):
            for item in joint.findall(what):
                joint.remove(item)
        moves = joint.get('name') in joints
        joint.set('type', 'revolute' if moves else 'fixed')
        limit = joint.find('limit')
        if moves and limit is not None and limit.get('upper') is None:
            limit.set('lower', '-1000')
            limit.set('upper', '1000')
    for item in [child for child in tree if child.tag not in ('link', 'joint')]:
        tree.remove(item)
    about = ElementTree.SubElement(tree, 'mujoco')
    ElementTree.SubElement(about, 'compiler', boundmass='1e-4', boundinertia='1e-7',
                           balanceinertia='true', autolimits='true')
    return ElementTree.tostring(tree, encoding='unicode')


# ---------------------------------------------------------------------------- payloads


def _rows_in_motion(robot: Robot, joints: JointSamples, sensor: WrenchSamples) -> Array:
    """Return columns of body, biases and readings of filtered samples over the noise of a fit.

    Returns:
        Shape (6 k, 17); readings are the last column.

    """
    period = float(np.median(np.diff(joints.time)))
    time = joints.time[0] + period * np.arange(int(np.ptp(joints.time) / period))
    even = np.column_stack([np.interp(time, joints.time, column) for column in joints.position.T])
    q = low_passed(even, period, _BODY_CUTOFF)
    v = np.gradient(q, period, axis=0)
    a = np.gradient(v, period, axis=0)
    rate = float(np.median(np.diff(sensor.time)))
    smooth = (low_passed(sensor.wrench, rate, _BODY_CUTOFF) if _BODY_CUTOFF * rate < 0.4
              else sensor.wrench)
    used = slice(int(1.0 / period), -int(1.0 / period), max(1, int(0.2 / (_BODY_CUTOFF * period))))
    measured = np.column_stack([np.interp(time[used], sensor.time, column) for column in smooth.T])
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


# ----------------------------------------------------------------------------- friction


def coulomb_viscous(robot: Robot, samples: JointSamples, joint: int, speeds: Array) -> Array:
    """Return friction at some speeds by least squares of Coulomb, viscous friction and offset.

    Args:
        robot: The arm with all that it carries.
        samples: Joint states of the runs.
        joint: Column of the joint.
        speeds: Signed speeds, shape (k,) [rad/s].

    """
    points = read_runs(robot, samples, [joint])

    def columns(speed: Array) -> Array:
        return np.column_stack((np.ones_like(speed), np.sign(speed), speed))

    value = np.linalg.lstsq(columns(np.array([point.speed for point in points])),
                            np.array([point.torque for point in points]), rcond=None)[0]
    return np.asarray(columns(speeds) @ value)


def load_dependent(robot: Robot, samples: JointSamples, joint: int, speeds: Array) -> Array:
    """Return the same by a law whose Coulomb and Stribeck friction grow with the load.

    Duclusaud et al., Extended Friction Models for the Physics Simulation of Servo Actuators, 2025,
    arXiv 2410.08650; fitted to all samples in motion, and evaluated at their mean load.
    """
    def friction(x: Array, speed: Array, torque: Array) -> Array:
        coulomb, by_load, extra, extra_by_load, stribeck, shape, viscous = x
        slow = np.exp(-(np.abs(speed) / stribeck) ** shape)
        level = coulomb + by_load * np.abs(torque) + slow * (
            extra + extra_by_load * np.abs(torque))
        return np.asarray(np.sign(speed) * level + viscous * speed)

    period = float(np.median(np.diff(samples.time)))
    cutoff = min(_RUNS_CUTOFF, 0.2 / period)
    q = low_passed(samples.position, period, cutoff)
    v = np.gradient(q, period, axis=0)
    a = np.gradient(v, period, axis=0)
    effort = low_passed(samples.effort[:, [joint]], period, cutoff)[:, 0]
    rows = np.flatnonzero(np.abs(v[:, joint]) > _LEAST_SPEED)
    rows = rows[::max(1, len(rows) // 4000)]
    carried = np.array([robot.inverse_dynamics(*row)[joint]
                        for row in zip(q[rows], v[rows], a[rows], strict=True)])
    speed, left = v[rows, joint], effort[rows] - carried
    typical = rms(left)

    def residual(x: Array) -> Array:
        return friction(x, speed, carried) - left

    found = scipy.optimize.least_squares(
        residual, [typical, 0.0, typical, 0.0, 0.05, 1.0, 0.0],
        bounds=([0.0, 0.0, 0.0, 0.0, 1e-3, 0.2, 0.0],
                [np.inf, 1.0, np.inf, 1.0, 1.0, 3.0, np.inf]),
        x_scale=[typical, 0.1, typical, 0.1, 0.05, 1.0, typical], max_nfev=500)
    return friction(found.x, speeds, np.full(len(speeds), carried.mean()))
