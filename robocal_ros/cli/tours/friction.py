# SPDX-License-Identifier: Apache-2.0
"""Friction identification in the demo: laws of the wrist's joints, or of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robocal_ros.cli.console import OUT, ProgressView
from robocal_ros.cli.node_client import NodeClient
from robocal_ros.cli.processes import Child
from robocal_ros.cli.tours.stage import Stage
from robocal_ros.cli.tours.tour import Tour, TourOutcome
from robocal_ros.core.friction.estimate import NAMES
from robocal_ros.core.friction.law import DIRECTIONS
from robocal_ros.core.result import CalibrationResult
from robocal_ros.errors import RobocalError
from robocal_ros.io.result_yaml import from_yaml, read_result
from robocal_ros.sim.truth import FrictionTruth, HiddenTruth

_TITLE = 'friction, constant speeds'
_SHORT: dict[str, Any] = {
    'measure_joints': ['joint_5', 'joint_6'], 'speed_count': 7, 'min_speed': 0.01,
    'max_cruise': 3.0,
}
_METHOD = 'auto'


def friction_truth(truth: HiddenTruth, joints: Sequence[str]) -> dict[str, float]:
    """Return the hidden friction by the parameter names of results.

    Args:
        truth: What is hidden.
        joints: Names of the joints.

    """
    return {
        f'{joint}.{name}_{direction}': values[name][side]
        for joint in joints
        for values in [_by_name(truth.joints[joint].friction)]
        for name in NAMES
        for side, direction in enumerate(DIRECTIONS)
    }


def _by_name(friction: FrictionTruth) -> dict[str, tuple[float, float]]:
    return {'coulomb': friction.coulomb, 'static': friction.breakaway,
            'stribeck_velocity': friction.stribeck_velocity, 'viscous': friction.viscous}


class FrictionTour(Tour):
    """Joints turn at constant speeds; the payload that was identified before is taken off."""

    capability = 'friction'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Carry it out; see the base class."""
        child, client = stage.start_node(
            'robocal_ros.nodes.friction_identification', 'friction_identification',
            {'model': _METHOD, **({} if stage.full else _SHORT)})
        message, result = self._measured(stage, child, client)
        truth = {}
        if result is not None:
            measured = dict.fromkeys(p.name.rpartition('.')[0] for p in result.parameters)
            truth = friction_truth(stage.truth, list(measured))
        return [TourOutcome(_TITLE, message, result, truth)]

    def _measured(
        self, stage: Stage, child: Child, client: NodeClient
    ) -> tuple[str, CalibrationResult | None]:
        """Run the node through its lifecycle; return its answer, and the result if any."""
        try:
            client.change_state('configure')
            client.change_state('activate')
        except RobocalError as error:
            raise RobocalError(f'{error} The end of {child.log}:\n{child.tail(5)}') from error
        with ProgressView(_TITLE) as view:
            answer = client.call('run', view.update)
            elapsed = view.elapsed
        OUT.print(f'{_TITLE}: {answer.message} ({elapsed:.0f} s)', soft_wrap=True,
                  style=None if answer.success else 'red', markup=False)
        failed = stage.store / f'{self.capability}.failed.yaml'
        result = None
        if answer.success:
            result = from_yaml(client.new_result(_METHOD), name=f'{client.name}/result')
        elif failed.exists():
            result = read_result(failed)
        client.change_state('deactivate')
        client.change_state('cleanup')
        return answer.message, result
