# SPDX-License-Identifier: Apache-2.0
"""The node of the simulated arm in a thread of the test's process, and its client."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from geometry_msgs.msg import WrenchStamped
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState

from robocal_ros.messages.stream import Subscriber
from robocal_sim.node import SimArm
from support.live_graph import Client, seconds, trajectory

# A quarter of the usual rate: messages cost these tests as much as the physics.
FAST = {'real_time_factor': 0.0, 'free_run_factor': 0.0, 'joint_states_rate': 125.0}


class Rig(Client):
    """The arm and its client; a context manager."""

    def __init__(self, namespace: str = 'shared', **parameters: Any) -> None:
        overrides = [Parameter(name, value=value)
                     for name, value in {**FAST, **parameters}.items()]
        self.arm = SimArm(overrides, namespace)
        super().__init__(namespace=namespace)
        self.states: list[JointState] = []
        self.wrenches: list[WrenchStamped] = []
        self._arm_executor = SingleThreadedExecutor()
        self._arm_executor.add_node(self.arm)
        # A Subscriber takes all waiting messages before a request of the arm is answered.
        group = ReentrantCallbackGroup()
        Subscriber(self.node, group, JointState, 'joint_states', self.states.append).start()
        Subscriber(
            self.node, group, WrenchStamped, 'ft_wrist/wrench', self.wrenches.append).start()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self.arm.run, args=(self._arm_executor, self._stopped.is_set)
        )

    def __enter__(self) -> Rig:
        self._thread.start()
        self.until(lambda: bool(self.states) and bool(self.wrenches))
        self.until(self.action.server_is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.close()
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

    def result(self, handle: Any) -> Any:
        """Wait for the end of a goal and return status and result."""
        return self.wait(handle.get_result_async())

    def at_home(self) -> bool:
        """Return whether the arm rests in the zero posture."""
        return bool(np.abs(self.position).max() < 1e-3
                    and np.abs(self.states[-1].velocity).max() < 5e-3)

    def reset(self) -> None:
        """End all faults, and move the arm to the zero posture."""
        self.set('sim_arm', fault='none', controller_active=True, speed_scaling=1.0)
        if not self.at_home():
            self.result(self.send(trajectory((0.8, [0.0] * 6))))
            self.until(self.at_home)
