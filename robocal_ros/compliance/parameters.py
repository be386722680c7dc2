# SPDX-License-Identifier: Apache-2.0
"""Parameters of compliance calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robocal_ros.compliance.registration import METHODS
from robocal_ros.errors import ConfigurationError
from robocal_ros.parameters import ResumableParameters, parameter


@dataclass(frozen=True)
class ComplianceParameters(ResumableParameters):
    """Parameters of compliance calibration."""

    tracker_message: str = parameter(
        'point', 'Message type of the tracker: geometry_msgs/PointStamped, or PoseStamped if it '
        'measures orientation too.', choices=('point', 'pose'))
    tracker_topic: str = parameter(
        '', 'Topic of the tracker; tracker/point or tracker/pose when empty.')
    tracker_timeout: float = parameter(
        5.0, 'Longest gap in tracker readings, by the steady clock, before the tracker counts as '
        'lost.', unit='s', minimum=0.1, maximum=600.0, dynamic=True)
    target_frame: str = parameter(
        '', "Frame of the URDF to which the tracker's target is fixed; tool_frame when empty.",
        dynamic=True)
    target_xyz: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Position of the target in target_frame.', unit='m', minimum=-10.0,
        maximum=10.0, dynamic=True)
    find_target: bool = parameter(
        False, 'Estimate the position of the target in register_tracker instead of using '
        'target_xyz.', dynamic=True)
    target_axis: list[float] = parameter(
        [0.0, 0.0, 1.0], 'Viewing direction of the target in its frame.', minimum=-1e3,
        maximum=1e3, dynamic=True)
    visibility_angle: float = parameter(
        3.2, 'Half angle of the cone about target_axis in which the tracker sees the target; '
        'above π: all directions.', unit='rad', minimum=0.01, maximum=3.2, dynamic=True)
    tracker_position: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Approximate position of the tracker in the root frame, for choosing '
        'postures in which it sees the target; zeros: use register_tracker, and assume visibility '
        'from everywhere before.', unit='m', minimum=-100.0, maximum=100.0,
        dynamic=True)
    registration: str = parameter(
        'least_squares', 'Registration method: least squares over all points, or three points '
        'that define one frame.', choices=METHODS, dynamic=True)
    registration_postures: int = parameter(
        8, 'Number of postures of register_tracker; three_point uses three.', minimum=3,
        maximum=100, dynamic=True)
    max_registration_residual: float = parameter(
        0.003, 'Largest distance of the target from its position by forward kinematics.', unit='m',
        minimum=1e-6, maximum=0.1, dynamic=True)
    posture_count: int = parameter(
        30, 'Number of planned postures; every fifth is held out of the fit for validation.',
        minimum=5, maximum=500, dynamic=True)
    posture_range: float = parameter(
        1.6, 'Largest joint motion from the current posture, if that gives enough postures.',
        unit='rad', minimum=0.1, maximum=6.3, dynamic=True)
    posture_file: str = parameter(
        '', 'YAML file with postures, a list of lists of joint angles [rad]; postures are '
        'planned when empty.')
    dwell: float = parameter(
        2.0, 'Averaging time of the tracker in each posture.', unit='s', minimum=0.1,
        maximum=600.0, dynamic=True)
    settle: float = parameter(
        0.5, 'Time ignored after the arm came to rest.', unit='s', minimum=0.0, maximum=60.0,
        dynamic=True)
    min_readings: int = parameter(
        5, 'Least number of tracker readings of an end position.', minimum=2, maximum=10000,
        dynamic=True)
    reference_every: int = parameter(
        10, 'Number of postures after which the first one is measured again, to detect drift of '
        'the tracker.', minimum=1, maximum=1000, dynamic=True)
    max_drift: float = parameter(
        5e-5, 'Largest drift of the reference posture within a set, beyond the noise of its '
        'readings; not less than what the arm repeats its postures to.', unit='m', minimum=1e-7,
        maximum=0.01, dynamic=True)
    match_tolerance: float = parameter(
        0.005, 'Largest difference of joint angles between the two sets; up to it, forward '
        'kinematics compensates for the difference, and its uncertainty widens the intervals.',
        unit='rad', minimum=1e-6, maximum=0.01, dynamic=True)
    encoder_std: float = parameter(
        0.0, 'Standard deviation of joint angles that encoders do not resolve, by which motors '
        'may give way under the load; 0: from the data.',
        unit='rad', minimum=0.0, maximum=0.01, dynamic=True)
    effort_share: float = parameter(
        0.8, 'Largest share of the effort limits of the URDF that postures and motions may need, '
        'by the arm with its load, its dynamics and identified friction; motions are slowed, '
        'postures are excluded. The rest is the reserve of the controller.',
        minimum=0.05, maximum=1.0, dynamic=True)
    measure_posture: int = parameter(
        0, 'Number of a posture that measure_unloaded or measure_loaded measures again by itself; '
        '0: they measure all that are missing.', minimum=0, maximum=500, dynamic=True)
    load_mass: float = parameter(
        0.0, 'Mass of the load mounted between the two sets; 0 uses the payload '
        'result, which then must describe that load only.', unit='kg', minimum=0.0, maximum=1e4)
    payload_is: str = parameter(
        'auto', 'Role of the payload result: the tool that stays mounted in both sets, the load '
        'mounted between them, or unused. auto: the tool if load_mass is set, else the load.',
        choices=('auto', 'tool', 'load', 'unused'))
    load_mass_std: float = parameter(
        0.0, 'Standard deviation of load_mass.', unit='kg', minimum=0.0, maximum=1e3)
    load_com: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Centre of mass of the load in load_frame.', unit='m', minimum=-10.0,
        maximum=10.0)
    load_com_std: float = parameter(
        0.0, 'Standard deviation of each coordinate of load_com.', unit='m', minimum=0.0,
        maximum=1.0)
    load_frame: str = parameter(
        '', 'Frame to which the load is fixed; tool_frame when empty.')
    load_box: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Size of a box around the load, x, y, z of load_frame, for the collision '
        'check of the loaded set, in addition to tool_box; zeros for none.', unit='m',
        minimum=0.0, maximum=5.0)
    attach_service: str = parameter(
        '', 'std_srvs/Trigger service that mounts the load during run; when empty, it is '
        'mounted by hand between measure_unloaded and measure_loaded.')
    detach_service: str = parameter(
        '', 'std_srvs/Trigger service that removes the load.')
    min_sag_removed: float = parameter(
        0.8, 'Least share of the sag on held-out postures that the model must remove.',
        minimum=0.0, maximum=1.0, dynamic=True)
    carried: str = parameter(
        'auto', 'Payload assumed by deflection and trajectory correction: the payload '
        'result, the load of this procedure with the tool, none, or the first of these that is '
        'known.',
        choices=('auto', 'payload', 'load', 'none'))
    correct_own_weight: bool = parameter(
        True, "Include the sag under the arm's own weight in deflection and correction; false if "
        'the rigid model was calibrated on the unloaded, sagging arm.', dynamic=True)

    def check(self) -> None:
        """Raise a ConfigurationError if values contradict each other."""
        for name in ('target_xyz', 'target_axis', 'tracker_position', 'load_com'):
            if len(getattr(self, name)) != 3:
                raise ConfigurationError(f"Parameter '{name}' has {len(getattr(self, name))} "
                                         'values; expected three.')
        if self.visibility_angle < math.pi and not any(self.target_axis):
            raise ConfigurationError('target_axis is zero; expected the viewing direction of the '
                                     'target in target_frame.')
        if self.payload_is == 'load' and self.load_mass > 0.0:
            raise ConfigurationError(
                f"payload_is is 'load', but load_mass is {self.load_mass:g} kg. Set load_mass to "
                "0 to use the payload result as the load, or payload_is to 'tool' or 'unused'.")
        if (self.attach_service == '') != (self.detach_service == ''):
            raise ConfigurationError(
                'attach_service and detach_service belong together; set both, or none if the '
                'load is mounted by hand.')
