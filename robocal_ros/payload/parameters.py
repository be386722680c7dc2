# SPDX-License-Identifier: Apache-2.0
"""Parameters of payload identification."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.parameters import ResumableParameters, parameter
from robocal_ros.robot import per_joint

_UNEXPLAINED_SHARE = 0.03


@dataclass(frozen=True)
class PayloadParameters(ResumableParameters):
    """Parameters of payload identification."""

    method: str = parameter(
        'two_plane', 'two_plane: centre of mass from joint torques and a known mass; '
        'static_poses: mass and centre of mass from a wrist F/T sensor; excitation: all ten '
        'parameters from a fast motion.', choices=('two_plane', 'static_poses', 'excitation'))
    known_mass: float = parameter(
        0.0, 'Mass of the payload for method two_plane and drive gains, from a scale; 0 uses the '
        'mass of the stored payload result (two_plane only).', unit='kg', minimum=0.0,
        maximum=1000.0, dynamic=True)
    tool: str = parameter(
        '', 'Name of the mounted tool, stored with results; a stored mass is used only for the '
        'tool of the same name, so change it with the tool.', dynamic=True)
    known_mass_std: float = parameter(
        0.0, 'Standard deviation of known_mass.', unit='kg', minimum=0.0, maximum=100.0,
        dynamic=True)
    max_payload: float = parameter(
        0.0, 'Largest payload that is accepted; 0 for no limit.', unit='kg', minimum=0.0,
        maximum=1000.0, dynamic=True)
    second_joint: str = parameter(
        '', 'Joint of the second plane; empty for the joint before the last, or the next one '
        'before it for which a posture exists.', dynamic=True)
    sweep_speed: float = parameter(
        0.25, 'Speed of the sweeps of method two_plane.', unit='rad/s', minimum=0.03, maximum=1.0,
        dynamic=True)
    use_friction: bool = parameter(
        True, 'Subtract identified friction if there is a result for this arm.')
    friction_change_std: float = parameter(
        0.1, 'Prior standard deviation of the change of friction since it was identified and '
        'during the sweeps of a joint (method two_plane), and of its drift and curvature within '
        'an exciting motion, as a share; five times as large for its rise towards standstill and '
        'its build-up after reversals; larger widens the intervals.',
        minimum=0.0, maximum=1.0, dynamic=True)
    load_friction_std: float = parameter(
        0.05, 'Method excitation and drive gains: prior standard deviation of friction that grows '
        'with the torque a joint transmits, as a share of that torque, which is estimated '
        'jointly; 0 assumes none.', minimum=0.0, maximum=1.0, dynamic=True)
    sensor_topic: str = parameter('ft_wrist/wrench', 'Topic of the wrist F/T sensor.')
    sensor_frame: str = parameter(
        'ft_wrist', 'Frame of the wrist F/T sensor, a frame of the URDF.')
    sensor_message_frame: str = parameter(
        '', "frame_id of the sensor's messages where it is no frame of the URDF, such as "
        'tool0_controller of UR arms; empty for sensor_frame.')
    sensor_sign: float = parameter(
        1.0, '1 if the sensor reads a force along gravity from a hanging tool, -1 if it reads the '
        'opposite.', minimum=-1.0, maximum=1.0)
    poses: int = parameter(
        14, 'Number of postures of method static_poses.', minimum=6, maximum=100, dynamic=True)
    dwell: float = parameter(
        1.0, 'Measuring time in each posture of method static_poses; longer averages more noise.',
        unit='s', minimum=0.7, maximum=60.0, dynamic=True)
    posture_std: float = parameter(
        5e-4, 'Prior standard deviation of angular errors of each joint and of the base against '
        'gravity: encoder offsets, sag, a base out of level; larger widens the intervals.',
        unit='rad', minimum=0.0, maximum=0.1, dynamic=True)
    sag_std: float = parameter(
        3e-3, "Method excitation and drive gains: prior standard deviation of a joint's "
        'deflection under its largest torque, which is estimated jointly; 0 assumes rigid joints.',
        unit='rad', minimum=0.0, maximum=0.1, dynamic=True)
    delay_std: float = parameter(
        5e-3, 'Method excitation and drive gains: prior standard deviation of the delay of '
        'wrenches, efforts and speeds against positions, which is estimated jointly; 0 assumes '
        'none.', unit='s', minimum=0.0, maximum=0.1, dynamic=True)
    excitation_source: str = parameter(
        'wrench', 'Measurement of method excitation: the wrist F/T sensor (wrench), which also '
        'observes inertia, or joint torques (torque).', choices=('wrench', 'torque'))
    excitation_period: float = parameter(
        8.0, 'Period of the exciting motion.', unit='s', minimum=2.0, maximum=60.0, dynamic=True)
    excitation_repeats: int = parameter(
        3, 'Number of periods of the exciting motion; more of them average more noise.', minimum=1,
        maximum=50, dynamic=True)
    excitation_range: float = parameter(
        1.2, 'Largest excursion of a joint in the exciting motion.', unit='rad', minimum=0.1,
        maximum=3.0, dynamic=True)
    excitation_acceleration: float = parameter(
        6.0, 'Largest joint acceleration of the exciting motion; a larger one narrows the '
        'intervals of inertia.', unit='rad/s²', minimum=0.1, maximum=100.0, dynamic=True)
    reference_run: str = parameter(
        'off', "Differential run of method excitation: 'record' without the tool, then 'subtract' "
        "with it, which cancels errors of the arm's own model.",
        choices=('off', 'record', 'subtract'), dynamic=True)
    sensor_gain_std: float = parameter(
        0.005, 'Prior standard deviation of the calibration of the wrist F/T sensor, as a share '
        'of the load; it adds to the intervals, since a common gain error looks like mass.',
        minimum=0.0, maximum=0.5, dynamic=True)
    estimate_gravity: bool = parameter(
        False, 'Method static_poses: estimate the direction of gravity in the root frame as two '
        'unknowns, for bases out of level; otherwise tilt_std is its prior.', dynamic=True)
    tilt_std: float = parameter(
        0.005, 'All methods, drive gains, and the identification of the arm: prior standard '
        'deviation of the tilt of the base against gravity about each '
        'horizontal axis; it adds to the intervals.', unit='rad', minimum=0.0,
        maximum=0.2, dynamic=True)
    cable_stiffness_std: float = parameter(
        0.05, 'Method excitation: prior standard deviation of the torsional stiffness of a cable '
        'or hose that the last joint winds up, which is estimated jointly; 0 assumes none.',
        unit='N·m/rad', minimum=0.0, maximum=100.0, dynamic=True)
    max_force_residual: float = parameter(
        0.5, 'Largest RMS difference between forces of the wrist sensor and those of a rigid '
        'load, per axis, that passes.', unit='N', minimum=0.0, maximum=1000.0, dynamic=True)
    max_torque_residual: float = parameter(
        0.05, 'Largest RMS difference between torques of the wrist sensor and those of a rigid '
        'load, per axis, that passes.', unit='N·m', minimum=0.0, maximum=1000.0, dynamic=True)
    max_residual_share: float = parameter(
        0.02, 'Residual of the wrist sensor, as a share of the RMS force and torque of the load, '
        'that passes where it exceeds max_force_residual or max_torque_residual.', minimum=0.0,
        maximum=1.0, dynamic=True)
    max_mass_interval: float = parameter(
        0.03, "Largest half-width of the mass's 95 % interval that passes, as a share of the "
        'mass.', minimum=1e-4, maximum=1.0, dynamic=True)
    arm_load: float = parameter(
        0.0, 'Mass of the weighed load during identify_arm, which identifies the drive gains; 0 '
        'for a motion without load, which comes first.', unit='kg', minimum=0.0, maximum=1000.0,
        dynamic=True)
    arm_load_std: float = parameter(
        0.0, 'Standard deviation of arm_load.', unit='kg', minimum=0.0, maximum=100.0,
        dynamic=True)
    arm_model_std: float = parameter(
        0.05, 'Prior standard deviation of the link masses in the URDF, as a share of them, of '
        'each by itself and of all together; centres and inertias follow; larger trusts the URDF '
        'less.', minimum=0.001, maximum=1.0, dynamic=True)
    gain_std: float = parameter(
        0.1, 'Standard deviation of drive gains that are not calibrated, as a share; smaller for '
        'joint torque sensors.', minimum=1e-4, maximum=10.0, dynamic=True)
    max_unexplained_torque: list[float] = parameter(
        [0.0], 'Largest RMS torque that the model may leave unexplained, one for each joint or '
        'one for all; 0 for 3 % of the effort limit in the URDF.', unit='N·m', minimum=0.0,
        maximum=1e4, dynamic=True)
    max_com_distance: float = parameter(
        1.0, 'Largest plausible distance of the centre of mass from tool_frame.', unit='m',
        minimum=0.01, maximum=10.0, dynamic=True)
    max_com_interval: float = parameter(
        0.005, 'Largest half-width of a 95 % interval of the centre of mass that passes.',
        unit='m', minimum=1e-5, maximum=1.0, dynamic=True)

    def unexplained_torque(self, effort_limit: Array) -> Array:
        """Return the largest torque that may be left unexplained, shape (n,) [N·m].

        Args:
            effort_limit: Effort limits, infinite where the URDF has none, shape (n,) [N·m].

        Raises:
            ConfigurationError: If the number of values is wrong.

        """
        given = per_joint(self.max_unexplained_torque, len(effort_limit),
                          'max_unexplained_torque')
        return np.where(given > 0.0, given, _UNEXPLAINED_SHARE * effort_limit)
