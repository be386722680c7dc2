# SPDX-License-Identifier: Apache-2.0
"""Random cells within the reference cell's ranges: tool, friction, compliance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from robocal_sim.truth import FrictionTruth, HiddenTruth, JointTruth, ToolTruth

MASS = (1.0, 3.0)
DISTANCE = (0.03, 0.15)
_ASYMMETRY = 0.1


def random_tool(generator: np.random.Generator, mass: float | None = None) -> ToolTruth:
    """Draw a tool of 1 to 3 kg with its centre of mass 0.03 to 0.15 m from the flange.

    Args:
        generator: Random generator.
        mass: Mass [kg]; None to draw it.

    """
    drawn = float(generator.uniform(*MASS))
    mass = drawn if mass is None else mass
    direction = generator.normal(size=3)
    # Tools extend away from the arm.
    direction[2] = abs(direction[2])
    centre = direction / np.linalg.norm(direction) * generator.uniform(*DISTANCE)
    a, b, c = generator.uniform(0.06, 0.14, 3) ** 2
    x, y, z = centre
    return ToolTruth(
        mass, (float(x), float(y), float(z)),
        (mass * (b + c) / 12.0, mass * (a + c) / 12.0, mass * (a + b) / 12.0, 0.0, 0.0, 0.0),
        'flange')


def random_truth(
    base: HiddenTruth, seed: int, mass: float | None = None, *, sensor: str
) -> HiddenTruth:
    """Draw a hidden truth; the simulation draws the biases of its sensor from its own seed.

    Args:
        base: Truth whose joints are varied.
        seed: Seed of the draw.
        mass: Mass of the tool [kg]; None to draw it.
        sensor: Frame of the one F/T sensor to keep; the others are dropped to save time.

    """
    generator = np.random.default_rng([seed, 0])
    return replace(
        base,
        tool=random_tool(generator, mass),
        load=None,
        joints={name: _joint(joint, generator) for name, joint in base.joints.items()},
        force_torque_sensors=tuple(
            item for item in base.force_torque_sensors if item.frame == sensor),
        imus=(),
        tracker=None,
    )


def _joint(joint: JointTruth, generator: np.random.Generator) -> JointTruth:
    friction = joint.friction
    level = float(np.mean(friction.coulomb)) * generator.uniform(0.7, 1.3)
    tilt = float(generator.choice((-0.5, 0.5))) * _ASYMMETRY
    plus, minus = 1.0 + tilt, 1.0 - tilt
    breakaway = level * generator.uniform(1.5, 2.0)
    velocity = float(np.mean(friction.stribeck_velocity)) * generator.uniform(0.8, 1.2)
    viscous = float(np.mean(friction.viscous)) * generator.uniform(0.7, 1.3)
    return replace(
        joint,
        friction=FrictionTruth(
            coulomb=(level * plus, level * minus),
            breakaway=(breakaway * plus, breakaway * minus),
            stribeck_velocity=(velocity * plus, velocity * minus),
            viscous=(viscous * plus, viscous * minus),
            bristle_stiffness=friction.bristle_stiffness,
            bristle_damping=friction.bristle_damping,
        ),
        compliance=joint.compliance * float(10.0 ** generator.uniform(-0.3, 0.3)),
    )


def truth_document(truth: HiddenTruth) -> dict[str, Any]:
    """Return the content of a truth file."""
    plain: dict[str, Any] = _plain(asdict(truth))
    return plain


def _plain(value: Any) -> Any:
    """Return lists for tuples and Python numbers for NumPy's, without unset values."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
