# SPDX-License-Identifier: Apache-2.0
"""The friction node on the simulated arm, with few short runs, and the hidden friction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from std_srvs.srv import Trigger

from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import ResultStore, read_result
from robocal_ros.robot.friction_law import SteadyFriction
from support.friction_results import identity
from support.live_graph import TRUTH, Client, Process, value

NODE = 'friction_identification'
# One more than a law needs that is validated with speeds left out: a run may be rejected.
SPEEDS = (0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)


def friction_node(log: Path, results: Path, *, opened: Path | None = None, **parameters: object
                  ) -> Process:
    """Start a friction node, active at once, with short runs."""
    defaults = {'use_sim_time': True, 'autostart': True, 'results_dir': results,
                'speeds': list(SPEEDS), 'max_cruise': 1.3, 'max_velocity': 3.0,
                'max_acceleration': 12.0, 'state_timeout': 5.0, 'max_rounds': 1}
    values = {key: json.dumps(item) if isinstance(item, list | tuple) else item
              for key, item in {**defaults, **parameters}.items()}
    return Process('robocal_ros.friction.node', log, name=NODE, opened=opened,
                   **values)


def file_payload(results: Path, payload: CalibrationResult) -> None:
    """Store a payload result for the node."""
    ResultStore(results, identity()).save(payload)


def hidden(joint: str) -> SteadyFriction:
    """Return the hidden friction of a joint."""
    friction = yaml.safe_load(TRUTH.read_text())['joints'][joint]['friction']
    return SteadyFriction(
        friction['coulomb'], friction['breakaway'], friction['stribeck_velocity'],
        friction['viscous'])


def curve_error(law: SteadyFriction, truth: SteadyFriction) -> float:
    """Return the RMS error over the range of speeds, relative to the truth's RMS [%]."""
    speed = np.linspace(SPEEDS[0], SPEEDS[-1], 300)
    both = np.concatenate((speed, -speed))
    error = law.torque(both) - truth.torque(both)
    return 100.0 * float(np.sqrt(np.mean(error**2) / np.mean(truth.torque(both)**2)))


@dataclass
class Cell:
    """The processes, and the folder of the results."""

    client: Client
    node: Process
    results: Path

    def stored(self) -> CalibrationResult:
        return read_result(self.results / 'friction.yaml')

    def failed(self) -> CalibrationResult:
        return read_result(self.results / 'friction.failed.yaml')

    def messages(self) -> list[str]:
        return [str(status.message) for status in self.client.statuses[NODE]]

    def await_message(self, text: str, timeout: float = 150.0) -> None:
        """Wait for a status, newer than this call, whose message contains a text."""
        received = self.client.statuses[NODE]
        received.clear()
        self.client.until(
            lambda: any(text in status.message for status in received), timeout, text)

    def begin(self) -> object:
        return self.client.begin('run', NODE)

    def wait(self, run: object, timeout: float = 240.0) -> Trigger.Response:
        return self.client.wait(run, timeout)

    def values(self, key: str) -> list[float]:
        return [float(found) for status in self.client.statuses[NODE]
                for found in [value(status, key)] if found]
