# SPDX-License-Identifier: Apache-2.0
"""Friction tour: friction laws of the wrist joints, or of all joints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from demo.stage import Stage
from demo.tour import Tour, TourOutcome, run_method
from robocal_ros.robot import DIRECTIONS
from robocal_sim.truth import FrictionTruth, HiddenTruth

_SHORT: dict[str, Any] = {
    'measure_joints': ['joint_5', 'joint_6'], 'speed_count': 7, 'min_speed': 0.01,
    'max_cruise': 3.0,
}
_METHOD = 'auto'


def friction_truth(truth: HiddenTruth, joints: Sequence[str]) -> dict[str, float]:
    """Return the hidden friction parameters, by the parameter names of results.

    Args:
        truth: Hidden truth of the simulated arm.
        joints: Names of the joints.

    """
    return {
        f'{joint}.{name}_{direction}': values[name][side]
        for joint in joints
        for values in [_by_name(truth.joints[joint].friction)]
        for name in values
        for side, direction in enumerate(DIRECTIONS)
    }


def _by_name(friction: FrictionTruth) -> dict[str, tuple[float, float]]:
    return {'coulomb': friction.coulomb, 'static': friction.breakaway,
            'stribeck_velocity': friction.stribeck_velocity, 'viscous': friction.viscous}


class FrictionTour(Tour):
    """Run joints at constant speeds; the identified payload's gravity is compensated."""

    capability = 'friction'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run the tour; see `Tour.run`."""
        child, client = stage.start_node(
            'robocal_ros.friction.node', 'friction_identification',
            {} if stage.full else _SHORT)
        message, result = run_method(
            stage, child, client, self.capability, _METHOD, {'model': _METHOD})
        truth = {}
        if result is not None:
            measured = dict.fromkeys(p.name.rpartition('.')[0] for p in result.parameters)
            truth = friction_truth(stage.truth, list(measured))
        return [TourOutcome('friction', message, result, truth)]
