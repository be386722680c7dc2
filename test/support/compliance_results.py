# SPDX-License-Identifier: Apache-2.0
"""A compliance result as the node stores it."""

from __future__ import annotations

import numpy as np

from robocal_ros import __version__
from robocal_ros.results import CalibrationResult, Check, Fit, Parameter, State
from support.friction_results import identity

COMPLIANCE = {'joint_2': 4.5e-6, 'joint_3': 9e-6, 'joint_4': 3.5e-5, 'joint_5': 5.5e-5}


def compliance_result() -> CalibrationResult:
    names = [f'{joint}.compliance' for joint in COMPLIANCE]
    parameters = [Parameter(name, 'rad/(N·m)', value, 0.01 * value)
                  for name, value in zip(names, COMPLIANCE.values(), strict=True)]
    unobservable = [Parameter(f'{joint}.compliance', 'rad/(N·m)', state=State.NOT_IDENTIFIED,
                              note='unobservable') for joint in ('joint_1', 'joint_6')]
    return CalibrationResult(
        kind='compliance', method='loaded_unloaded', robot=identity(), frame='',
        parameters=(unobservable[0], *parameters, unobservable[1]), covariance_names=tuple(names),
        covariance=np.diag([1e-4 * value**2 for value in COMPLIANCE.values()]),
        fit=(Fit('sag', 'm', 6e-4, 1e-5, 24),), validation=(Fit('sag', 'm', 6e-4, 1e-5, 6),),
        checks=(Check('sag removed on held-out postures', True, 0.98, 0.8, '1', 'Good.'),),
        counts={}, settings={'tracker_rotation': [float(x) for x in np.eye(3).ravel()],
                             'tracker_translation': [2.6, -0.9, 0.35]},
        source='live', time=100.0, software_version=__version__)
