# SPDX-License-Identifier: Apache-2.0
"""`sim_arm` in a thread, and its client over DDS."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import rclpy
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTolerance
from geometry_msgs.msg import WrenchStamped
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionClient
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_ros.messages.stream import Subscriber
from robocal_sim.node import SimArm
from support.ros_rig import Spinner

JOINTS = tuple(f'joint_{number}' for number in range(1, 7))
CONTROLLER = 'joint_trajectory_controller'
# A quarter of the usual rate: messages cost these tests as much as the physics.
FAST = {'real_time_factor': 0.0, 'free_run_factor': 0.0, 'joint_states_rate': 125.0}


def seconds(stamp: Any) -> float:
    return stamp.sec + 1e-9 * stamp.nanosec


def trajectory(
    *rows: tuple[float, Sequence[float]], joints: Sequence[str] = JOINTS
) -> JointTrajectory:
    message = JointTrajectory(joint_names=list(joints))
    for at, positions in rows:
        message.points.append(JointTrajectoryPoint(
            positions=[float(value) for value in positions],
            time_from_start=Duration(seconds=at).to_msg(),
        ))
    return message


def tolerances(position: float, joints: Sequence[str] = JOINTS) -> list[JointTolerance]:
    return [JointTolerance(name=name, position=position) for name in joints]


class Rig:
    """The arm and its client; a context manager."""

    def __init__(self, namespace: str = 'shared', **parameters: Any) -> None:
        overrides = [Parameter(name, value=value)
                     for name, value in {**FAST, **parameters}.items()]
        self.arm = SimArm(overrides, namespace)
        self.node = rclpy.create_node('client', namespace=namespace)
        self.states: list[JointState] = []
        self.wrenches: list[WrenchStamped] = []
        self._arm_executor = SingleThreadedExecutor()
        self._arm_executor.add_node(self.arm)
        self._spinner = Spinner(self.node)
        self.until, self.wait = self._spinner.until, self._spinner.wait
        self.action = ActionClient(
            self.node, FollowJointTrajectory, f'{CONTROLLER}/follow_joint_trajectory'
        )
        # A Subscriber takes all waiting messages before a request of the arm is answered.
        group = ReentrantCallbackGroup()
        Subscriber(self.node, group, JointState, 'joint_states', self.states.append).start()
        Subscriber(
            self.node, group, WrenchStamped, 'ft_wrist/wrench', self.wrenches.append).start()
        self.topic = self.node.create_publisher(
            JointTrajectory, f'{CONTROLLER}/joint_trajectory', 10
        )
        self._parameters = self.node.create_client(SetParameters, 'sim_arm/set_parameters')
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self.arm.run, args=(self._arm_executor, self._stopped.is_set)
        )

    def __enter__(self) -> Rig:
        self._thread.start()
        self.until(lambda: bool(self.states) and bool(self.wrenches))
        self.until(self.action.server_is_ready)
        self.until(self._parameters.service_is_ready)
        self.until(lambda: self.topic.get_subscription_count() > 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._spinner.__exit__(None, None, None)
        self._arm_executor.shutdown()
        self.arm.destroy_node()

    def advance(self, duration: float) -> None:
        """Wait for a duration of simulated time, by the stamps of the joint states [s]."""
        goal = self.time + duration
        self.until(lambda: self.time >= goal)

    def spin(self, duration: float) -> None:
        """Spin the client for a duration of wall time [s]."""
        deadline = time.monotonic() + duration
        self.until(lambda: time.monotonic() >= deadline)

    @property
    def time(self) -> float:
        return seconds(self.states[-1].header.stamp)

    @property
    def position(self) -> np.ndarray:
        return np.array(self.states[-1].position)

    @property
    def velocity(self) -> np.ndarray:
        return np.array(self.states[-1].velocity)

    def send(
        self,
        message: JointTrajectory,
        *,
        path: Sequence[JointTolerance] = (),
        goal: Sequence[JointTolerance] = (),
        goal_time: float = 0.0,
    ) -> Any:
        """Send a goal and return its handle, or None if it is rejected."""
        handle = self.wait(self.action.send_goal_async(FollowJointTrajectory.Goal(
            trajectory=message,
            path_tolerance=list(path),
            goal_tolerance=list(goal),
            goal_time_tolerance=Duration(seconds=goal_time).to_msg(),
        )))
        return handle if handle.accepted else None

    def result(self, handle: Any) -> Any:
        """Wait for the end of a goal and return status and result."""
        return self.wait(handle.get_result_async())

    def home(self) -> None:
        """Move the arm to the zero posture and wait until it is at rest."""
        if np.abs(self.position).max() < 1e-3 and np.abs(self.velocity).max() < 5e-3:
            return
        self.result(self.send(trajectory((0.8, [0.0] * 6))))
        self.until(lambda: np.abs(self.position).max() < 1e-3
                   and np.abs(self.velocity).max() < 5e-3)

    def set(self, name: str, value: Any) -> Any:
        """Set a parameter of the arm and return the answer."""
        return self._set({name: value})[0]

    def reset(self) -> None:
        """End all faults, and move the arm to the zero posture."""
        self._set({'fault': 'none', 'controller_active': True, 'speed_scaling': 1.0})
        self.home()

    def _set(self, values: dict[str, Any]) -> Any:
        request = SetParameters.Request(parameters=[
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()])
        return self.wait(self._parameters.call_async(request)).results
