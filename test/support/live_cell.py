# SPDX-License-Identifier: Apache-2.0
"""A node under test on the simulated arm, each in a process of its own, and what is heard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition

from robocal_ros.messages import qos
from robocal_ros.results import CalibrationResult, read_result
from robocal_ros.robot import SteadyFriction
from support.live_graph import TRUTH, Client, Process, phase, sim_arm, start_node, value
from support.ros_rig import PATIENCE

HIDDEN = yaml.safe_load(TRUTH.read_text())
PAYLOAD, FRICTION = 'payload_identification', 'friction_identification'
COMPLIANCE, LEVELING, WRENCH = 'compliance_calibration', 'leveling', 'wrench_observer'
AT_REST = 1e-3
# One more than a law needs that is validated with speeds left out: a run may be rejected.
SPEEDS = (0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
POSTURES = 10


def friction_node(log: Path, results: Path, **parameters: Any) -> Process:
    """Start a friction node, active at once, with few short runs.

    Their shape says little of gravity, which 5 % of the links' masses would let it change by more
    than the laws may be off; the URDF has the arm's.
    """
    return start_node(FRICTION, log, results, **{
        'arm_model_std': 0.01, 'speeds': list(SPEEDS), 'max_cruise': 1.3, 'max_velocity': 3.0,
        'max_acceleration': 12.0, 'state_timeout': 5.0, 'max_rounds': 1, **parameters})


def compliance_node(log: Path, results: Path, **parameters: Any) -> Process:
    """Start a compliance node, active at once, with few short dwells."""
    tracker, load = HIDDEN['tracker'], HIDDEN['load']
    return start_node(COMPLIANCE, log, results, **{
        'state_timeout': 5.0, 'max_velocity': 2.0, 'max_acceleration': 6.0,
        'posture_count': POSTURES, 'posture_range': 0.8, 'dwell': 0.6, 'settle': 0.2,
        'reference_every': 5, 'registration': 'three_point', 'target_frame': 'flange',
        'target_xyz': tracker['target_xyz'], 'visibility_angle': 2.1,
        'tracker_position': [2.5, -1.0, 0.3], 'load_mass': float(load['mass']),
        'load_com': load['centre_of_mass'], 'load_frame': 'flange',
        'attach_service': 'sim_arm/attach_load', 'detach_service': 'sim_arm/detach_load',
        **parameters})


@dataclass(kw_only=True)
class Cell:
    """The arm, the node under test, and the folder of its results."""

    client: Client
    name: str
    arm: Process
    node: Process
    results: Path
    received: dict[str, list[Any]] = field(default_factory=dict)
    in_use: dict[str, Any] = field(default_factory=dict)
    """Parameters that were set last."""

    @property
    def statuses(self) -> list[DiagnosticStatus]:
        return self.client.statuses[self.name]

    @property
    def messages(self) -> list[str]:
        return [str(status.message) for status in self.statuses]

    def shown(self, key: str) -> list[str]:
        """Return the values of a key in the statuses received."""
        return [found for status in self.statuses for found in [value(status, key)] if found]

    def stored(self, kind: str) -> CalibrationResult:
        return read_result(self.results / f'{kind}.yaml')

    def fault(self, text: str) -> None:
        self.client.set('sim_arm', fault=text)

    def begin(self, verb: str = 'run') -> Any:
        return self.client.begin(verb, self.name)

    def wait(self, call: Any, timeout: float = 900.0) -> Any:
        return self.client.wait(call, timeout)

    def call(self, verb: str) -> Any:
        return self.wait(self.begin(verb))

    def done(self, verb: str = 'run') -> str:
        """Call a service, which must succeed; return what it says."""
        answer = self.call(verb)
        assert answer.success, answer.message
        return str(answer.message)

    def refused(self, call: Any) -> str:
        """Wait for a call, which must fail, with a sentence and the arm at rest."""
        answer = self.wait(call)
        assert not answer.success, answer.message
        assert 'Defect' not in answer.message
        assert answer.message[-1] in '.?'
        assert self.client.travel() < AT_REST
        return str(answer.message)

    def ends(self, call: Any, *words: str) -> None:
        """The call is refused with these words, and the node is idle."""
        said = self.refused(call)
        # Status messages arrive independently of the answer; the last one closes the run.
        self.await_phase('idle')
        for word in words:
            assert re.search(word, said), said

    def cancelled(self, call: Any) -> None:
        """Cancel a procedure, which holds the arm."""
        assert self.client.call('cancel', self.name).success
        self.ends(call, 'Cancelled on request', 'The arm is held')

    def await_message(self, text: str, timeout: float = 2.0 * PATIENCE) -> None:
        """Wait for a status, newer than this call, whose message contains a text."""
        self.statuses.clear()
        self.client.until(lambda: any(text in message for message in self.messages), timeout, text)

    def await_phase(self, name: str) -> None:
        """Wait until the last status has this phase."""
        self.client.until(lambda: self.statuses and phase(self.statuses[-1]) == name, what=name)

    def configure(self, **values: Any) -> bool:
        """Give the node other parameters; return whether it takes them."""
        client = self.client
        for state, transition in (('active', Transition.TRANSITION_DEACTIVATE),
                                  ('inactive', Transition.TRANSITION_CLEANUP)):
            if client.state(self.name) == state:
                assert client.change(transition, self.name)
        client.set(self.name, **values)
        self.in_use = values
        if not (client.change(Transition.TRANSITION_CONFIGURE, self.name)
                and client.change(Transition.TRANSITION_ACTIVATE, self.name)):
            return False
        # Its services are new ones, which may be discovered later: requests would be lost. One
        # that came late may still be under way.
        client.until(lambda: client.ask('clear', self.name).success)
        return True

    def use(self, **values: Any) -> None:
        """Configure the node with these parameters, unless it is active with them."""
        if values != self.in_use or self.client.state(self.name) != 'active':
            assert self.configure(**values)

    def assert_truth_unread(self) -> None:
        """The node has opened its results and nothing of the simulation."""
        opened = (self.results.parent / 'opened.txt').read_text().splitlines()
        assert any(str(self.results) in name for name in opened)
        assert not [name for name in opened if TRUTH.name in name or 'robocal_sim/' in name]


@contextmanager
def live_cell(
    client: Client, folder: Path, start: Callable[..., Process], name: str, *,
    arm: Mapping[str, Any] | None = None, topics: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Iterator[Cell]:
    """Start an arm and a node, and wait until the node is active.

    Args:
        client: The client.
        folder: Folder of logs, results, and the list of files that the node opens.
        start: Starts the node, from log, results and parameters.
        name: Name of the node.
        arm: Parameters of the simulated arm.
        topics: Types of latched topics of the node to listen to, or types and profiles.
        **parameters: Parameters of the node.

    """
    results = folder / 'results'
    with (
        sim_arm(folder / 'sim_arm.log', **(arm or {})) as simulated,
        start(folder / 'node.log', results, opened=folder / 'opened.txt', **parameters) as node,
    ):
        client.statuses[name] = client.subscribe(DiagnosticStatus, f'/{name}/status', qos.LATCHED)
        client.until(lambda: client.state(name) == 'active')
        received = {topic: client.subscribe(kind, f'/{name}/{topic}', profile)
                    for topic, item in (topics or {}).items()
                    for kind, profile in [
                        item if isinstance(item, tuple) else (item, qos.LATCHED)]}
        yield Cell(client=client, name=name, arm=simulated, node=node, results=results,
                   received=received)


def hidden_friction(joint: str) -> SteadyFriction:
    """Return the hidden friction of a joint."""
    friction = HIDDEN['joints'][joint]['friction']
    return SteadyFriction(
        friction['coulomb'], friction['breakaway'], friction['stribeck_velocity'],
        friction['viscous'])


def curve_error(law: SteadyFriction, truth: SteadyFriction) -> float:
    """Return the RMS error over the range of speeds, relative to the truth's RMS [%]."""
    speed = np.linspace(SPEEDS[0], SPEEDS[-1], 300)
    both = np.concatenate((speed, -speed))
    error = law.torque(both) - truth.torque(both)
    return 100.0 * float(np.sqrt(np.mean(error**2) / np.mean(truth.torque(both)**2)))


def truth_with(folder: Path, **changes: Any) -> Path:
    """Write a hidden truth with changes; return its path."""
    path = folder / 'truth.yaml'
    path.write_text(yaml.safe_dump({
        key: item for key, item in {**HIDDEN, **changes}.items() if item is not None}))
    return path


def scaled_joints(scales: Mapping[str, float]) -> dict[str, Any]:
    """Return the hidden joints with effort scales."""
    return {name: {**HIDDEN['joints'][name], 'effort_scale': scale}
            for name, scale in scales.items()}
