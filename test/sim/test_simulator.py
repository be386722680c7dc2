# SPDX-License-Identifier: Apache-2.0
"""Simulation without ROS: repeatability, rates, faults and pacing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from support.live_graph import JOINTS

from robocal_ros.errors import ConfigurationError
from robocal_sim.faults import parse_faults
from robocal_sim.model import Description
from robocal_sim.pacing import Pacer
from robocal_sim.simulator import ArmSimulator, Readings
from robocal_sim.trajectory import Trajectory, TrajectoryPoint
from robocal_sim.truth import Cell, HiddenTruth, SocketTruth

MOVE = Trajectory(JOINTS, (TrajectoryPoint(0.5, [0.2] * 6, [0.0] * 6),))


def run(simulator: ArmSimulator, duration: float) -> list[Readings]:
    return [simulator.step() for _ in range(round(duration * 1000))]


def table(readings: list[Readings]) -> np.ndarray:
    """Return all measurements, one row per sample."""
    return np.array([
        np.concatenate((
            *((item.joints[0].position, item.joints[0].velocity, item.joints[0].effort)),
            *(reading.values for reading in (*item.wrenches, *item.imus)),
        ))
        for item in readings if item.joints
    ])


def moving(arm: Description, truth: HiddenTruth, cell: Cell, seed: int) -> np.ndarray:
    simulator = ArmSimulator(arm, truth, cell, seed=seed)
    simulator.controller.accept_goal(MOVE, simulator.now)
    return table(run(simulator, 0.6))


def test_same_seed_repeats_all_measurements(
    arm: Description, truth: HiddenTruth, cell: Cell
) -> None:
    first = moving(arm, truth, cell, 7)
    assert first.shape == (300, 18 + 5 * 6 + 3 * 6)
    assert (first == moving(arm, truth, cell, 7)).all()
    # The arm itself does not depend on the noise, so its (quantised) positions are the same.
    assert (first != moving(arm, truth, cell, 8)).any(axis=0)[6:].all()


def streamed(arm: Description, truth: HiddenTruth, commands: np.ndarray) -> ArmSimulator:
    """Return an arm that has followed commands of 500 Hz, shape (k, 6), from another process."""
    simulator = ArmSimulator(arm, truth, command_rate=500.0)
    assert simulator.streamed is not None
    for row in commands:
        simulator.streamed.take(dict(zip(reversed(JOINTS), row[::-1], strict=True)), {})
        simulator.step()
        simulator.step()
    return simulator


def test_streamed_commands_move_the_arm_as_the_own_controller_two_cycles_later(
    arm: Description, truth: HiddenTruth
) -> None:
    own = ArmSimulator(arm, truth)
    own.controller.accept_goal(Trajectory(JOINTS, (
        TrajectoryPoint(0.4, [0.1] * 6, [0.0] * 6, [0.0] * 6),)), own.now)
    commands, efforts = [], []
    for _ in range(150):
        efforts.append(own.physics.effort.copy())
        own.step()
        commands.append(own.controller.desired.position.copy())
        own.step()
    commands = np.array(commands)
    assert np.abs(np.diff(commands, axis=0)).max() > 5e-4
    for cycles in (60, 100, 149):
        followed = streamed(arm, truth, commands[:cycles])
        expected = efforts[cycles - 2]
        moved = np.abs(expected - efforts[0]).max()
        assert moved > 5.0
        assert np.abs(followed.physics.effort - expected).max() < 0.01 * moved


def test_streamed_commands_that_are_not_finite_or_end_hold_the_joint(
    arm: Description, truth: HiddenTruth
) -> None:
    commands = np.full((200, 6), np.nan)
    # As fast as the joint may.
    commands[50:, 0] = np.minimum(0.002 * np.arange(150), 0.1)
    simulator = streamed(arm, truth, commands)
    assert simulator.streamed is not None
    assert simulator.streamed.started
    for _ in range(1000):
        simulator.step()
    assert simulator.physics.encoder[0] == pytest.approx(0.1, abs=1e-3)
    assert np.abs(simulator.physics.encoder[1:]).max() < 1e-3
    assert not simulator.streamed.moving


def test_streamed_efforts_reach_the_drives(arm: Description, truth: HiddenTruth) -> None:
    simulator = ArmSimulator(arm, truth, command_rate=250.0)
    assert simulator.streamed is not None
    before = simulator.physics.effort.copy()
    for _ in range(3):
        simulator.streamed.take({}, {'joint_2': 20.0, 'joint_3': np.nan})
        run(simulator, 0.004)
    # The position loop takes it back.
    assert simulator.physics.effort[1] - before[1] > 5.0
    assert np.abs(simulator.physics.effort - before)[3:].max() < 1.0


def test_rates_and_stamps(arm: Description, truth: HiddenTruth) -> None:
    simulator = ArmSimulator(arm, truth, rate=250.0)
    readings = run(simulator, 1.0)
    stamps = [item.joints[0].time for item in readings if item.joints]
    assert len(stamps) == 250
    assert np.diff(stamps) == pytest.approx(0.004, abs=1e-9)
    for item in readings:
        assert {wrench.time for wrench in item.wrenches} == {j.time for j in item.joints}
    tracked = [item.tracker[0].time for item in readings if item.tracker]
    assert np.diff(tracked) == pytest.approx(0.1, abs=1e-9)


def test_dropouts_remove_the_given_share(arm: Description, truth: HiddenTruth) -> None:
    cell = Cell()
    lossy = replace(cell, force_torque=replace(cell.force_torque, dropout=0.3))
    readings = run(ArmSimulator(arm, truth, lossy), 1.0)
    share = sum(len(item.wrenches) for item in readings) / (5 * 500)
    assert share == pytest.approx(0.7, abs=0.05)
    assert sum(len(item.joints) for item in readings) == 500


def test_latency_fault_delays_messages_and_keeps_stamps(
    arm: Description, truth: HiddenTruth
) -> None:
    simulator = ArmSimulator(arm, truth)
    simulator.set_faults(parse_faults('latency:0.05', JOINTS))
    assert not any(item.joints or item.wrenches for item in run(simulator, 0.05))
    late = run(simulator, 0.05)
    assert sum(len(item.joints) for item in late) == 25
    assert simulator.now - late[-2].joints[0].time > 0.05


def test_several_faults_with_arguments() -> None:
    faults = parse_faults('effort_nan:joint_2, ft_silent,latency:0.5,effort_zero', JOINTS)
    assert faults.of('effort_nan') == (1,)
    assert faults.of('effort_zero') == tuple(range(6))
    assert 'ft_silent' in faults
    assert faults.latency == 0.5


@pytest.mark.parametrize(('text', 'words'), [
    ('gremlins', 'Unknown fault'),
    ('ft_silent:joint_1', 'Unknown fault'),
    ('effort_zero:joint_9', 'joint_9'),
    ('joint_missing', 'joint_1'),
    ('latency', 'seconds'),
    ('latency:-1', 'seconds'),
    ('latency:soon', 'seconds'),
])
def test_invalid_faults_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_faults(text, JOINTS)


@pytest.mark.parametrize(('settings', 'words'), [
    ({'rate': 300.0}, 'whole number'),
    ({'rate': 2000.0}, 'at most 1000'),
    ({'start': np.zeros(5)}, '6 finite angles'),
    ({'start': np.full(6, np.nan)}, '6 finite angles'),
    ({'start': np.full(6, 3.0)}, 'joint limits'),
])
def test_invalid_settings_are_refused(
    arm: Description, truth: HiddenTruth, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ArmSimulator(arm, truth, **settings)


def test_pacer_follows_the_wall_clock() -> None:
    pacer = Pacer(2.0)
    assert pacer.delay(10.0, 5.0) == 0.0
    assert pacer.delay(10.5, 5.1) == pytest.approx(0.15)
    # Delays are not made up for.
    assert pacer.delay(11.0, 8.0) == 0.0
    assert pacer.delay(11.5, 8.0) == pytest.approx(0.25)


def test_pacer_waits_for_the_slowest_and_drops_unresponsive_consumers() -> None:
    pacer = Pacer(0.0, max_lead=0.05)
    pacer.acknowledge('fast', 1.0, 0.0)
    pacer.acknowledge('slow', 0.9, 0.0)
    assert pacer.held_up(1.0)
    assert not pacer.held_up(0.94)
    assert pacer.drop_silent(1.0, 1.5, 0.0) == []
    assert pacer.drop_silent(1.0, 2.5, 0.0) == ['slow']
    assert pacer.consumers == ('fast',)
    assert not pacer.held_up(1.0)


@pytest.mark.parametrize('value', [-1.0, float('nan'), float('inf')])
def test_pacer_refuses_invalid_numbers(value: float) -> None:
    with pytest.raises(ConfigurationError, match='real_time_factor'):
        Pacer(value)


def test_the_node_loads_without_scipy() -> None:
    """Nodes wait a few seconds for its description, and SciPy alone would take as long."""
    program = ("import robocal_sim.node, sys; "
               "sys.exit(any(name.startswith('scipy.') for name in sys.modules))")
    assert subprocess.run([sys.executable, '-c', program], check=False).returncode == 0


@pytest.mark.parametrize('loaded', [False, True])
def test_the_guided_arm_is_at_rest_after_a_motion_and_with_its_load(
    arm: Description, truth: HiddenTruth, loaded: bool
) -> None:
    place = (0.5, 0.1, 0.3)
    sockets = SocketTruth((0.03, -0.02, 0.15), {'left': place}, 'tool0')
    simulator = ArmSimulator(arm, replace(truth, sockets=sockets))
    if loaded:
        simulator.physics.attach_load()
    # By the topic, there is no goal.
    assert simulator.controller.accept_topic(MOVE, simulator.now) is None
    for _ in range(400):
        with pytest.raises(ConfigurationError, match='a trajectory'):
            simulator.guide('left')
        simulator.step()
    for _ in range(200):
        simulator.step()
    encoders = simulator.guide('left')
    for _ in range(500):
        for reading in simulator.step().joints:
            np.testing.assert_allclose(reading.position, encoders, atol=1e-9)
            np.testing.assert_allclose(reading.velocity, 0.0, atol=1e-8)
    rotation, origin = simulator.physics.link_pose('tool0')
    np.testing.assert_allclose(origin + rotation @ sockets.ball, place, atol=1e-7)


def test_the_hand_brings_the_ball_into_the_socket(arm: Description, truth: HiddenTruth) -> None:
    place = (0.55, 0.1, 0.5)
    sockets = SocketTruth((0.03, -0.02, 0.15), {'left': place, 'far': (5.0, 0.0, 0.0)}, 'tool0',
                          play=1e-4)
    simulator = ArmSimulator(arm, replace(truth, sockets=sockets), seed=4)
    postures, off = [], []
    for _ in range(12):
        encoders = simulator.guide('left')
        for _ in range(50):
            simulator.step()
        # The controller holds it there.
        np.testing.assert_allclose(simulator.physics.encoder, encoders, atol=2e-4)
        rotation, origin = simulator.physics.link_pose('tool0')
        off.append(np.linalg.norm(origin + rotation @ sockets.ball - place))
        postures.append(encoders)
    assert 0.5e-4 < np.sqrt(np.mean(np.square(off))) < 4e-4
    assert np.std(postures, axis=0).min() > 0.2
    with pytest.raises(ConfigurationError, match=r"no socket 'right'.*has left, far"):
        simulator.guide('right')
    with pytest.raises(ConfigurationError, match='out of reach'):
        simulator.guide('far')
    with pytest.raises(ConfigurationError, match='has none'):
        ArmSimulator(arm, truth).guide('left')
