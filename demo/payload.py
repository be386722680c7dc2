# SPDX-License-Identifier: Apache-2.0
"""Payload tour: the tool's mass and centre of mass, by two methods."""

from __future__ import annotations

from typing import Any

from demo.default_cell import payload_truth
from demo.stage import Stage
from demo.tour import Tour, TourOutcome, run_method

# In this order: the second method uses the mass that the first one identifies.
_METHODS = ('static_poses', 'two_plane')
# Joint torque sensors are free of the scale errors of motor currents; the simulated links are
# those of the URDF.
_ARM: dict[str, Any] = {'gain_std': 0.002, 'arm_model_std': 0.01}
SHORT: dict[str, Any] = {'poses': 8, 'dwell': 0.8, 'sweep_speed': 0.4}


class PayloadTour(Tour):
    """Identify mass by static poses, then the centre of mass from joint torques alone."""

    capability = 'payload'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run both methods; see `Tour.run`."""
        child, client = stage.start_node(
            'payload_identification', _ARM if stage.full else {**_ARM, **SHORT})
        outcomes = []
        for method in _METHODS:
            message, result = run_method(
                stage, child, client, self.capability, method, {'method': method})
            truth = {}
            if result is not None and stage.truth.tool is not None:
                truth = payload_truth(stage.truth.tool, stage.robot, result.frame)
            outcomes.append(TourOutcome(f'payload, {method}', message, result, truth))
        return outcomes
