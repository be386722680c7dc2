# SPDX-License-Identifier: Apache-2.0
"""The running simulated arm that the tours share, in its own ROS domain."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ament_index_python.packages import get_package_prefix

from demo import default_cell
from demo.domains import own_domain
from demo.processes import Child, Children
from robocal_ros import launching, registry
from robocal_ros.cli.console import OUT
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.resources import share_directory
from robocal_ros.robot import Robot
from robocal_sim.truth import HiddenTruth, load_truth

CONTROLLER = 'joint_trajectory_controller'
"""Name of the controller that moves the arm."""

_START_TIMEOUT, _TIMEOUT = 60.0, 60.0
_CONTROLLERS = str(share_directory() / 'config' / 'controllers.yaml')
_DESCRIPTION = '/robot_description'
# The simulated arm pauses whenever the machine is busy, which is harmless here.
_STATE_TIMEOUT = 5.0


@dataclass(frozen=True)
class Stage:
    """A running simulated arm, its client and the folder of its results.

    Attributes:
        domain: ROS domain.
        children: The processes.
        session: This program's ROS node.
        robot: Model of the arm, to convert hidden values between frames.
        truth: Hidden truth of the simulated arm; for comparison only.
        store: Folder of the nodes' result files.
        full: True to run procedures at full length.
        commands_effort: Whether the controller commands efforts beside positions.

    """

    domain: int
    children: Children
    session: RosSession
    robot: Robot
    truth: HiddenTruth
    store: Path
    full: bool
    commands_effort: bool

    def start_node(self, name: str, parameters: Mapping[str, Any]) -> tuple[Child, NodeClient]:
        """Start a calibration node and wait until its services are available.

        Raises:
            ConfigurationError: The node does not come up within 60 s.
            RobocalError: A process exits.

        """
        OUT.print(f'Starting {name} ...', soft_wrap=True)
        child = self.children.start_node(registry.nodes()[name], name, {
            'use_sim_time': True, 'results_dir': str(self.store.resolve()),
            'state_timeout': _STATE_TIMEOUT, **parameters})
        client = NodeClient(self.session, name)
        client.wait_until_there(_START_TIMEOUT)
        return child, client

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something; raise a RobocalError that names it if it does not come in 60 s."""
        if not self.session.spin_until(lambda: bool(condition()), _TIMEOUT):
            raise RobocalError(f'No {what} within {_TIMEOUT:.0f} s; see the logs.')

    def start_view(self) -> str:
        """Start `robocal view`; return its sentence with the address.

        Raises:
            RobocalError: It exits, or does not serve its page within 60 s.

        """
        child = self.children.start('view', [sys.executable, '-m', 'robocal_ros.cli.main', 'view'])

        def address() -> str:
            return next((line for line in child.tail().splitlines() if 'http' in line), '')

        if not self.session.spin_until(lambda: bool(address()), _START_TIMEOUT):
            raise RobocalError(f'The view serves no page within {_START_TIMEOUT:.0f} s; see '
                               f'{child.log}.')
        return address()


@contextmanager
def open_stage(
    output: Path, seed: int, *, full: bool, truth_file: Path = default_cell.TRUTH_FILE,
    real_controller: bool = False,
) -> Iterator[Stage]:
    """Start a simulated arm; on exit, end it and all nodes.

    Args:
        output: Folder for logs and for the nodes' results.
        seed: Seed of noise and sensor biases.
        full: True to run procedures at full length.
        truth_file: Hidden truth of the arm.
        real_controller: True to move the arm by ros2_control instead of its own controller.

    Raises:
        ConfigurationError: The folder cannot be used, the chosen domain has nodes, or the arm does
            not come up, or ros2_control is not installed.
        RobocalError: A process exits, or the controller cannot be loaded.

    """
    truth = load_truth(truth_file)
    domain = own_domain()
    logs, store = output / 'logs', output / 'store'
    _remove(store)
    with Children(logs) as children:
        children.start_node('robocal_sim.node', 'sim_arm', {
            'real_time_factor': 0.0,
            'seed': seed,
            'truth_file': str(truth_file.resolve()),
            'cell_file': str(default_cell.CELL_FILE),
            **(_under_ros2_control() if real_controller else
               {'command_interfaces': ['position', 'effort']}),
        })
        if real_controller:
            _start_ros2_control(children)
        with RosSession('robocal_client', domain, watch=children.check) as session:
            _await_arm(session)
            yield Stage(domain, children, session, Robot(default_cell.urdf()), truth, store, full,
                        not real_controller)


def _under_ros2_control() -> dict[str, Any]:
    """Return the parameters of a simulated arm that is hardware of ros2_control."""
    return {'robot_description': default_cell.urdf('topic'),
            'command_rate': launching.update_rate(_CONTROLLERS)}


def _start_ros2_control(children: Children) -> None:
    """Start the controller manager, and its trajectory controller."""
    controllers = launching.controllers('topic', _CONTROLLERS, default_cell.urdf('topic'))
    programs = Path(get_package_prefix('controller_manager')) / 'lib' / 'controller_manager'
    OUT.print('Starting ros2_control ...')
    children.start('ros2_control_node', [
        str(programs / 'ros2_control_node'), '--ros-args', '--params-file', _CONTROLLERS,
        '-p', 'use_sim_time:=true'])
    children.complete('spawner', [str(programs / 'spawner'), *controllers], _START_TIMEOUT)


def _await_arm(session: RosSession) -> None:
    """Wait until the simulated arm has loaded: nodes wait a few seconds for its description."""
    if not session.spin_until(
            lambda: session.node.count_publishers(_DESCRIPTION) > 0, _START_TIMEOUT):
        raise ConfigurationError(
            f'The simulated arm does not publish {_DESCRIPTION} within {_START_TIMEOUT:.0f} s; '
            'see its log.')


def _remove(store: Path) -> None:
    """Remove the results of an earlier demo, so that they cannot be taken for new ones."""
    try:
        shutil.rmtree(store)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f'Results of an earlier run in {store} cannot be removed ({error.strerror}). '
            'Remove them, or choose another folder with --output.'
        ) from error
