# SPDX-License-Identifier: Apache-2.0
"""Whether two results differ by more than chance: `06_comparing_results.py [RESULT RESULT]`.

For results from different recordings. Inputs that both are built on make their errors alike, which
this test does not know: it then finds too few differences.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.stats
import simulated

from robocal_ros.messages import JointSamples
from robocal_ros.payload import PayloadParameters, static_poses
from robocal_ros.results import CalibrationResult, read_result
from robocal_ros.robot import RigidBodyInertia


def simulated_result(tool: RigidBodyInertia, seed: int) -> CalibrationResult:
    """Return a payload result of simulated postures."""
    robot, q = simulated.robot(), simulated.postures(14, seed)
    time, still = np.arange(len(q), dtype=float), np.zeros_like(q)
    sensor = simulated.readings(time, q, still, still, tool=tool, seed=seed)
    return static_poses.estimate(
        robot, JointSamples(robot.joint_names, time, q, still, still), sensor,
        PayloadParameters(method='static_poses', sensor_frame='ft_wrist'))


if len(sys.argv) > 2:
    first, second = (read_result(Path(name)) for name in sys.argv[1:3])
else:
    moved = RigidBodyInertia(simulated.TOOL.mass, simulated.TOOL.com + [0.005, 0.0, 0.0],
                             simulated.TOOL.inertia)
    first, second = simulated_result(simulated.TOOL, 1), simulated_result(moved, 2)
if first.frame != second.frame:
    sys.exit(f'The results are in different frames: {first.frame} and {second.frame}.')

names = [name for name in first.covariance_names
         if name in second.covariance_names and not name.startswith('bias_')]
difference = second.values(names) - first.values(names)
covariance = sum(
    result.covariance[np.ix_(rows, rows)] for result in (first, second)
    for rows in [[result.covariance_names.index(name) for name in names]])
for name, value, std in zip(names, difference, np.sqrt(np.diag(covariance)), strict=True):
    print(f'{name}: {value:+.5f} ± {1.96 * std:.5f} {first.parameter(name).unit}')
distance = float(difference @ np.linalg.solve(covariance, difference))
chance = float(scipy.stats.chi2.sf(distance, len(names)))
print(f'χ² = {distance:.1f} with {len(names)} degrees of freedom, p = {chance:.2g}: '
      + ('the results differ' if chance < 0.001 else 'no significant difference'))
