# SPDX-License-Identifier: Apache-2.0
"""Mass and centre of mass of a tool from arrays of a wrist F/T sensor, one row per posture."""

from __future__ import annotations

import numpy as np
import simulated

from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload import PayloadParameters, static_poses
from robocal_ros.results import reading, write_result

robot = simulated.robot()

# Joint angles [rad], shape (k, n), and mean readings at rest [N, N·m], shape (k, 6). Rows more
# than 0.1 s apart are postures of their own.
positions = simulated.postures(14)
time = np.arange(len(positions), dtype=float)
still = np.zeros_like(positions)
wrenches = simulated.readings(time, positions, still, still).wrench

result = static_poses.estimate(
    robot, JointSamples(robot.joint_names, time, positions, still, still),
    WrenchSamples('ft_wrist', time, wrenches),
    PayloadParameters(method='static_poses', sensor_frame='ft_wrist'))

print(f'Verdict: {result.verdict.value}. {" ".join(result.reasons)}')
for name in ('mass', 'com_x', 'com_y', 'com_z'):
    print(f'{name:6} {reading(result.parameter(name)).text}')
print(f'truth  {simulated.TOOL.mass} kg, {1e3 * simulated.TOOL.com} mm')
write_result(result, simulated.Path('payload.yaml'))
