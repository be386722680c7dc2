# SPDX-License-Identifier: Apache-2.0
"""A result with every kind of content."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robocal_ros.results import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    Series,
    State,
)

ROBOT = RobotIdentity('arm', 'ab' * 32, ('joint_1', 'joint_2'))


def example() -> CalibrationResult:
    factor = np.array([[0.004, 0.0, 0.0], [1e-4, 3.3e-4, 0.0], [-2e-5, 1e-4, 1 / 3e4]])
    covariance = factor @ factor.T
    std = np.sqrt(np.diag(covariance))
    angle = np.linspace(-1.0, 1.0, 12)
    return CalibrationResult(
        kind='payload',
        method='two_plane',
        robot=ROBOT,
        frame='tool0',
        parameters=(
            Parameter('mass', 'kg', 2.0 / 3.0, float(std[0])),
            Parameter('com_x', 'm', -1e-17, float(std[1])),
            Parameter('com_z', 'm', 0.0123, float(std[2]), note='Länge: "ab", yes'),
            Parameter('friction', 'N·m', 0.31, 0.002),
            Parameter('inertia_xx', 'kg·m²', state=State.NOT_EVALUATED, note='at rest'),
        ),
        covariance_names=('mass', 'com_x', 'com_z'),
        covariance=covariance,
        fit=(Fit('torque of joint_2', 'N·m', 1.23456789012345678, 0.1, 4000),),
        validation=(Fit('torque of joint_2', 'N·m', 1.1, 0.12, 400),),
        checks=(Check('interval', True, 0.00071, 0.005, 'm', 'The interval is ±0.71 mm.'),
                Check('ratio', True, float('inf'), float('inf'), '1', 'The ratio is no matter.')),
        counts={'samples': 5000, 'dropped': 3},
        settings={'known_mass': 2.0, 'second_joint': '', 'friction_model': ['joint_2'],
                  'gravity': [0.0, 0.0, -9.81], 'deep': {'yes': True, 'nothing': None}},
        source='live',
        time=1700000000.123456789,
        software_version='0.1.0',
        series=(Series('Torque of joint_2', 'joint_2 [rad]', 'torque [N·m]', angle,
                       {'measured': np.sin(angle) / 3.0, 'fit': np.sin(angle) / 3.1}),),
    )


def failing() -> CalibrationResult:
    return replace(example(), checks=(
        Check('interval', False, 0.01, 0.005, 'm', 'The interval is too wide.'),))
