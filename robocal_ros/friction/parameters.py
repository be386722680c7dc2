# SPDX-License-Identifier: Apache-2.0
"""Parameters of friction identification."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.errors import ConfigurationError
from robocal_ros.friction.model import MODELS
from robocal_ros.parameters import ResumableParameters, named, parameter

DYNAMIC = 'lugre_dynamic'
"""Model with the steady law of ``auto`` and the stiffness and damping of the bristles."""


@dataclass(frozen=True)
class FrictionParameters(ResumableParameters):
    """Parameters of friction identification.

    Attributes:
        measure_joints: Joints to identify, in this order; [''] for all joints of the arm.
        method: Source of friction: runs at constant speed, or any exciting motion, from which the
            arm is identified, too; auto uses the motion without such runs.
        coupled_joints: Pairs of joints with a common motor for method motion, such as
            'joint_5+joint_6' of a coupled wrist, with friction of the sum of their speeds; ['']
            for none.
        speeds: Speeds to run, times speed_scale, in both directions; [0.0] plans speed_count
            log-spaced speeds from min_speed to max_speed.
        min_speed: Lowest planned speed, at any speed_scale; a lower one resolves the Stribeck part
            and takes longer.
        max_speed: Highest planned speed, at most half the speed limit of the joint; speed_scale
            lowers it.
        speed_count: Number of planned speeds in each direction.
        max_range: Largest range of joint angle about the start posture; a larger one averages more
            ripple.
        max_cruise: Longest time at constant speed in the first round; each later one adds half.
        trajectory_file: YAML file with a trajectory set to run as the first round; empty plans
            one. Further rounds, which max_rounds 1 disables, stay within its range of angles.
        model: Friction model; auto selects one by information criterion; lugre_dynamic also
            identifies stiffness and damping of the bristles from small slow reversals.
        reversal_size: Amplitude of the reversals of model lugre_dynamic; several times the
            presliding angle of the joint.
        fit_threshold: Largest accepted fit degree 100 sqrt(Σ(f-f̂)²/Σf²), also on left-out speeds.
        max_friction_interval: Largest half-width of the 95 % interval of the friction torque over
            the measured speeds that passes, as a share of it; for compensation, what may remain.
        max_rounds: Largest number of rounds of runs per joint.
        arm_model_std: Prior standard deviation of the link masses in the URDF, as a share of them,
            of each by itself and of all together; centres follow; a larger one widens the
            intervals of joints that carry weight. An identified arm has its own.
        tilt_std: Prior standard deviation of the tilt of the base against gravity about each
            horizontal axis; it widens the intervals, most of all of joints with a vertical axis.
        use_payload: Include the identified payload, if there is one, in the gravity torque.
        temperature_topic: Topic of the temperature (sensor_msgs/Temperature) to store with the
            result; empty for none.
        track: Update the identified friction from joint states while the arm works, as after a
            call of track.
        track_drift: Standard deviation of the relative change of friction within 10 min that
            tracking expects; a larger one follows faster with wider intervals.
        compensation_width: Speed over which the compensation rises to full friction, where the
            bristles are not identified or speeds are measured; a larger one is smoother and
            compensates less at low speed.
        compensation_dead_band: Measured speed below which the compensation is zero; set it above
            the noise of the velocities.
        rigid_feed_forward: Effort of trajectory_out with gravity and inertia; false for friction
            alone, where the drives compensate those themselves.

    """

    measure_joints: list[str] = parameter([''])
    method: str = parameter('auto', choices=('auto', 'runs', 'motion'), dynamic=True)
    coupled_joints: list[str] = parameter([''], dynamic=True)
    speeds: list[float] = parameter([0.0], unit='rad/s', minimum=0.0, maximum=10.0, dynamic=True)
    min_speed: float = parameter(0.005, unit='rad/s', minimum=0.001, maximum=1.0, dynamic=True)
    max_speed: float = parameter(0.6, unit='rad/s', minimum=0.01, maximum=10.0, dynamic=True)
    speed_count: int = parameter(10, minimum=3, maximum=100, dynamic=True)
    max_range: float = parameter(1.6, unit='rad', minimum=0.05, maximum=6.3, dynamic=True)
    max_cruise: float = parameter(20.0, unit='s', minimum=1.0, maximum=600.0, dynamic=True)
    trajectory_file: str = parameter('')
    model: str = parameter('auto', choices=('auto', *MODELS, DYNAMIC), dynamic=True)
    reversal_size: float = parameter(4e-3, unit='rad', minimum=1e-4, maximum=0.015, dynamic=True)
    fit_threshold: float = parameter(5.0, unit='%', minimum=0.01, maximum=100.0, dynamic=True)
    max_friction_interval: float = parameter(0.5, minimum=0.001, maximum=10.0, dynamic=True)
    max_rounds: int = parameter(2, minimum=1, maximum=20, dynamic=True)
    arm_model_std: float = parameter(0.05, minimum=0.0, maximum=1.0, dynamic=True)
    tilt_std: float = parameter(0.005, unit='rad', minimum=0.0, maximum=0.2, dynamic=True)
    use_payload: bool = parameter(True)
    temperature_topic: str = parameter('')
    track: bool = parameter(False)
    track_drift: float = parameter(0.25, minimum=0.0, maximum=2.0)
    compensation_width: float = parameter(0.002, unit='rad/s', minimum=1e-5, maximum=1.0)
    compensation_dead_band: float = parameter(0.01, unit='rad/s', minimum=0.0, maximum=1.0)
    rigid_feed_forward: bool = parameter(True)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints to identify; empty for all."""
        return named(self.measure_joints)

    @property
    def given_speeds(self) -> list[float]:
        """Speeds to run, ascending [rad/s]; empty to plan them."""
        return sorted(speed for speed in self.speeds if speed > 0.0)

    @property
    def couplings(self) -> list[tuple[str, str]]:
        """Pairs of joints with a common motor."""
        pairs = [pair.split('+') for pair in named(self.coupled_joints)]
        return [(pair[0].strip(), pair[1].strip()) for pair in pairs]

    @property
    def steady_model(self) -> str:
        """Model of the steady law."""
        return 'auto' if self.model == DYNAMIC else self.model

    def check(self) -> None:
        """Raise a ConfigurationError if speeds or couplings are invalid."""
        for pair in named(self.coupled_joints):
            if len(pair.split('+')) != 2:
                raise ConfigurationError(
                    f"coupled_joints must be pairs such as 'joint_5+joint_6'; got '{pair}'.")
        if self.min_speed >= self.max_speed:
            raise ConfigurationError(
                f'min_speed must be below max_speed; got {self.min_speed} and {self.max_speed} '
                'rad/s.')
