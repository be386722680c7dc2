# SPDX-License-Identifier: Apache-2.0
"""Parameters of payload identification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.parameters import ResumableParameters, parameter
from robocal_ros.robot import LOAD_FACTOR_STD, per_joint

_UNEXPLAINED_SHARE = 0.03


@dataclass(frozen=True)
class PayloadParameters(ResumableParameters):
    """Parameters of payload identification.

    Attributes:
        method: two_plane: centre of mass from joint torques and a known mass; static_poses: mass
            and centre of mass from a wrist F/T sensor; excitation: all ten parameters from a fast
            motion.
        known_mass: Mass of the payload for method two_plane and drive gains, from a scale; 0 uses
            the mass of the stored payload result (two_plane only).
        tool: Name of the mounted tool, stored with results; a stored mass is used only for the
            tool of the same name, so change it with the tool.
        known_mass_std: Standard deviation of known_mass.
        max_payload: Largest payload that is accepted; 0 for no limit.
        second_joint: Joint of the second plane; empty for the joint before the last, or the next
            one before it for which a posture exists.
        sweep_speed: Speed of the sweeps of method two_plane.
        use_friction: Subtract identified friction if there is a result for this arm.
        temperature_topic: Topic of the temperature (sensor_msgs/Temperature) for which identified
            friction is wanted; empty for that at which it was identified.
        friction_change_std: Prior standard deviation of the change of friction since it was
            identified and during the sweeps of a joint (method two_plane), and of its drift and
            curvature within an exciting motion, as a share; five times as large for its rise
            towards standstill and its build-up after reversals; larger widens the intervals.
        load_friction_std: Method excitation and drive gains: prior standard deviation of friction
            that grows with the torque a joint transmits, as a share of that torque, which is
            estimated jointly; 0 assumes none.
        sensor_topic: Topic of the wrist F/T sensor.
        sensor_frame: Frame of the wrist F/T sensor, a frame of the URDF.
        sensor_message_frame: frame_id of the sensor's messages where it is no frame of the URDF,
            such as tool0_controller of UR arms; empty for sensor_frame.
        sensor_sign: 1 if the sensor reads a force along gravity from a hanging tool, -1 if it
            reads the opposite.
        poses: Number of postures of method static_poses.
        dwell: Measuring time in each posture of method static_poses; longer averages more noise.
        posture_std: Prior standard deviation of angular errors of each joint and of the base
            against gravity: encoder offsets, sag, a base out of level; larger widens the
            intervals.
        sag_std: Method excitation and drive gains: prior standard deviation of a joint's
            deflection under its largest torque, and beside a wrist sensor of its link's
            bending under that moment, which are estimated jointly; 0 assumes a rigid arm.
        delay_std: Method excitation and drive gains: prior standard deviation of the delay of
            wrenches, efforts and speeds against positions, which is estimated jointly; 0 assumes
            none.
        excitation_source: Measurement of method excitation: the wrist F/T sensor (wrench), which
            also observes inertia, or joint torques (torque).
        excitation_period: Period of the exciting motion.
        excitation_repeats: Number of periods of the exciting motion at speed_scale 1; more of them
            average more noise.
        excitation_range: Largest excursion of a joint in the exciting motion.
        excitation_acceleration: Largest joint acceleration of the exciting motion; a larger one
            narrows the intervals of inertia.
        reference_run: Differential run of method excitation: 'record' without the tool, then
            'subtract' with it, which cancels errors of the arm's own model.
        sensor_gain_std: Prior standard deviation of the calibration of the wrist F/T sensor, as a
            share of the load; it adds to the intervals, since a common gain error looks like mass.
        estimate_gravity: Method static_poses: estimate the direction of gravity in the root frame
            as two unknowns, for bases out of level; otherwise tilt_std is its prior.
        tilt_std: All methods, drive gains, and the identification of the arm: prior standard
            deviation of the tilt of the base against gravity about each horizontal axis; it adds
            to the intervals.
        cable_stiffness_std: Wrist sensor: prior standard deviation of the torsional stiffness of a
            cable or hose that the last joint winds up, which is estimated jointly; method
            static_poses takes its size from the data, up to four times this one. 0 assumes none.
        max_force_residual: Largest RMS difference between forces of the wrist sensor and those of
            a rigid load, per axis, that passes.
        max_torque_residual: Largest RMS difference between torques of the wrist sensor and those
            of a rigid load, per axis, that passes.
        max_residual_share: Residual of the wrist sensor, as a share of the RMS force and torque of
            the load, that passes where it exceeds max_force_residual or max_torque_residual.
        max_held_out_ratio: Method excitation and drive gains: largest ratio of residuals in the
            last part of the motion, predicted from the rest, to those of the fit and of its
            uncertainty. Beyond it, or beyond chance, the intervals of payloads by joint torques
            and of drive gains count the joint's residuals as that large instead, and those by a
            wrist sensor where its zero drifted by up to max_force_residual or max_torque_residual.
        max_torque_error: Largest joint torque that an error of the payload may cause (95 %) in any
            posture, up to max_velocity and max_acceleration, as a share of the effort limit in the
            URDF.
        torque_error_floor: Torque that an error of the payload may cause at any joint, also where
            it exceeds max_torque_error.
        max_mass_interval: Largest half-width of the mass's 95 % interval that passes, as a share
            of the mass, in addition to max_torque_error; 0 for no limit.
        arm_load: Mass of the weighed load during identify_arm, which identifies the drive gains; 0
            for a motion without load, which comes first.
        arm_load_std: Standard deviation of arm_load.
        arm_model_std: Prior standard deviation of the link masses in the URDF, as a share of them,
            of each by itself and of all together; centres and inertias follow; larger trusts the
            URDF less.
        gain_std: Standard deviation of drive gains that are not calibrated, as a share; smaller
            for joint torque sensors.
        saturation_std: Method excitation, drive gains, and identification of the arm: standard
            deviation of the share by which a drive at its effort limit reports more torque than in
            proportion, because motors saturate; it is estimated with payload or gains, and adds to
            the intervals of the arm.
        max_unexplained_torque: Largest RMS torque that the model may leave unexplained, one for
            each joint or one for all; 0 for 3 % of the effort limit in the URDF.
        max_com_distance: Largest plausible distance of the centre of mass from tool_frame.
        max_com_interval: Largest half-width of a 95 % interval of the centre of mass that passes,
            in addition to max_torque_error; 0 for no limit.

    """

    method: str = parameter('two_plane', choices=('two_plane', 'static_poses', 'excitation'))
    known_mass: float = parameter(0.0, unit='kg', minimum=0.0, maximum=1000.0, dynamic=True)
    tool: str = parameter('', dynamic=True)
    known_mass_std: float = parameter(0.0, unit='kg', minimum=0.0, maximum=100.0, dynamic=True)
    max_payload: float = parameter(0.0, unit='kg', minimum=0.0, maximum=1000.0, dynamic=True)
    second_joint: str = parameter('', dynamic=True)
    sweep_speed: float = parameter(0.25, unit='rad/s', minimum=0.03, maximum=1.0, dynamic=True)
    use_friction: bool = parameter(True)
    temperature_topic: str = parameter('')
    friction_change_std: float = parameter(0.1, minimum=0.0, maximum=1.0, dynamic=True)
    load_friction_std: float = parameter(LOAD_FACTOR_STD, minimum=0.0, maximum=1.0, dynamic=True)
    sensor_topic: str = parameter('ft_wrist/wrench')
    sensor_frame: str = parameter('ft_wrist')
    sensor_message_frame: str = parameter('')
    sensor_sign: float = parameter(1.0, minimum=-1.0, maximum=1.0)
    poses: int = parameter(14, minimum=6, maximum=100, dynamic=True)
    dwell: float = parameter(1.0, unit='s', minimum=0.7, maximum=60.0, dynamic=True)
    posture_std: float = parameter(5e-4, unit='rad', minimum=0.0, maximum=0.1, dynamic=True)
    sag_std: float = parameter(3e-3, unit='rad', minimum=0.0, maximum=0.1, dynamic=True)
    delay_std: float = parameter(5e-3, unit='s', minimum=0.0, maximum=0.1, dynamic=True)
    excitation_source: str = parameter('wrench', choices=('wrench', 'torque'))
    excitation_period: float = parameter(8.0, unit='s', minimum=2.0, maximum=60.0, dynamic=True)
    excitation_repeats: int = parameter(3, minimum=1, maximum=50, dynamic=True)
    excitation_range: float = parameter(1.2, unit='rad', minimum=0.1, maximum=3.0, dynamic=True)
    excitation_acceleration: float = parameter(
        6.0, unit='rad/s²', minimum=0.1, maximum=100.0, dynamic=True)
    reference_run: str = parameter('off', choices=('off', 'record', 'subtract'), dynamic=True)
    sensor_gain_std: float = parameter(0.005, minimum=0.0, maximum=0.5, dynamic=True)
    estimate_gravity: bool = parameter(False, dynamic=True)
    tilt_std: float = parameter(0.005, unit='rad', minimum=0.0, maximum=0.2, dynamic=True)
    cable_stiffness_std: float = parameter(
        0.05, unit='N·m/rad', minimum=0.0, maximum=100.0, dynamic=True)
    max_force_residual: float = parameter(0.5, unit='N', minimum=0.0, maximum=1000.0, dynamic=True)
    max_torque_residual: float = parameter(
        0.05, unit='N·m', minimum=0.0, maximum=1000.0, dynamic=True)
    max_residual_share: float = parameter(0.02, minimum=0.0, maximum=1.0, dynamic=True)
    max_held_out_ratio: float = parameter(1.5, minimum=1.0, maximum=100.0, dynamic=True)
    max_torque_error: float = parameter(0.01, minimum=1e-4, maximum=10.0, dynamic=True)
    torque_error_floor: float = parameter(0.1, unit='N·m', minimum=0.0, maximum=1e4, dynamic=True)
    max_mass_interval: float = parameter(0.0, minimum=0.0, maximum=1.0, dynamic=True)
    arm_load: float = parameter(0.0, unit='kg', minimum=0.0, maximum=1000.0, dynamic=True)
    arm_load_std: float = parameter(0.0, unit='kg', minimum=0.0, maximum=100.0, dynamic=True)
    arm_model_std: float = parameter(0.05, minimum=0.001, maximum=1.0, dynamic=True)
    saturation_std: float = parameter(0.02, minimum=0.0, maximum=1.0, dynamic=True)
    gain_std: float = parameter(0.1, minimum=1e-4, maximum=10.0, dynamic=True)
    max_unexplained_torque: list[float] = parameter(
        [0.0], unit='N·m', minimum=0.0, maximum=1e4, dynamic=True)
    max_com_distance: float = parameter(1.0, unit='m', minimum=0.01, maximum=10.0, dynamic=True)
    max_com_interval: float = parameter(0.0, unit='m', minimum=0.0, maximum=1.0, dynamic=True)

    def check(self) -> None:
        """Raise a ConfigurationError for a sign that is none."""
        if abs(self.sensor_sign) != 1.0:
            raise ConfigurationError(f'sensor_sign must be 1.0 or -1.0, got {self.sensor_sign}.')

    def check_weighed(self, verb: str, more: str = '') -> None:
        """Raise a ConfigurationError if a verb lacks the mass of the mounted tool.

        Args:
            verb: The verb.
            more: Further parameter to set, after a comma.

        """
        if not self.known_mass > 0.0:
            raise ConfigurationError(
                f'{verb} needs the mass of the mounted tool: set known_mass (kg, from a scale)'
                f'{more}; got {self.known_mass}.')

    def settings(self, *names: str) -> dict[str, Any]:
        """Return parameters by name, for the settings of a result."""
        return {name: getattr(self, name) for name in names}

    def unexplained_torque(self, effort_limit: Array) -> Array:
        """Return the largest torque that may be left unexplained, shape (n,) [N·m].

        Args:
            effort_limit: Effort limits, infinite where the URDF has none, shape (n,) [N·m].

        Raises:
            ConfigurationError: If the number of values is wrong.

        """
        given = per_joint(self.max_unexplained_torque, len(effort_limit), 'max_unexplained_torque')
        return np.where(given > 0.0, given, _UNEXPLAINED_SHARE * effort_limit)
