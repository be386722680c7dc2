# SPDX-License-Identifier: Apache-2.0
"""Base class of the tours, and their outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from demo.processes import Child
from demo.stage import Stage
from robocal_ros.cli.console import OUT, ProgressView
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import RobocalError
from robocal_ros.results import CalibrationResult, Verdict, from_yaml, read_result
from robocal_ros.results.report import Panel


@dataclass(frozen=True)
class TourOutcome:
    """Outcome of one method.

    Attributes:
        title: Capability and method.
        message: The node's answer.
        result: The result; None if the node refused or the capability has no result file.
        truth: Hidden values by parameter name, in the result's frame.
        panel: Additional table and figures for the report.

    """

    title: str
    message: str
    result: CalibrationResult | None
    truth: Mapping[str, float] = field(default_factory=dict)
    panel: Panel | None = None

    @property
    def passed(self) -> bool:
        """True if there is a result or panel, and each of them passed."""
        if self.result is None and self.panel is None:
            return False
        return ((self.panel is None or self.panel.passed)
                and (self.result is None or self.result.verdict is Verdict.PASS))


class Tour(ABC):
    """Demonstration of one capability."""

    capability: str
    """Name of the capability and of its result file."""

    @abstractmethod
    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run the tour.

        Args:
            stage: The simulated arm to run on.

        Raises:
            RobocalError: A node cannot be started or configured.

        """


def new_result(session: RosSession, client: NodeClient, method: str, timeout: float = 10.0) -> str:
    """Wait for the result of a method, and return its text.

    The last good result, perhaps of another method, is published on configure.

    Raises:
        RobocalError: If none is published in time.

    """
    if not session.spin_until(lambda: f'\nmethod: {method}\n' in client.result, timeout):
        raise RobocalError(
            f"Node '{client.name}' published no result of method '{method}' within "
            f'{timeout:.0f} s of its answer. See its log.')
    return client.result


def run_method(
    stage: Stage, child: Child, client: NodeClient, kind: str, method: str,
    parameters: Mapping[str, Any],
) -> tuple[str, CalibrationResult | None]:
    """Run one method of a calibration node through its lifecycle.

    Args:
        stage: The simulated arm to run on.
        child: Process of the node.
        client: Client of the node.
        kind: Kind of the result.
        method: Method that the result names.
        parameters: Parameters to set before the node is configured.

    Returns:
        The node's answer, and the result of any verdict; None if there is none.

    Raises:
        RobocalError: The node refuses a transition; the message has the end of its log.

    """
    title = f'{kind}, {method}'.replace('_', ' ')
    client.set_parameters(parameters)
    try:
        client.change_state('configure')
        client.change_state('activate')
    except RobocalError as error:
        raise RobocalError(f'{error} The end of {child.log}:\n{child.tail(5)}') from error
    failed = stage.store / f'{kind}.failed.yaml'
    failed.unlink(missing_ok=True)
    with ProgressView(title) as view:
        answer = client.call('run', view.update)
        elapsed = view.elapsed
    OUT.print(f'{title}: {answer.message} ({elapsed:.0f} s)', soft_wrap=True,
              style=None if answer.success else 'red', markup=False)
    result = None
    if answer.success:
        result = from_yaml(new_result(stage.session, client, method), name=f'{client.name}/result')
    elif failed.exists():
        result = read_result(failed)
    client.change_state('deactivate')
    client.change_state('cleanup')
    return answer.message, result
