# SPDX-License-Identifier: Apache-2.0
"""Node of the mean posture."""

from __future__ import annotations

import numpy as np

from robocal_ros.messages import JointStateStream
from robocal_ros.node import Answer, CalibrationNode, SampleRecorder
from support.toy.estimator import POSTURE, summary
from support.toy.parameters import ToyParameters


class PostureAverage(CalibrationNode):
    """Averages the posture; moves nothing."""

    capability = 'posture_average'
    parameter_table = ToyParameters

    def build(self) -> None:
        self.joints = self.stream(JointStateStream(
            self, self.group, self.robot, now=self.waiter.now, factor=np.ones(self.robot.n),
            busy=lambda: self.busy))
        self.recorder = self.stream(SampleRecorder(self, self.joints, wrenches={}))

    async def run(self) -> Answer:
        return await self.estimate()

    async def preview(self) -> str:
        return 'Nothing moves.'

    async def estimate(self) -> Answer:
        inputs = POSTURE.inputs(self.robot, self.values, self.results.current)
        recording = self.recorder.recording(POSTURE.needs(self.values))
        result = POSTURE.result(self.robot, recording, self.values, inputs)
        return self.keep(result, self.publish_result, summary)

    async def clear(self) -> str:
        return f'{self.recorder.clear()} samples discarded.'
