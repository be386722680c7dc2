# SPDX-License-Identifier: Apache-2.0
"""Mean posture from a recording."""

from __future__ import annotations

import numpy as np

from robocal_ros.estimators import Estimator, Needs
from robocal_ros.messages import Recording
from robocal_ros.results import CalibrationResult, Check, Fit, Inputs, Parameter
from robocal_ros.robot import Robot
from support.toy.parameters import ToyParameters


def estimate(
    robot: Robot, recording: Recording, values: ToyParameters, inputs: Inputs
) -> CalibrationResult:
    position = recording.joints.position
    std = position.std(axis=0) / np.sqrt(len(position))
    worst = float(position.std(axis=0).max())
    return CalibrationResult(
        kind='posture', method='mean', robot=robot.identity, frame='',
        parameters=tuple(Parameter(name, 'rad', float(value), float(deviation))
                         for name, value, deviation in zip(
                             robot.joint_names, position.mean(axis=0), std, strict=True)),
        covariance_names=robot.joint_names, covariance=np.diag(std**2),
        fit=(), validation=(Fit('posture', 'rad', 1.0, worst, len(position)),),
        checks=(Check('scatter', worst <= values.max_scatter, worst, values.max_scatter, 'rad',
                      f'The joints scatter by {worst:.2g} rad.'),),
        counts={'samples': len(position)}, settings={}, source=recording.joints.source,
        time=float(recording.joints.time[-1]), software_version='0')


def summary(result: CalibrationResult) -> str:
    return f'Mean posture of {len(result.parameters)} joints.'


POSTURE = Estimator('posture', ToyParameters, ('run', 'estimate'),
                     lambda values: Needs(effort=False), lambda values: (), estimate, summary)
