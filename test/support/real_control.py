# SPDX-License-Identifier: Apache-2.0
"""The real ros2_control, `ros2 launch` and `ros2 service call`, where they are installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_msgs.msg import JointTrajectoryControllerState
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState

from robocal_ros import launching, registry
from robocal_ros.messages import qos
from support.live_graph import JOINTS, ROOT, seconds
from support.ros_rig import PATIENCE

_PACKAGES = ('controller_manager', 'joint_trajectory_controller', 'joint_state_broadcaster',
             'force_torque_sensor_broadcaster', 'imu_sensor_broadcaster', 'robot_state_publisher')
_ENTRY = (
    '#!{python}\n'
    'from {module} import {name}\n'
    '{name}()\n')


def _missing(packages: Sequence[str]) -> str:
    """Return a sentence that names what is not installed, empty if all is."""
    lacking = [name for name in packages if not launching.is_installed(name)]
    if shutil.which('ros2') is None or importlib.util.find_spec('ros2launch') is None:
        lacking.append('ros2 launch')
    return '' if not lacking else (
        f'not installed: {", ".join(lacking)}; source a ROS distribution that has ros2_control '
        'and ros2_controllers')


def needs_real_control(*others: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module's tests; skip the module where a package is missing."""
    if missing := _missing((*_PACKAGES, *others)):
        pytest.skip(missing, allow_module_level=True)
    # They compare with the wall clock, and share the cores with no other test.
    return [pytest.mark.real_control, pytest.mark.realtime]


def installed_tree(prefix: Path) -> dict[str, str]:
    """Install this tree into an ament prefix; return the environment that finds it first."""
    # Copied: launch files are not looked for in linked folders.
    for part in ('config', 'launch', 'urdf'):
        shutil.copytree(ROOT / part, prefix / 'share' / 'robocal_ros' / part)
    marker = prefix / 'share' / 'ament_index' / 'resource_index' / 'packages' / 'robocal_ros'
    marker.parent.mkdir(parents=True)
    marker.touch()
    programs = prefix / 'lib' / 'robocal_ros'
    programs.mkdir(parents=True)
    modules = dict.fromkeys(registry.nodes(), 'robocal_ros.node.executables')
    for name, module in {**modules, 'sim_arm': 'robocal_sim.executable'}.items():
        program = programs / name
        program.write_text(_ENTRY.format(python=sys.executable, module=module, name=name))
        program.chmod(0o755)

    def before(variable: str, first: Path) -> str:
        return os.pathsep.join(filter(None, (str(first), os.environ.get(variable, ''))))

    return {**os.environ, 'AMENT_PREFIX_PATH': before('AMENT_PREFIX_PATH', prefix),
            'PYTHONPATH': before('PYTHONPATH', ROOT), 'PYTHONUNBUFFERED': '1',
            'OPENBLAS_NUM_THREADS': '1'}


class Command:
    """A command line of `ros2` in a child process; signals reach its whole group."""

    def __init__(self, environment: dict[str, str], log: Path, *words: str) -> None:
        self.log = log
        with log.open('w') as output:
            self.child = subprocess.Popen(
                ['ros2', *words], env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def said(self) -> str:
        return self.log.read_text()

    @property
    def has_controllers(self) -> bool:
        """Whether the spawner of a launch has ended, with all controllers active."""
        assert self.child.poll() is None, self.said
        return re.search(r'spawner-\d+\]: process has finished cleanly', self.said) is not None

    def send(self, number: signal.Signals) -> None:
        os.killpg(self.child.pid, number)

    def end(self, timeout: float = PATIENCE) -> int:
        return self.child.wait(timeout)

    def close(self) -> None:
        if self.child.poll() is None:
            self.send(signal.SIGINT)
            try:
                self.child.wait(20.0)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)
                self.child.wait()


class Call(Command):
    """A call of a Trigger service through `ros2 service call`."""

    def __init__(self, environment: dict[str, str], log: Path, service: str) -> None:
        super().__init__(environment, log, 'service', 'call', service, 'std_srvs/srv/Trigger')

    def answer(self, timeout: float = PATIENCE) -> tuple[bool, str]:
        """Wait for the answer; return success and message."""
        end = time.monotonic() + timeout
        while (found := re.search(
                r"Trigger_Response\(success=(\w+), message=(['\"])(.*)\2\)", self.said,
                re.S)) is None:
            if time.monotonic() > end:
                raise TimeoutError(f'no answer within {timeout} s: {self.said}')
            time.sleep(0.01)
        return found[1] == 'True', found[3]


class Shell:
    """Starts command lines of `ros2` that find this tree, and ends them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = installed_tree(folder / 'prefix')
        self._started: list[Command] = []

    def _log(self) -> Path:
        return self._folder / f'{len(self._started)}.log'

    @contextmanager
    def launch(self, file: str, **arguments: str) -> Iterator[Command]:
        """Launch a file of the package until the context ends; show what it said on errors."""
        words = [f'{name}:={value}' for name, value in arguments.items()]
        launched = Command(self._environment, self._log(), 'launch', 'robocal_ros', file, *words)
        self._started.append(launched)
        try:
            yield launched
        except BaseException:
            sys.stdout.write(f'--- {launched.log}\n{launched.said[-12000:]}\n')
            raise
        finally:
            launched.close()

    def run(self, *words: str) -> Command:
        """Begin a command line of `ros2`."""
        begun = Command(self._environment, self._log(), *words)
        self._started.append(begun)
        return begun

    def call(self, service: str) -> Call:
        """Begin a call of a Trigger service."""
        called = Call(self._environment, self._log(), service)
        self._started.append(called)
        return called

    def close(self) -> None:
        for started in self._started:
            started.close()


class Postures:
    """Postures of an arm by their arrival, read when they are asked for.

    At 500 Hz, reading each would cost a third of a core.
    """

    def __init__(self, node: Any, namespace: str) -> None:
        self._heard: list[tuple[float, Any, bytes]] = []
        self.newest_state = -np.inf
        node.create_subscription(
            JointState, f'{namespace}/joint_states', self._on_state, qos.RELIABLE, raw=True)
        node.create_subscription(
            JointTrajectoryControllerState,
            f'{namespace}/joint_trajectory_controller/controller_state', self._on_controller,
            qos.RELIABLE, raw=True)

    def _on_state(self, message: bytes) -> None:
        self.newest_state = time.monotonic()
        self._heard.append((self.newest_state, JointState, message))

    def _on_controller(self, message: bytes) -> None:
        self._heard.append((time.monotonic(), JointTrajectoryControllerState, message))

    def __len__(self) -> int:
        return len(self._heard)

    def clear(self) -> None:
        self._heard.clear()

    def _read(self, index: int) -> tuple[Any, np.ndarray]:
        _, kind, message = self._heard[index]
        state = deserialize_message(message, kind)
        names, positions = ((state.name, state.position) if kind is JointState else
                            (state.joint_names, state.feedback.positions))
        at = dict(zip(names, positions, strict=True))
        return state.header.stamp, np.array([at[name] for name in JOINTS])

    @property
    def stamp(self) -> Any:
        """Stamp of the newest message."""
        return self._read(-1)[0]

    @property
    def newest(self) -> np.ndarray:
        """Newest posture, shape (6,) [rad]."""
        return self._read(-1)[1]

    def rests(self, window: float = 0.25) -> bool:
        """Return whether a few postures of the last time are the same, by the stamps [s]."""
        since = seconds(self.stamp) - window
        first = bisect(range(len(self)), since, key=lambda i: seconds(self._read(i)[0]))
        return first > 0 and all(
            np.abs(self._read(i)[1] - self.newest).max() < 1e-4
            for i in np.linspace(first, len(self) - 1, 4).astype(int).tolist())

    def last_motion(self, still: float = 1e-3, *, by_stamp: bool = False) -> float:
        """Return when a joint was last away from its newest position [s].

        By arrival on the steady clock, or by the messages' stamps.
        """
        end = self.newest
        for index in range(len(self) - 1, -1, -1):
            stamp, posture = self._read(index)
            if np.abs(posture - end).max() > still:
                return seconds(stamp) if by_stamp else self._heard[index][0]
        return -np.inf
