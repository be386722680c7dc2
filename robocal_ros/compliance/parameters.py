# SPDX-License-Identifier: Apache-2.0
"""Parameters of compliance calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robocal_ros.errors import ConfigurationError
from robocal_ros.parameters import ResumableParameters, parameter

LOADED_UNLOADED, OF_GEOMETRY = 'loaded_unloaded', 'geometry'


@dataclass(frozen=True)
class ComplianceParameters(ResumableParameters):
    """Parameters of compliance calibration.

    Attributes:
        method: loaded_unloaded identifies compliance by the same postures without and with a load;
            geometry identifies frames and compliance of all joints by postures that need none.
        tracker_message: Message type of the tracker: geometry_msgs/PointStamped, or PoseStamped if
            it measures orientation too.
        tracker_topic: Topic of the tracker; tracker/point or tracker/pose when empty.
        tracker_timeout: Longest gap in tracker readings, by the steady clock, before the tracker
            counts as lost.
        target_frame: Frame of the URDF to which the tracker's target is fixed; tool_frame when
            empty.
        target_xyz: Position of the target in target_frame.
        find_target: Estimate the position of the target in register_tracker instead of using
            target_xyz.
        target_axis: Viewing direction of the target in its frame.
        visibility_angle: Half angle of the cone about target_axis in which the tracker sees the
            target; above π: all directions.
        tracker_position: Approximate position of the tracker in the root frame, for choosing
            postures in which it sees the target; zeros: use register_tracker, and assume
            visibility from everywhere before.
        registration: Registration method: least squares over all points, or three points that
            define one frame.
        registration_postures: Number of postures of register_tracker; three_point uses three.
        max_registration_residual: Largest distance of the target from its position by forward
            kinematics.
        posture_count: Number of planned postures; every fifth is held out of the fit for
            validation.
        posture_range: Largest joint motion from the current posture, if that gives enough
            postures.
        posture_file: YAML file with postures, a list of lists of joint angles [rad]; postures are
            planned when empty.
        dwell: Averaging time of the tracker in each posture.
        settle: Time ignored after the arm came to rest.
        min_readings: Least number of tracker readings of an end position.
        reference_every: Number of postures after which the first one is measured again, to detect
            drift of the tracker.
        max_drift: Largest drift of the reference posture within a set, beyond the noise of its
            readings; not less than what the arm repeats its postures to.
        match_tolerance: Largest difference of joint angles between the two sets; up to it, forward
            kinematics compensates for the difference, and its uncertainty widens the intervals.
        encoder_std: Standard deviation of joint angles that encoders do not resolve, by which
            motors may give way under the load; 0: from the data.
        effort_share: Largest share of the effort limits of the URDF that postures and motions may
            need, by the arm with its load, its dynamics and identified friction; motions are
            slowed, postures are excluded. The rest is the reserve of the controller.
        measure_posture: Number of a posture that measure_unloaded or measure_loaded measures again
            by itself; 0: they measure all that are missing.
        load_mass: Mass of the load mounted between the two sets; 0 uses the payload result, which
            then must describe that load only.
        payload_is: Role of the payload result: the tool that stays mounted in both sets, the load
            mounted between them, or unused. auto: the tool if load_mass is set or the method is
            geometry, else the load.
        load_mass_std: Standard deviation of load_mass.
        load_com: Centre of mass of the load in load_frame.
        load_com_std: Standard deviation of each coordinate of load_com; 0: from the data, by
            loaded_unloaded.
        load_frame: Frame to which the load is fixed; tool_frame when empty.
        load_box: Size of a box around the load, x, y, z of load_frame, for the collision check of
            the loaded set, in addition to tool_box; zeros for none.
        pull_force: Tension of a rope that pulls on the load sideways, a weight over a pulley, for
            the joints that no weight loads, such as the first one of an upright arm; 0 for none.
        pull_force_std: Standard deviation of the tension, with friction of the pulley.
        pull_point: End of the rope on the load, in load_frame.
        pull_towards: Place of the pulley in the root frame.
        attach_service: std_srvs/Trigger service that mounts the load during run; when empty, it is
            mounted by hand between measure_unloaded and measure_loaded.
        detach_service: std_srvs/Trigger service that removes the load.
        min_sag_removed: Least share of the sag on held-out postures that the model must remove.
        max_nominal_error: Geometry only: largest median distance of observations from the URDF's
            kinematics, and largest estimated displacement of a joint's frame; beyond it the URDF
            counts as that of another robot.
        max_held_out_error: Geometry only: largest mean distance of observations from the model
            on placements that it does not know.
        arm_model_std: Geometry only: prior standard deviation of each joint's torque by the links
            of the URDF, as a share of it. Compliances identified from the arm's own weight alone
            are no more accurate.
        tracker_scale_std: Geometry only: standard deviation of the scale of a tracker's readings,
            1e-5 for a laser tracker; 0 is exact. Lengths of the arm are no more accurate.
        board_scale_std: Geometry only: standard deviation of the scale of the positions of a
            board's corners, 1e-4 for one that was measured. Lengths are no more accurate.
        carried: Payload assumed by deflection and trajectory correction: the payload result, the
            load of this procedure with the tool, none, or the first of these that is known.
        correct_own_weight: Include the sag under the arm's own weight in deflection and
            correction; false if the rigid model was calibrated on the unloaded, sagging arm.

    """

    method: str = parameter(LOADED_UNLOADED, choices=(LOADED_UNLOADED, OF_GEOMETRY))
    tracker_message: str = parameter('point', choices=('point', 'pose'))
    tracker_topic: str = parameter('')
    tracker_timeout: float = parameter(5.0, unit='s', minimum=0.1, maximum=600.0, dynamic=True)
    target_frame: str = parameter('', dynamic=True)
    target_xyz: list[float] = parameter(
        [0.0, 0.0, 0.0], unit='m', minimum=-10.0, maximum=10.0, dynamic=True)
    find_target: bool = parameter(False, dynamic=True)
    target_axis: list[float] = parameter([0.0, 0.0, 1.0], minimum=-1e3, maximum=1e3, dynamic=True)
    visibility_angle: float = parameter(3.2, unit='rad', minimum=0.01, maximum=3.2, dynamic=True)
    tracker_position: list[float] = parameter(
        [0.0, 0.0, 0.0], unit='m', minimum=-100.0, maximum=100.0, dynamic=True)
    registration: str = parameter(
        'least_squares', choices=('least_squares', 'three_point'), dynamic=True)
    registration_postures: int = parameter(8, minimum=3, maximum=100, dynamic=True)
    max_registration_residual: float = parameter(
        0.003, unit='m', minimum=1e-6, maximum=0.1, dynamic=True)
    posture_count: int = parameter(30, minimum=5, maximum=500, dynamic=True)
    posture_range: float = parameter(1.6, unit='rad', minimum=0.1, maximum=6.3, dynamic=True)
    posture_file: str = parameter('')
    dwell: float = parameter(2.0, unit='s', minimum=0.1, maximum=600.0, dynamic=True)
    settle: float = parameter(0.5, unit='s', minimum=0.0, maximum=60.0, dynamic=True)
    min_readings: int = parameter(5, minimum=2, maximum=10000, dynamic=True)
    reference_every: int = parameter(10, minimum=1, maximum=1000, dynamic=True)
    max_drift: float = parameter(5e-5, unit='m', minimum=1e-7, maximum=0.01, dynamic=True)
    match_tolerance: float = parameter(0.005, unit='rad', minimum=1e-6, maximum=0.01, dynamic=True)
    encoder_std: float = parameter(0.0, unit='rad', minimum=0.0, maximum=0.01, dynamic=True)
    effort_share: float = parameter(0.8, minimum=0.05, maximum=1.0, dynamic=True)
    measure_posture: int = parameter(0, minimum=0, maximum=500, dynamic=True)
    load_mass: float = parameter(0.0, unit='kg', minimum=0.0, maximum=1e4)
    payload_is: str = parameter('auto', choices=('auto', 'tool', 'load', 'unused'))
    load_mass_std: float = parameter(0.0, unit='kg', minimum=0.0, maximum=1e3)
    load_com: list[float] = parameter([0.0, 0.0, 0.0], unit='m', minimum=-10.0, maximum=10.0)
    load_com_std: float = parameter(0.0, unit='m', minimum=0.0, maximum=1.0)
    load_frame: str = parameter('')
    load_box: list[float] = parameter([0.0, 0.0, 0.0], unit='m', minimum=0.0, maximum=5.0)
    pull_force: float = parameter(0.0, unit='N', minimum=0.0, maximum=1e4)
    pull_force_std: float = parameter(0.0, unit='N', minimum=0.0, maximum=1e3)
    pull_point: list[float] = parameter([0.0, 0.0, 0.0], unit='m', minimum=-10.0, maximum=10.0)
    pull_towards: list[float] = parameter([0.0, 0.0, 0.0], unit='m', minimum=-100.0, maximum=100.0)
    attach_service: str = parameter('')
    detach_service: str = parameter('')
    min_sag_removed: float = parameter(0.8, minimum=0.0, maximum=1.0, dynamic=True)
    max_nominal_error: float = parameter(0.03, unit='m', minimum=1e-4, maximum=1.0, dynamic=True)
    max_held_out_error: float = parameter(0.001, unit='m', minimum=1e-6, maximum=0.1, dynamic=True)
    arm_model_std: float = parameter(0.05, minimum=0.0, maximum=1.0, dynamic=True)
    tracker_scale_std: float = parameter(2e-4, minimum=0.0, maximum=0.1, dynamic=True)
    board_scale_std: float = parameter(5e-4, minimum=0.0, maximum=0.1, dynamic=True)
    carried: str = parameter('auto', choices=('auto', 'payload', 'load', 'none'))
    correct_own_weight: bool = parameter(True, dynamic=True)

    def check(self) -> None:
        """Raise a ConfigurationError if values contradict each other."""
        if self.visibility_angle < math.pi and not any(self.target_axis):
            raise ConfigurationError('target_axis is zero; expected the viewing direction of the '
                                     'target in target_frame.')
        if self.payload_is == 'load' and self.load_mass > 0.0:
            raise ConfigurationError(
                f"payload_is is 'load', but load_mass is {self.load_mass:g} kg. Set load_mass to "
                "0 to use the payload result as the load, or payload_is to 'tool' or 'unused'.")
        if self.pull_force > 0.0 and not any(self.pull_towards):
            raise ConfigurationError(
                'pull_towards is zero; expected the place of the pulley, over which the rope of '
                f'{self.pull_force:g} N (pull_force) runs, in the root frame.')
        if (self.attach_service == '') != (self.detach_service == ''):
            raise ConfigurationError(
                'attach_service and detach_service belong together; set both, or none if the '
                'load is mounted by hand.')
