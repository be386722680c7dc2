# SPDX-License-Identifier: Apache-2.0
"""Node ``leveling``: levels the tool in place, on call or by rule, and verifies the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pinocchio as pin
from sensor_msgs.msg import Imu
from std_msgs.msg import ColorRGBA, String
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arm import PreviewArm
from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import ConfigurationError
from robocal_ros.leveling.model import Tool, fixed_placement, reference_axis
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.plan import LevelPlan
from robocal_ros.leveling.procedure import LevelingProcedure, ToolImu
from robocal_ros.messages import Intake, Stream, conversions, decode, qos
from robocal_ros.node import Answer, ArmNode, spin
from robocal_ros.parameters import named
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import (
    GRAVITY,
    Robot,
    SagCorrection,
    carried_load,
    compliance_by_joint,
)

# Longest wait for the arm to rest after a motion [s].
_REST = 10.0
_FRAME, _TASK = 'frame:', 'task:'


class Leveling(ArmNode):
    """Plans, shows, executes and verifies leveling motions.

    Attributes:
        tool: Forward kinematics of the point that is held.
        imu: IMU on the tool; None without one.
        rules: Rules that trigger leveling.

    """

    capability = 'leveling'
    parameter_table = LevelingParameters
    verbs = (*ArmNode.verbs, 'level')
    values: LevelingParameters
    late_modules = (*ArmNode.late_modules, 'scipy.ndimage')
    idle_message = 'Active; call run or preview.'

    def build(self) -> None:
        """Create streams, arm, IMU and rules."""
        values = self.values
        self.tool = Tool(self.robot, values.tool_point)
        self.make_arm()
        self._compliance: dict[str, float] = {}
        if values.use_compliance:
            self.results.follow('compliance', self._use_compliance)
        self.follow_load(self._use_arm, payload=values.use_compliance)
        self.imu = self._tool_imu() if values.imu_topic else None
        self.rules = AutoLeveling(self)

    def _tool_imu(self) -> ToolImu:
        """Return the IMU on the tool; raises ConfigurationError if it is not fixed to the tool."""
        frame, robot = self.values.imu_frame, self.robot
        own, tool = (robot.model.frames[robot.frame_id(name)]
                     for name in (frame, robot.tool_frame))
        if own.parentJoint != tool.parentJoint:
            raise ConfigurationError(
                f"imu_frame '{frame}' is not fixed to the tool frame '{robot.tool_frame}': a "
                'joint lies between them. Name the frame of an IMU on the tool.')
        topic = self.values.imu_topic
        return ToolImu(
            np.array((tool.placement.inverse() * own.placement).rotation),
            self.stream(Stream(
                self, self.group, Imu, topic, Intake(decode.imus(f"IMU topic '{topic}'", frame)),
                now=self.waiter.now, remedy='Check imu_topic and the sensor.', tolerated=0)))

    def _use_compliance(self, result: CalibrationResult) -> None:
        self._compliance = compliance_by_joint(result)

    def _use_arm(self, known: Robot, payload: CalibrationResult | None) -> None:
        self._axis = reference_axis(known, self.values.reference)
        self._carrying = known if payload is None else known.with_payload(
            carried_load(payload), payload.frame)

    # -------------------------------------------------------------------- services

    async def run(self) -> Answer:
        """Level the tool."""
        await self.arm.connect()
        return Answer(*await self._procedure().level())

    async def level(self) -> Answer:
        """Level the tool; another name of ``run``."""
        return await self.run()

    async def rehearse(self, arm: PreviewArm) -> str:
        """Plan and show the motion."""
        return await replace(self._procedure(), arm=arm).rehearse()

    async def estimate(self) -> str:
        """Measure the tilt without moving."""
        return await self._procedure().measure()

    async def clear(self) -> str:
        """Discard the samples of the last motion."""
        count = self.joints.recorded
        self.joints.clear()
        return f'{count} samples discarded.'

    def _procedure(self) -> LevelingProcedure:
        sag = (SagCorrection(self.known_robot, self._carrying, self._compliance)
               if self._compliance else None)
        known, arm = self.known_robot.gravity, self.results.gains()
        spread = 0.0 if arm is None or np.array_equal(known, self.robot.gravity) else float(
            np.linalg.norm([arm.parameter(name).std or 0.0 for name in GRAVITY])
            / np.linalg.norm(known))
        return LevelingProcedure(
            self.arm, self.joints, self.status, self.values, self._axis, known, self.imu,
            self._show, sag, spread)

    def _show(self, start: Array, plan: LevelPlan) -> None:
        self.publish_markers(leveling_markers(self.tool, start, plan, self.values.max_step))


# ------------------------------------------------------------------------------- rules


class AutoLeveling:
    """Triggers leveling after motions of the controller and on tasks.

    Only a successful motion triggers it: after one that was cancelled or aborted, and after
    motions by hand, a person may be next to the arm.
    """

    def __init__(self, node: Leveling) -> None:
        """Subscribe to the topics that the rules need.

        Raises:
            ConfigurationError: If a frame does not exist or moves.

        """
        names, robot = named(node.values.auto_level_after), node.robot
        self._node = node
        self._tasks: set[str] = set()
        self._regions: dict[str, pin.SE3] = {}
        self._half = 0.5 * frozen(node.values.auto_level_box)
        for name in names:
            is_frame = name.startswith(_FRAME) or (
                not name.startswith(_TASK) and robot.model.existFrame(name))
            bare = name.removeprefix(_FRAME).removeprefix(_TASK)
            if is_frame:
                self._regions[bare] = fixed_placement(robot, bare, 'auto_level_after')
            else:
                self._tasks.add(bare)
            node.get_logger().info(
                f"auto_level_after: '{bare}' is a {'frame' if is_frame else 'task'}.")
        self._task = ''
        self._pending = False
        if self._tasks:
            node.subscription(String, '~/task', self._on_task, qos.RELIABLE)
        if names:
            node.arm.client.goals.on_success = self._on_success

    def _on_task(self, message: String) -> None:
        self._task = message.data
        if self._task in self._tasks:
            self._expect()

    def _on_success(self) -> None:
        if not self._node.busy:
            self._expect()

    def _expect(self) -> None:
        """Level as soon as the arm rests, if a rule still applies then."""
        node = self._node
        if self._pending or not node.is_active:
            return
        if node.arm.client.goals.foreign:
            node.get_logger().info('Leveling by rule waits until the goal that another client has '
                                   'sent the controller has succeeded.')
            return
        self._pending = True
        node.begin('motion that may trigger leveling', self._when_resting)

    async def _when_resting(self) -> None:
        node = self._node
        try:
            rests = await node.waiter.until(lambda: node.arm.resting or not node.is_active, _REST)
        finally:
            self._pending = False
        reason = self.reason() if rests and node.is_active and not node.busy else ''
        if reason:
            await self._level(reason)

    async def _level(self, reason: str) -> None:
        self._node.get_logger().info(f'Leveling by rule: {reason}.')
        await self._node.answer('level', self._node.run)

    def reason(self) -> str:
        """Return the rule that applies, or an empty string; none while others move the arm."""
        arm = self._node.arm
        if arm.owner.other or arm.client.goals.foreign:
            return ''
        if self._task in self._tasks:
            return f"task '{self._task}'"
        point = self._node.tool.pose(arm.posture())[1]
        for frame, placement in self._regions.items():
            if (np.abs(placement.actInv(point)) <= self._half).all():
                return f"the tool is in the region about '{frame}'"
        return ''


# ----------------------------------------------------------------------------- markers

_AXES = ((0.9, 0.15, 0.15), (0.15, 0.75, 0.2), (0.2, 0.35, 0.95))
_CURRENT, _TARGET, _BETWEEN = 0.12, 0.20, 0.06
_GHOSTS = 8
_GHOST = (0.2, 0.6, 0.95)


def leveling_markers(tool: Tool, start: Array, plan: LevelPlan, max_step: float) -> MarkerArray:
    """Return the markers of a plan, in the robot's root frame.

    Args:
        tool: Forward kinematics.
        start: Initial posture, shape (n,) [rad].
        plan: The plan; without a motion, only the current frame is shown.
        max_step: Largest turn between two transition poses [rad].

    """
    root = tool.robot.root_frame
    rotation, point = tool.pose(start)
    cleared = Marker(action=Marker.DELETEALL)
    cleared.header.frame_id = root
    markers = [cleared, _frames(root, 'current_frame', [rotation], point, _CURRENT, 0.010)]
    task, path = plan.task, plan.path
    if task is not None and path is not None:
        between = list(task.transition_poses(max_step))
        rotations, points = tool.poses(path.positions)
        rows = np.unique(np.linspace(0, len(path.positions) - 1, _GHOSTS).round().astype(int))
        markers += [
            _frames(root, 'target_frame', [task.orientation(1.0)], point, _TARGET, 0.014),
            _frames(root, 'transition_poses', between, point, _BETWEEN, 0.004),
            # Stick figures of the arm along the path, increasingly opaque.
            *(conversions.to_marker(
                root, 'ghost', Marker.LINE_STRIP,
                (*_GHOST, 0.15 + 0.55 * number / max(len(rows) - 1, 1)), (0.012,),
                number=number, points=tool.skeleton(path.positions[row]))
              for number, row in enumerate(rows)),
            # The path of the tip of the tool's z axis.
            conversions.to_marker(
                root, 'ghost_path', Marker.LINE_STRIP, (0.95, 0.8, 0.1, 1.0), (0.005,),
                points=points + _TARGET * rotations[:, :, 2])]
    return MarkerArray(markers=markers)


def _frames(
    root: str, name: str, rotations: Sequence[Array], point: Array, length: float, width: float
) -> Marker:
    """Return frames at one point as red, green and blue axes."""
    marker = conversions.to_marker(
        root, name, Marker.LINE_LIST, (0.0, 0.0, 0.0, 1.0), (width,),
        points=[end for rotation in rotations for axis in rotation.T
                for end in (point, point + length * axis)])
    marker.colors = [ColorRGBA(r=red, g=green, b=blue, a=1.0)
                     for red, green, blue in _AXES for _ in range(2)] * len(rotations)
    return marker


main = partial(spin, Leveling)
"""Run the node; returns the exit code."""


if __name__ == '__main__':
    sys.exit(main())
