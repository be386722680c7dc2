# SPDX-License-Identifier: Apache-2.0
"""Where tours take place: a simulated arm in a ROS domain of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import default_cell
from demo.domains import own_domain
from demo.processes import Child, Children
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import ConfigurationError
from robocal_ros.robot.model import Robot
from robocal_sim.truth import HiddenTruth, load_truth

_START_TIMEOUT = 60.0
# A simulated arm is silent whenever the machine is busy with other things, and does no harm.
_STATE_TIMEOUT = 5.0


@dataclass(frozen=True)
class Stage:
    """The simulated arm that runs, and who talks to it.

    Attributes:
        domain: ROS domain of all of it.
        children: The processes.
        session: This program's node.
        robot: Model of the arm, for converting truths.
        truth: What the simulated arm hides; for comparison only.
        store: Folder where the nodes keep their results.
        full: Whether to run at full length.

    """

    domain: int
    children: Children
    session: RosSession
    robot: Robot
    truth: HiddenTruth
    store: Path
    full: bool

    def start_node(
        self, module: str, name: str, parameters: Mapping[str, Any]
    ) -> tuple[Child, NodeClient]:
        """Start a procedure node and wait until it is there.

        Raises:
            ConfigurationError: If it does not come up.
            RobocalError: If it ends by itself.

        """
        child = self.children.start_node(
            module, name,
            {'use_sim_time': True, 'results_dir': str(self.store.resolve()),
             'state_timeout': _STATE_TIMEOUT, **parameters})
        client = NodeClient(self.session, name)
        client.wait_until_there(_START_TIMEOUT)
        return child, client


@contextmanager
def open_stage(
    output: Path, seed: int, *, full: bool, truth_file: Path = default_cell.TRUTH_FILE
) -> Iterator[Stage]:
    """Start a simulated arm, and end it and all nodes in the end.

    Args:
        output: Folder for logs and for the nodes' results.
        seed: Seed of noise and sensor biases.
        full: Whether to run at full length.
        truth_file: What the arm hides.

    Raises:
        ConfigurationError: If the folder cannot be used, or nodes are on the chosen domain.

    """
    truth = load_truth(truth_file)
    domain = own_domain()
    logs, store = output / 'logs', output / 'store'
    _forget(store)
    environment = {'ROS_DOMAIN_ID': str(domain), 'ROS_LOG_DIR': str((logs / 'ros').resolve())}
    with Children(logs, environment) as children:
        children.start_node('robocal_sim.node', 'sim_arm', {
            'real_time_factor': 0.0,
            'seed': seed,
            'truth_file': str(truth_file.resolve()),
            'cell_file': str(default_cell.CELL_FILE),
        })
        with RosSession('robocal_client', domain, watch=children.check) as session:
            yield Stage(domain, children, session, Robot(default_cell.urdf()), truth, store, full)


def _forget(store: Path) -> None:
    """Remove results of an earlier run: they must not pass for this one's."""
    try:
        shutil.rmtree(store)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f'Results of an earlier run in {store} cannot be removed ({error.strerror}). '
            'Remove them, or name another folder with --output.'
        ) from error
