# SPDX-License-Identifier: Apache-2.0
"""Compliance tour: calibrate joint compliance with a load and correct the sag."""

from __future__ import annotations

from typing import Any

from demo.stage import Stage
from demo.tour import Tour, TourOutcome, run_method
from robocal_ros.compliance.parameters import LOADED_UNLOADED
from robocal_ros.errors import ConfigurationError
from robocal_ros.results import CalibrationResult
from robocal_ros.results.report import Panel
from robocal_sim.truth import HiddenTruth

SHORT: dict[str, Any] = {
    'posture_count': 10, 'posture_range': 1.0, 'dwell': 0.8, 'settle': 0.3,
    'reference_every': 20, 'max_velocity': 2.0, 'max_acceleration': 5.0,
}


def compliance_truth(truth: HiddenTruth, result: CalibrationResult) -> dict[str, float]:
    """Return the hidden compliances of the identified joints [rad/(N·m)], by parameter name.

    Args:
        truth: Hidden truth of the simulated arm.
        result: Compliance result; joints without a value are skipped.

    """
    return {p.name: truth.joints[p.name.rpartition('.')[0]].compliance
            for p in result.parameters if p.value is not None}


def known_load(truth: HiddenTruth) -> dict[str, Any]:
    """Return the node parameters that a user would know: load, target, tracker position.

    Args:
        truth: Hidden truth. The tracker position is rounded to 0.1 m; its noise and orientation
            and all properties of the arm stay hidden.

    Raises:
        ConfigurationError: The truth has no load or no tracker.

    """
    load, tracker = truth.load, truth.tracker
    if load is None or tracker is None:
        raise ConfigurationError(
            'The hidden truth has no load or no tracker. Add both to the truth file.')
    return {
        'load_mass': load.mass, 'load_com': list(load.centre_of_mass), 'load_frame': load.parent,
        'target_frame': tracker.target_link, 'target_xyz': list(tracker.target_xyz),
        'target_axis': list(tracker.target_axis), 'visibility_angle': tracker.visibility_angle,
        'tracker_position': [round(x, 1) for x in tracker.xyz],
    }


def sag_panel(result: CalibrationResult) -> Panel:
    """Return a table of the held-out postures' sag before and after correction."""
    series = next(s for s in result.series if 'held-out' in s.title)
    before, after = series.curves.values()
    rows = tuple(
        (f'{number:.0f}', f'{1e3 * b:.0f}', f'{1e3 * a:.0f}', f'{100.0 * (1.0 - a / b):.1f}')
        for number, b, a in zip(series.x, before, after, strict=True))
    sag, = result.validation
    return Panel(
        'Sag before and after correction', True,
        f'Held-out postures sag by {1e6 * sag.before:.0f} µm under the load (RMS), '
        f'{1e6 * sag.after:.0f} µm after correction.',
        (('posture', True), ('before [µm]', True), ('after [µm]', True), ('removed [%]', True)),
        rows)


class ComplianceTour(Tour):
    """Measure the same postures without and with a load, which a service attaches."""

    capability = 'compliance'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run the tour; see `Tour.run`."""
        child, client = stage.start_node('compliance_calibration', {
            **known_load(stage.truth), 'attach_service': 'sim_arm/attach_load',
            'detach_service': 'sim_arm/detach_load', **({} if stage.full else SHORT)})
        message, result = run_method(stage, child, client, self.capability, LOADED_UNLOADED, {})
        if result is None:
            return [TourOutcome('compliance', message, None)]
        return [TourOutcome('compliance', message, result,
                            compliance_truth(stage.truth, result), sag_panel(result))]
