# SPDX-License-Identifier: Apache-2.0
"""All who compensate or subtract friction use the same law, load included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.arms import arm
from support.friction_results import friction_result

from robocal_ros.estimation import Sweep
from robocal_ros.friction.model import Compensator, feed_forward
from robocal_ros.messages import JointSamples, Recording, no_readings
from robocal_ros.payload.estimator import _by_torque
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.two_plane import _Recording
from robocal_ros.results import Inputs, Parameter
from robocal_ros.robot import ArmFriction, EffortLimits, SteadyFriction, Trajectory
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.torque import JointTorques

N = 6


def random_laws(generator: np.random.Generator) -> dict[str, SteadyFriction]:
    """Return a law for five of the six joints."""
    found = {}
    for joint in range(1, N):
        coulomb, rise, speed, viscous = generator.uniform(
            [1.0, 0.1, 0.02, 0.5], [8.0, 5.0, 0.1, 6.0], (2, 4)).T
        found[f'joint_{joint}'] = SteadyFriction(
            coulomb, coulomb + rise, speed, viscous, std=0.1,
            exponent=generator.uniform(0.5, 1.0, 2), load_factor=generator.uniform(0.01, 0.1, 2),
            reference_load=generator.uniform(0.0, 30.0))
    return found


def written_out(law: SteadyFriction, v: float, load: float) -> float:
    """Return the law by its formula."""
    s = int(v < 0.0)
    dry = (law.coulomb[s] + (law.static[s] - law.coulomb[s])
           * np.exp(-(v / law.stribeck_velocity[s])**2)
           + law.load_factor[s] * (abs(load) - law.reference_load))
    # Friction never drives a joint, however far a law is extrapolated.
    size = max(dry, 0.0) + law.viscous[s] * abs(v)**law.exponent[s]
    return float(np.sign(v) * size)


@pytest.mark.parametrize('seed', range(5))
def test_all_consumers_agree(seed):
    generator = np.random.default_rng(seed)
    robot, laws = arm('robocal').robot(), random_laws(generator)
    time = np.arange(4.0)
    q, v, a = (generator.uniform(-size, size, (4, N)) for size in (1.0, 0.8, 2.0))
    # Sliding, and not in the rise of torque about standstill.
    v += np.copysign(0.05, v)
    load = np.array([robot.inverse_dynamics(*state) for state in zip(q, v, a, strict=True)])
    expected = np.array([[
        written_out(laws[name], rate, carried) if name in laws else 0.0
        for name, rate, carried in zip(robot.joint_names, *row, strict=True)]
        for row in zip(v, load, strict=True)])
    friction = ArmFriction(laws, robot.joint_names)

    compensator = Compensator(friction, width=1e-4, dead_band=0.0)
    observer = JointTorques(robot, WrenchParameters(friction_width=1e-4))
    observer.use_friction(laws)
    one_by_one = [observer.update(*row, lambda: np.zeros(N)) - row[0] + row[3]
                  for row in zip(load, v, a, load + expected, strict=True)]
    motion = Trajectory(time, q, v, a)
    consumers = {
        'compensation': [compensator.torque(*row, measured=False)
                         for row in zip(time, v, load, strict=True)],
        'trajectory': feed_forward(robot, friction, motion) - load,
        'trajectory of friction alone': feed_forward(robot, friction, motion, rigid=False),
        'observer, live': one_by_one,
        'observer, bag': observer.external_torque(load, v, a, load + expected) + expected,
        'payload excitation': friction.torque(v, effort=load + expected),
        'payload planes': payload_planes(robot, laws, q, v, load + expected),
    }
    for name, found in consumers.items():
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9, err_msg=name)
    # Efforts that lift the arm contain it at a slow speed.
    gravity = robot.gravity_torques(q)
    slow = np.where(gravity < 0.0, -1e-3, 1e-3)
    lifting = EffortLimits(robot, laws, 1.0).holding(q) - gravity
    assert (np.abs(lifting) >= np.abs(friction.torque(slow, gravity)) - 0.2).all()


def payload_planes(robot, laws, q, v, effort):
    """Return what the two-plane method subtracts, sample by sample."""
    samples = JointSamples(robot.joint_names, np.arange(4.0), q, v, effort)
    case = _Recording(robot, samples, PayloadParameters(), laws, 3.0)
    rest = effort - robot.gravity_torques(q)
    return rest - np.array([[
        case.targets([Sweep(joint, row, row + 1, v[row, joint], q[row], 1.0)])[1][0]
        for joint in range(N)] for row in range(4)])


def test_a_law_at_another_temperature_is_scaled_with_its_doubt():
    generator = np.random.default_rng(0)
    law = replace(random_laws(generator)['joint_3'], temperature=20.0, temperature_factor=-0.01,
                  temperature_std=0.004, covariance=np.tile(1e-4 * np.eye(6), (2, 1, 1)))
    v, load = np.array([-0.9, -0.1, 0.2, 1.1]), np.full(4, law.reference_load)
    warm = law.at(35.0)
    np.testing.assert_allclose(warm.torque(v, load), 0.85 * law.torque(v, load), rtol=1e-12)
    np.testing.assert_allclose(
        warm.deviation(v, load)**2 - law.std**2,
        0.85**2 * (law.deviation(v, load)**2 - law.std**2)
        + (15.0 * 0.004 * law.torque(v, load))**2, rtol=2e-2)
    # Back at the first temperature, and where one of them is not known, it is the law itself.
    assert law.at(20.0) is law
    assert law.at(np.nan) is law
    assert replace(law, temperature=np.nan).at(35.0).temperature_std == 0.004


def test_payload_by_torque_subtracts_the_friction_of_the_temperature_recorded():
    robot = arm('robocal').robot()
    result = friction_result(temperatures={'joint_6': 20.0})
    result = replace(result, parameters=(*result.parameters, Parameter(
        'joint_6.temperature_factor', '1/K', -0.02, 0.004)))
    still = np.zeros((4, N))
    joints = JointSamples(robot.joint_names, np.arange(4.0), still, still,
                          robot.gravity_torques(still) + 0.1 * np.arange(4.0)[:, None])
    values, inputs = PayloadParameters(effort_contains='all'), Inputs({'friction': result})
    for readings, factor in ((no_readings(), 1.0), (np.array([[0.0, 29.0], [1.0, 31.0]]), 0.8)):
        _, laws = _by_torque(robot, Recording(joints, temperatures=readings), values, inputs)
        assert laws['joint_6'].coulomb[0] == pytest.approx(factor * 0.7)


def test_the_observer_states_what_the_law_leaves_open():
    """A load factor that the runs could not show is part of the stated deviation."""
    robot = arm('robocal').robot()
    covariance = np.zeros((2, 6, 6))
    covariance[:, -1, -1] = 0.05**2
    pair = np.full(2, 4.0)
    law = SteadyFriction(pair, pair, np.ones(2), np.zeros(2), std=0.2, reference_load=10.0,
                         covariance=covariance)
    load, v = np.full(N, 80.0), np.full(N, 0.3)
    torques = JointTorques(robot, WrenchParameters())
    torques.use_friction({'joint_2': law})
    assert torques.friction.variance(v, load)[1] == pytest.approx((0.05 * 70.0)**2 + 0.2**2)
    limit = torques.friction.uncertainty(v, load)[1]
    assert limit == pytest.approx(3.0 * np.hypot(0.05 * 70.0, 0.2))
    # Breakaway grows with the load, where the law has a load factor.
    loaded = replace(law, load_factor=np.full(2, 0.05), covariance=np.zeros((2, 6, 6)))
    torques.use_friction({'joint_2': loaded})
    rest = np.zeros(N)
    assert torques.friction.uncertainty(rest, load)[1] == pytest.approx(
        2.0 * (4.0 + 0.05 * 70.0) + 0.6)
