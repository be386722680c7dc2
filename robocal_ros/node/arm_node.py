# SPDX-License-Identifier: Apache-2.0
"""Base of the nodes that move the arm: its joint states, motions, recording and load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.arm import Arm
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.messages import TEXT_LIMIT, JointStateStream, conversions, qos
from robocal_ros.node.calibration_node import CalibrationNode
from robocal_ros.node.journal import Journal
from robocal_ros.node.sample_recorder import SampleRecorder
from robocal_ros.results import CalibrationResult, provenance
from robocal_ros.robot import (
    ARM,
    DRIVE_GAINS,
    Robot,
    Trajectory,
    effort_factor,
    effort_scale,
    effort_scales,
    identified_arm,
    other_efforts,
)


class ArmNode(CalibrationNode):
    """Node of a capability that moves the arm; ``build`` calls the methods that it needs.

    Attributes:
        joints: Joint states of the arm.
        recorder: Recording of its procedure.
        known_robot: The arm of the URDF, or with its identified links.
        payload: Payload result in use; None without one.

    """

    joints: JointStateStream
    recorder: SampleRecorder
    known_robot: Robot
    payload: CalibrationResult | None = None

    def make_arm(
        self, busy: Callable[[], bool] = lambda: False, load_box: Sequence[float] = (),
        load_frame: str = '',
    ) -> None:
        """Create joint states and arm.

        Args:
            busy: Returns whether joint states are used while no procedure runs.
            load_box: Size of a box around a load that is mounted at times [m]; empty for none.
            load_frame: Frame of the box.

        """
        self.joints = self.stream(JointStateStream(
            self, self.group, self.robot, now=self.waiter.now,
            factor=effort_factor(self.robot, self.values), busy=lambda: self.busy or busy()))
        self.arm = self.stream(Arm(
            self.waiter, self.robot, self.joints, lambda: self.values, self.status, load_box,
            load_frame))

    def make_recorder(self, kind: str, state: type[Any], **streams: Any) -> None:
        """Create recorder and journal.

        Args:
            kind: Kind of the result.
            state: Type of the state of the procedure.
            **streams: Further arguments of ``SampleRecorder``.

        """
        self.recorder = self.arm.recorder = self.stream(
            SampleRecorder(self, self.joints, **streams))
        self.journal = Journal(self, self.recorder, kind, state)

    def follow_load(
        self, use: Callable[[Robot, CalibrationResult | None], None], *, payload: bool = True
    ) -> None:
        """Follow drive gains, identified arms and payloads.

        Args:
            use: Uses the known arm and the payload result, None without one, from now on.
            payload: Whether payload results are used.

        """
        def use_gains(result: CalibrationResult) -> None:
            arm = identified_arm(self.robot, self.values, result)
            known = self.robot if arm is None else arm.robot
            if known is not self.known_robot:
                self.known_robot = known
                use(known, self.payload)

        def use_payload(result: CalibrationResult) -> None:
            self.payload = result
            use(self.known_robot, result)

        self.known_robot, self.payload = self.robot, None
        use(self.robot, None)
        DriveGains(self, self.joints.set_factor, use_gains)
        if payload:
            self.results.follow('payload', use_payload)

    def filter_trajectories(
        self, change: Callable[[Trajectory], Mapping[str, Array | None]],
        period: float | None = None,
    ) -> None:
        """Republish trajectories of ``~/trajectory_in`` on ``~/trajectory_out``, changed.

        Invalid ones are dropped with an error.

        Args:
            change: Returns new values of the arm's joints by field of the points, shape (k, n);
                raises RobocalError. Fields that the points lack stay empty, except ``effort``.
            period: Largest time between two points, which are inserted if necessary [s]; None
                for the points as they are.

        """
        out = self.publisher(JointTrajectory, '~/trajectory_out', qos.RELIABLE)

        def receive(message: JointTrajectory) -> None:
            if not self.is_active:
                return
            try:
                if period is not None:
                    message = conversions.with_knots(message, period)
                trajectory, order = conversions.from_joint_trajectory(
                    message, self.robot.joint_names)
                changed = change(trajectory)
            except RobocalError as error:
                self.get_logger().error(f'Trajectory not passed on: {error}')
                return
            for name, rows in changed.items():
                for point, row in zip(message.points, () if rows is None else rows, strict=False):
                    values = np.array(np.zeros(len(message.joint_names)) if name == 'effort'
                                      else getattr(point, name))
                    if len(values):
                        values[order] = row
                        setattr(point, name, values.tolist())
            out.publish(message)

        self.subscription(JointTrajectory, '~/trajectory_in', receive, qos.RELIABLE,
                          limit=TEXT_LIMIT, idle_only=True)


class DriveGains:
    """Drive gains and identified arms, stored and as published, in use by a node.

    Attributes:
        scale: Divisor of the efforts, shape (n,).

    """

    def __init__(
        self, node: CalibrationNode, set_factor: Callable[[Array], None],
        on_use: Callable[[CalibrationResult], object] = lambda result: None,
    ) -> None:
        """Follow the results if the parameter ``use_drive_gains`` is true.

        Args:
            node: The node.
            set_factor: Sets the factors from efforts to torques, shape (n,), which have been those
                of ``effort_factor`` so far.
            on_use: Called with the result that is in use from now on.

        """
        self._node = node
        self._set_factor = set_factor
        self.scale = np.ones(node.robot.n)
        self._known: dict[str, CalibrationResult] = {}
        self._used: CalibrationResult | None = None
        self._on_use = on_use
        if node.values.use_drive_gains:
            node.results.follow(DRIVE_GAINS, self.use)
            node.results.follow(ARM, self.use)

    def use(self, result: CalibrationResult) -> None:
        """Use drive gains from now on, unless later ones are known.

        Samples with other scales are discarded. Results of other efforts are not used; procedures
        that would build on them refuse.
        """
        if text := other_efforts(self._node.robot, self._node.values, result):
            self._node.get_logger().warning(text)
            return
        self._known[result.kind] = result
        later = provenance.later(list(self._known.values()))
        if later is None or later is self._used:
            return
        result = self._used = later
        node = self._node
        self._on_use(result)
        scale = effort_scale(node.robot, result)
        if np.array_equal(scale, self.scale):
            return
        self.scale = scale
        self._set_factor(effort_factor(node.robot, node.values) / scale)
        scales = ', '.join(f'{name} {own:.3f}' for name, own in effort_scales(result).items())
        node.get_logger().info(f'Efforts are divided by the identified scales: {scales}.')
