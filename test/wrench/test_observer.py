# SPDX-License-Identifier: Apache-2.0
"""The whole observer on the simulated arm, which another physics engine moves."""

from __future__ import annotations

import numpy as np
import pytest
from support.wrench_arm import ObservedArm, joint_row, of_chain

from robocal_ros.errors import DataError
from robocal_ros.messages.checks import from_seconds
from robocal_ros.wrench.observer import FILLING, Observation

# What the reference cell's force sensors scatter by [N].
NOISE = 0.3
TUBES = {0: (0.055, (0.05, 0.25)), 2: (0.046, (0.04, 0.12))}


def ready(**options: object) -> ObservedArm:
    made = ObservedArm(1, **options)
    made.carry_tool()
    made.run(0.2)
    made.tare()
    return made


@pytest.fixture(scope='module')
def shared() -> ObservedArm:
    return ready()


@pytest.fixture
def observed(shared: ObservedArm) -> ObservedArm:
    """The shared arm, at rest wherever it is."""
    shared.simulator.controller.hold()
    shared.run(0.4)
    return shared


def rms(observations: list[Observation], chain: int) -> float:
    forces = np.array([item.wrench[chain, :3] for item in of_chain(observations, chain)])
    return float(np.sqrt(np.mean(forces**2)))


def moving(made: ObservedArm, duration: float, seed: int = 0) -> list[Observation]:
    made.begin_motion(made.random_path(np.random.default_rng(seed), 3))
    return made.run(duration)


def test_free_motion_reads_as_nothing(observed: ObservedArm) -> None:
    told = moving(observed, 6.0)
    for chain in range(5):
        assert len(of_chain(told, chain)) == len(told)
        assert rms(told, chain) < 1.5 * NOISE
    assert not any(item.contacts for item in told)


def test_positions_alone_do_as_well_with_a_longer_window() -> None:
    made = ready(window=0.04, use_velocity=False)
    told = moving(made, 4.0)
    assert max(rms(told, chain) for chain in range(5)) < 1.5 * NOISE
    assert told[-1].delay == pytest.approx(0.02)


@pytest.mark.parametrize('while_moving', [False, True], ids=['at rest', 'moving'])
@pytest.mark.parametrize('chain', TUBES)
def test_pushes_are_located(observed: ObservedArm, chain: int, while_moving: bool) -> None:
    generator = np.random.default_rng(chain)
    if while_moving:
        observed.begin_motion(observed.random_path(generator, 4))
        observed.run(0.5)
    radius, along = TUBES[chain]
    for _ in range(3):
        angle, height = generator.uniform(0.0, 2.0 * np.pi), generator.uniform(*along)
        outwards = np.array([np.cos(angle), np.sin(angle), 0.0])
        axial = np.array([0.0, 0.0, height])
        if chain == 2:
            outwards, axial = outwards[[2, 0, 1]], axial[[2, 0, 1]]
        force = -25.0 * outwards + 8.0 * axial / height
        point = radius * outwards + axial
        begin = observed.push(chain, point, force, 0.2)
        told = observed.run(0.5)
        contacts = [(item.stamp - begin, item.contacts[chain]) for item in told
                    if chain in item.contacts]
        assert contacts[0][0] < 0.02
        steady = [contact for when, contact in contacts if 0.05 < when < 0.2]
        for contact in steady:
            assert np.linalg.norm(contact.point - point) < 5e-3
        forces = np.mean([item.wrench[chain, :3] for item in of_chain(told, chain)
                          if 0.05 < item.stamp - begin < 0.2], axis=0)
        np.testing.assert_allclose(forces, force, atol=0.6)
        assert chain not in told[-1].contacts


def test_imu_links_agree_and_need_no_joint_states() -> None:
    made = ready(imus={'ft_link_2_proximal': 'imu_link_2', 'ft_link_3_proximal': 'imu_link_3'})
    told = moving(made, 4.0)
    for chain in range(5):
        assert rms(told, chain) < 1.5 * NOISE
    # Joint states end; the links with IMUs go on.
    made.simulator.set_faults(_faults(made, 'joint_states_silent'))
    point = np.array([0.08, 0.046, 0.0])
    made.push(2, point, np.array([0.0, -30.0, 0.0]), 0.2)
    late = made.run(0.4)
    assert {item.links for item in late} == {(0,), (2,)}
    contacts = [item.contacts[2] for item in late if 2 in item.contacts]
    assert np.linalg.norm(contacts[len(contacts) // 2].point - point) < 5e-3


def _faults(made: ObservedArm, text: str) -> object:
    from robocal_sim.faults import parse_faults

    return parse_faults(text, made.robot.joint_names, made.frames)


class TestFaults:
    """What becomes of each link when a sensor is not what it should be."""

    @pytest.fixture
    def spoilt(self, observed: ObservedArm):
        def spoil(text: str, duration: float = 0.4) -> list[Observation]:
            observed.simulator.set_faults(_faults(observed, text))
            return observed.run(duration)

        yield spoil
        observed.simulator.set_faults(_faults(observed, 'none'))
        observed.run(0.3)
        assert observed.run(0.1)[-1].reasons == [''] * 5

    @pytest.mark.parametrize(('fault', 'words'), [
        ('ft_nan', 'not finite numbers'),
        ('ft_stuck', 'the same values'),
        ('ft_late', 'ms late, more than max_delay'),
        ('ft_silent', 'ms late'),
    ])
    def test_the_links_on_both_sides_are_unknown_and_the_rest_go_on(
        self, spoilt, fault: str, words: str
    ) -> None:
        told = spoilt(f'{fault}:ft_link_3_proximal')
        assert [bool(reason) for reason in told[-1].reasons] == [False, True, True, False, False]
        assert words in told[-1].reasons[2]
        assert 'ft_link_3_proximal' in told[-1].reasons[1]
        assert rms(told, 4) < 1.5 * NOISE
        # Nothing was lost for the others.
        stamps = np.array([item.stamp for item in told])
        assert np.diff(stamps) == pytest.approx(0.002)

    def test_slow_joint_states(self, spoilt) -> None:
        told = spoilt('joint_states_slow')
        assert 'apart (10 Hz)' in told[-1].reasons[0]
        assert '5 of them within 0.1 s are needed for accelerations, 40 Hz' in \
            told[-1].reasons[0]


@pytest.mark.parametrize(('fault', 'words'), [
    ('ft_flipped:ft_link_2_distal', "'ft_link_2_distal' reads the opposite"),
    ('ft_swapped:ft_link_3_proximal/ft_wrist', 'swapped'),
])
def test_bad_tares_name_the_sensors(observed: ObservedArm, fault: str, words: str) -> None:
    observed.simulator.set_faults(_faults(observed, fault))
    with pytest.raises(DataError, match=words):
        observed.tare()
    observed.simulator.set_faults(_faults(observed, 'none'))
    observed.tare()


def test_a_bias_that_drifts_shows_in_the_level() -> None:
    made = ready()
    made.simulator.set_faults(_faults(made, 'ft_drift:ft_wrist'))
    made.run(8.0)
    levels = [judge.level for judge in made.observer.judges]
    assert levels[4] > 0.8
    assert max(levels[:3]) < 0.5


def test_nothing_before_the_window_is_full_and_after_a_jump() -> None:
    made = ObservedArm(1)
    told = made.run(0.05)
    assert told[0].reasons[0].startswith(FILLING)
    assert told[-1].reasons[0] == ''
    made.observer.clear()
    assert made.run(0.004)[0].reasons[0].startswith(FILLING)


def test_observations_do_not_depend_on_the_order_of_arrival() -> None:
    one, other = ready(), ready()
    hand_over = other._hand_over

    def shuffled(readings, observations) -> None:
        readings.wrenches.reverse()
        joints, readings.joints = readings.joints, []
        for joint in joints:
            other.observer.joint_chains.add(from_seconds(joint.time), joint_row(joint))
        hand_over(readings, observations)

    other._hand_over = shuffled
    first, second = one.run(0.3), other.run(0.3)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.stamp == b.stamp
        np.testing.assert_array_equal(a.wrench, b.wrench)


def test_the_newest_instant_is_the_same_without_those_before_it() -> None:
    one, other = (ready(imus={'ft_link_2_proximal': 'imu_link_2'}, observe_torque=True)
                  for _ in range(2))
    take = other.observer.take
    other.observer.take = lambda: None
    for made in (one, other):
        made.push(2, np.array([0.08, 0.046, 0.0]), np.array([0.0, -30.0, 0.0]), 0.3)
    every, skipped = one.run(0.2), other.run(0.2)
    while (observation := take(newest=True)) is not None:
        skipped.append(observation)
    assert {item.links for item in skipped} == {(0,), (1, 2, 3, 4)}
    for item in skipped:
        same = [other for other in every if other.links == item.links]
        assert item.instants == len(same)
        assert item.stamp == same[-1].stamp
        np.testing.assert_array_equal(item.wrench, same[-1].wrench)
        assert item.reasons == same[-1].reasons
        assert item.contacts.keys() == same[-1].contacts.keys()
        assert (item.external is None) == (same[-1].external is None)
        if item.external is not None:
            np.testing.assert_array_equal(item.external, same[-1].external)
    assert any(2 in item.contacts and item.external is not None for item in skipped)
