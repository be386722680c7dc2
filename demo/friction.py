# SPDX-License-Identifier: Apache-2.0
"""Friction tour: friction laws of the wrist joints, or of all joints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from demo.stage import Stage
from demo.tour import Tour, TourOutcome, active, run_method
from demo.tracking import tracking_panel
from robocal_ros.cli.console import OUT
from robocal_ros.results import Verdict
from robocal_ros.robot import DIRECTIONS
from robocal_sim.truth import FrictionTruth, HiddenTruth

SHORT: dict[str, Any] = {
    'measure_joints': ['joint_5', 'joint_6'], 'speed_count': 7, 'min_speed': 0.01,
    'max_cruise': 3.0,
}
_METHOD = 'auto'
# Joint that moves to and fro, and the share of its tracking error that compensation may leave.
_COMPENSATED, _SHARE = 'joint_5', 0.2


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
        model = 'lugre_dynamic' if stage.full else _METHOD
        child, client = stage.start_node(
            'friction_identification',
            # The drives compensate gravity and inertia themselves.
            {'rigid_feed_forward': False} if stage.full else SHORT)
        message, result = run_method(
            stage, child, client, self.capability, model, {'model': model})
        truth, panel = {}, None
        if result is not None:
            measured = dict.fromkeys(p.name.rpartition('.')[0] for p in result.parameters)
            truth = friction_truth(stage.truth, list(measured))
            if stage.full and stage.commands_effort and result.verdict is Verdict.PASS:
                # The tracking error with and without what was identified.
                with active(child, client):
                    panel = tracking_panel(stage, _COMPENSATED, _SHARE)
                OUT.print(panel.message, soft_wrap=True, markup=False)
        return [TourOutcome('friction', message, result, truth, panel)]
