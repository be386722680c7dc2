# SPDX-License-Identifier: Apache-2.0
"""Parameters of compliance calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robocal_ros.compliance.registration import METHODS
from robocal_ros.errors import ConfigurationError
from robocal_ros.parameters import ArmParameters, parameter


@dataclass(frozen=True)
class ComplianceParameters(ArmParameters):
    """Parameters of compliance calibration."""

    tracker_message: str = parameter(
        'point', 'What the tracker sends: geometry_msgs/PointStamped, or PoseStamped where it '
        'measures orientation too.', choices=('point', 'pose'))
    tracker_topic: str = parameter(
        '', "The tracker's topic; tracker/point or tracker/pose when empty.")
    tracker_timeout: float = parameter(
        5.0, 'Longest silence of the tracker, by the steady clock, before it counts as lost.',
        unit='s', minimum=0.1, maximum=600.0, dynamic=True)
    target_frame: str = parameter(
        '', "Frame of the URDF that the tracker's target is fixed to; tool_frame when empty.",
        dynamic=True)
    target_xyz: list[float] = parameter(
        [0.0, 0.0, 0.0], 'The target in that frame.', unit='m', minimum=-10.0, maximum=10.0,
        dynamic=True)
    find_target: bool = parameter(
        False, 'Let register_tracker find the target in its frame too, instead of target_xyz.',
        dynamic=True)
    target_axis: list[float] = parameter(
        [0.0, 0.0, 1.0], 'Direction in which the target looks, in its frame.', minimum=-1e3,
        maximum=1e3, dynamic=True)
    visibility_angle: float = parameter(
        3.2, 'Half angle of the cone about target_axis in which the tracker sees the target; '
        'beyond π: from everywhere.', unit='rad', minimum=0.01, maximum=3.2, dynamic=True)
    tracker_position: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Where the tracker stands in the root frame, roughly, for choosing '
        'postures in which it sees the target; zeros: use what register_tracker finds, and take '
        'it for seen from everywhere before.', unit='m', minimum=-100.0, maximum=100.0,
        dynamic=True)
    registration: str = parameter(
        'least_squares', 'How the tracker is placed: least squares over all points, or three '
        'points that define one frame.', choices=METHODS, dynamic=True)
    registration_postures: int = parameter(
        8, 'Postures that register_tracker visits; the three-point way takes three.', minimum=3,
        maximum=100, dynamic=True)
    max_registration_residual: float = parameter(
        0.003, 'Largest distance of the target from where the arm says it is.', unit='m',
        minimum=1e-6, maximum=0.1, dynamic=True)
    posture_count: int = parameter(
        30, 'Postures to plan; every fifth is held out of the fit for validation.', minimum=5,
        maximum=500, dynamic=True)
    posture_range: float = parameter(
        1.6, 'How far a joint goes from where the arm is, if that gives enough postures.',
        unit='rad', minimum=0.1, maximum=6.3, dynamic=True)
    posture_file: str = parameter(
        '', 'YAML file with postures of your own, a list of lists of joint angles [rad]; empty '
        'plans them.')
    dwell: float = parameter(
        2.0, 'Time over which the tracker is averaged in a posture.', unit='s', minimum=0.1,
        maximum=600.0, dynamic=True)
    settle: float = parameter(
        0.5, 'Time left out after the arm came to rest.', unit='s', minimum=0.0, maximum=60.0,
        dynamic=True)
    min_readings: int = parameter(
        5, 'Fewest tracker readings that make a position.', minimum=2, maximum=10000,
        dynamic=True)
    reference_every: int = parameter(
        10, 'After so many postures the first one is measured again, to see the tracker drift.',
        minimum=1, maximum=1000, dynamic=True)
    max_drift: float = parameter(
        5e-5, 'Largest change of that posture within a set.', unit='m', minimum=1e-7,
        maximum=0.01, dynamic=True)
    match_tolerance: float = parameter(
        1e-4, 'Largest difference of joint angles between the two sets.', unit='rad',
        minimum=1e-6, maximum=0.01, dynamic=True)
    load_mass: float = parameter(
        0.0, 'Mass of the load that is mounted between the two sets; 0 takes the payload '
        'result, which then must be of that load alone.', unit='kg', minimum=0.0, maximum=1e4)
    load_mass_std: float = parameter(
        0.0, 'Standard deviation of load_mass.', unit='kg', minimum=0.0, maximum=1e3)
    load_com: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Centre of mass of the load in load_frame.', unit='m', minimum=-10.0,
        maximum=10.0)
    load_com_std: float = parameter(
        0.0, 'Standard deviation of each coordinate of load_com.', unit='m', minimum=0.0,
        maximum=1.0)
    load_frame: str = parameter(
        '', 'Frame that the load is fixed to; tool_frame when empty.')
    attach_service: str = parameter(
        '', 'std_srvs/Trigger that mounts the load, so that run can do everything; empty: a '
        'person mounts it between measure_unloaded and measure_loaded.')
    detach_service: str = parameter(
        '', 'std_srvs/Trigger that takes the load off.')
    min_sag_removed: float = parameter(
        0.8, 'Least share of the sag on held-out postures that the model must remove.',
        minimum=0.0, maximum=1.0, dynamic=True)
    carried: str = parameter(
        'auto', 'What deflection and trajectory correction take the arm to carry: the payload '
        'result, the load of this procedure, nothing, or the first of these that is known.',
        choices=('auto', 'payload', 'load', 'none'))
    correct_own_weight: bool = parameter(
        True, "Count the sag under the arm's own weight too in deflection and correction; false "
        'where the rigid model was calibrated on the unloaded, sagging arm.', dynamic=True)

    def check(self) -> None:
        """Raise a ConfigurationError if values do not fit each other."""
        for name in ('target_xyz', 'target_axis', 'tracker_position', 'load_com'):
            if len(getattr(self, name)) != 3:
                raise ConfigurationError(f"Parameter '{name}' has {len(getattr(self, name))} "
                                         'values; expected three.')
        if self.visibility_angle < math.pi and not any(self.target_axis):
            raise ConfigurationError('target_axis is zero; give the direction in which the '
                                     "target looks, in target_frame's axes.")
        if (self.attach_service == '') != (self.detach_service == ''):
            raise ConfigurationError(
                'attach_service and detach_service belong together; set both, or none where a '
                'person mounts the load.')
