# SPDX-License-Identifier: Apache-2.0
"""Friction of a joint from arrays of constant-speed runs."""

from __future__ import annotations

import simulated

from robocal_ros.friction import FrictionParameters, estimate
from robocal_ros.messages import JointSamples, Recording
from robocal_ros.results import reading

robot = simulated.robot()

# Stamps [s], shape (k,); angles [rad], speeds [rad/s] and efforts [N·m], shape (k, n) each. Runs
# are found in them; pauses and moves in between do not matter.
recorded = simulated.joint_states(*simulated.constant_speed_runs(joint=5))
joints = JointSamples(
    robot.joint_names, recorded.time, recorded.position, recorded.velocity, recorded.effort)

result = estimate(robot, Recording(joints), FrictionParameters(measure_joints=['joint_6']))

print(f'Verdict: {result.verdict.value}. {" ".join(result.reasons)}')
print('Law:', result.settings['laws']['joint_6']['model'])
for parameter in result.parameters:
    if parameter.value is not None:
        print(f'{parameter.name:26} {reading(parameter).text}')
print(f'truth: Coulomb {simulated.COULOMB} N·m, viscous {simulated.VISCOUS} N·m·s/rad')
