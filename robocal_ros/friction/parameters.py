# SPDX-License-Identifier: Apache-2.0
"""Parameters of friction identification."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.errors import ConfigurationError
from robocal_ros.friction.model import MODELS
from robocal_ros.parameters import ArmParameters, named, parameter

DYNAMIC = 'lugre_dynamic'
"""The steady law, chosen as by ``auto``, and stiffness and damping of the bristles besides."""


@dataclass(frozen=True)
class FrictionParameters(ArmParameters):
    """Parameters of friction identification."""

    measure_joints: list[str] = parameter(
        [''], "Joints to identify, in this order; [''] for all of the arm's.")
    speeds: list[float] = parameter(
        [0.0], 'Speeds to run, each in both directions; [0.0] plans them from the limits: '
        'log-spaced from min_speed to max_speed, so denser near zero.', unit='rad/s',
        minimum=0.0, maximum=10.0, dynamic=True)
    min_speed: float = parameter(
        0.005, 'Slowest planned speed.', unit='rad/s', minimum=0.001, maximum=1.0, dynamic=True)
    max_speed: float = parameter(
        0.6, 'Fastest planned speed; half the joint limit if that is less.', unit='rad/s',
        minimum=0.01, maximum=10.0, dynamic=True)
    speed_count: int = parameter(
        10, 'Number of planned speeds in each direction.', minimum=3, maximum=100, dynamic=True)
    max_range: float = parameter(
        1.6, 'Widest range of joint angle that is used about the start posture.', unit='rad',
        minimum=0.05, maximum=6.3, dynamic=True)
    max_cruise: float = parameter(
        20.0, 'Longest time at constant speed.', unit='s', minimum=1.0, maximum=600.0,
        dynamic=True)
    trajectory_file: str = parameter(
        '', 'YAML file with a trajectory set of your own, run as the first round; empty plans '
        'one. Further rounds stay within its range; set max_rounds to 1 for none.')
    model: str = parameter(
        'auto', 'Friction model; auto chooses by information criterion among those that the '
        'data can tell; lugre_dynamic chooses likewise, and finds stiffness and damping of the '
        'bristles from slow small reversals besides.', choices=('auto', *MODELS, DYNAMIC),
        dynamic=True)
    reversal_size: float = parameter(
        4e-3, 'With model lugre_dynamic: size of the reversals; several times the angle over '
        'which the torque turns round.', unit='rad', minimum=1e-4, maximum=0.015, dynamic=True)
    fit_threshold: float = parameter(
        5.0, 'Largest fit degree that passes: 100 sqrt(Σ(f-f̂)²/Σf²).', unit='%', minimum=0.01,
        maximum=100.0, dynamic=True)
    max_rounds: int = parameter(
        2, 'Most rounds of runs for a joint before it fails.', minimum=1, maximum=20, dynamic=True)
    use_payload: bool = parameter(
        True, 'Count the identified payload in the gravity torque, when there is a result.')
    temperature_topic: str = parameter(
        '', 'sensor_msgs/Temperature to file with the result; empty for none.')
    temperature_warning: float = parameter(
        10.0, 'Warn when the temperature is this far from that of the identification.',
        unit='K', minimum=0.1, maximum=200.0, dynamic=True)
    compensation_width: float = parameter(
        0.002, 'Speed over which the compensation rises from zero to full friction.',
        unit='rad/s', minimum=1e-5, maximum=1.0)
    compensation_dead_band: float = parameter(
        0.01, 'Measured speeds below this count as standstill in the compensation.',
        unit='rad/s', minimum=0.0, maximum=1.0)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints to identify; empty for all."""
        return named(self.measure_joints)

    @property
    def steady_model(self) -> str:
        """Model of the steady law."""
        return 'auto' if self.model == DYNAMIC else self.model

    def check(self) -> None:
        """Raise a ConfigurationError if no speeds are left to plan."""
        if self.min_speed >= self.max_speed:
            raise ConfigurationError(
                f'min_speed must be above 0 and below max_speed; got {self.min_speed} and '
                f'{self.max_speed} rad/s.')
