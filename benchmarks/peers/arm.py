# SPDX-License-Identifier: Apache-2.0
"""Identification of arms by the product and by textbook methods, which predict efforts."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.messages import JointSamples
from robocal_ros.payload import PayloadParameters, arm_identification
from robocal_ros.payload.arm_regression import Law
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import Robot, arm_regressor, identified_model

CUTOFFS = (1.0, 2.0, 5.0, 10.0)
"""Cutoffs of the filter that other methods are tried with [Hz]."""

_RANK = 1e-4
_TRANSITION = 0.03


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
