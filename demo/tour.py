# SPDX-License-Identifier: Apache-2.0
"""Base class of the tours, their outcome, and its comparison with the hidden truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from demo.processes import Child
from demo.stage import Stage
from robocal_ros.cli.console import OUT, ProgressView
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import RobocalError
from robocal_ros.results import CalibrationResult, Verdict, from_yaml, read_result
from robocal_ros.results.report import Panel

LEVEL = 0.999
"""Confidence level of the interval that must contain the truth."""


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


@contextmanager
def active(child: Child, client: NodeClient) -> Iterator[None]:
    """Bring a node to active; on exit without an error, to unconfigured.

    Raises:
        RobocalError: The node refuses a transition; the message has the end of its log.

    """
    try:
        client.change_state('configure')
        client.change_state('activate')
    except RobocalError as error:
        raise RobocalError(f'{error} The end of {child.log}:\n{child.tail(5)}') from error
    yield
    client.change_state('deactivate')
    client.change_state('cleanup')


def answered(client: NodeClient, service: str, title: str) -> Any:
    """Call a service, show its progress and print its answer; return the answer."""
    with ProgressView(title) as view:
        answer = client.call(service, view.update)
        elapsed = view.elapsed
    OUT.print(f'{title}: {answer.message} ({elapsed:.0f} s)', soft_wrap=True,
              style=None if answer.success else 'red', markup=False)
    return answer


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
    failed = stage.store / f'{kind}.failed.yaml'
    failed.unlink(missing_ok=True)
    with active(child, client):
        answer = answered(client, 'run', title)
        if answer.success:
            text = new_result(stage.session, client, method)
            return answer.message, from_yaml(text, name=f'{client.name}/result')
    return answer.message, read_result(failed) if failed.exists() else None


# ------------------------------------------------------------------------- comparison


@dataclass(frozen=True)
class Comparison:
    """True and identified value of one parameter.

    Attributes:
        capability: Capability, e.g. ``payload``.
        method: Method.
        parameter: Name of the parameter.
        unit: SI unit of the numbers.
        truth: Hidden value.
        estimate: Identified value.
        std: Standard deviation of the estimate; None if unknown.
        verdict: Verdict of the result.
        covered: True if the 99.9 % interval of the estimate contains the truth.

    """

    capability: str
    method: str
    parameter: str
    unit: str
    truth: float
    estimate: float
    std: float | None
    verdict: Verdict
    covered: bool

    def summary(self) -> dict[str, Any]:
        """Return the fields of `summary.json`."""
        plain = asdict(self)
        del plain['covered']
        return {**plain, 'verdict': self.verdict.value}


def compare(result: CalibrationResult, truth: Mapping[str, float]) -> list[Comparison]:
    """Compare the parameters of a result with their hidden values.

    Args:
        result: The result; parameters without a value are skipped.
        truth: Hidden values by parameter name, in the result's frame.

    """
    found = []
    for name, hidden in truth.items():
        parameter = result.parameter(name)
        if parameter.value is None:
            continue
        interval = parameter.interval(LEVEL)
        found.append(Comparison(
            result.kind, result.method, name, parameter.unit, hidden, parameter.value,
            parameter.std, result.verdict,
            interval is not None and interval[0] <= hidden <= interval[1],
        ))
    return found
