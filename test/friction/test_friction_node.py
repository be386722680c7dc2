# SPDX-License-Identifier: Apache-2.0
"""The friction node without an arm: what it refuses, what it offers, what others hand over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_msgs.msg import JointTrajectoryControllerState
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import JointState, Temperature
from std_msgs.msg import String
from support.friction_results import friction_result, payload_result, store
from support.ros_rig import NodeRig, arm_urdf, joint_state, made_rigs, stamp
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.friction.node import FrictionIdentification
from robocal_ros.messages import conversions, qos
from robocal_ros.node.calibration_node import CalibrationNode
from robocal_ros.payload.node import PayloadIdentification
from robocal_ros.results.result import Parameter
from robocal_ros.results.store import from_yaml, to_yaml
from robocal_ros.robot.friction_law import friction_by_joint
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.trajectories import Lspb

pytestmark = pytest.mark.usefixtures('ros')

NAMES = tuple(f'joint_{number}' for number in range(1, 7))
LAW = friction_by_joint(friction_result())['joint_6']
SEGMENT = Lspb.with_acceleration(-0.3, 0.4, 0.2, 2.0)
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., NodeRig]]:
    def make(kind: type[CalibrationNode] = FrictionIdentification, **values: Any) -> NodeRig:
        return NodeRig(kind, tmp_path, **values)

    yield from made_rigs(make)


class TestRefusedAtConfigure:
    """What cannot work is refused before the arm moves, with a sentence."""

    @pytest.mark.parametrize(('entry', 'values', 'words'), [
        ('{joint: joint_6, start: 0.0, goal: 0.4, speed: 0.4, duration: 1.1}', {},
         ('run 1', 'accelerates at 4')),
        ('{joint: joint_6, start: -0.4, goal: 0.4, speed: 0.25, duration: 3.4}',
         {'measure_joints': ['joint_5']}, ('no run of joint_5',)),
    ])
    def test_sets(self, rig, tmp_path, entry, values, words):
        path = tmp_path / 'set.yaml'
        path.write_text(f'- {entry}\n')
        made = rig(trajectory_file=str(path), **values)
        assert made.configure() == FAILURE
        for word in words:
            assert word in made.log['error'][-1]

    def test_real_constants_are_taken(self, rig):
        made = rig(effort_source='current', torque_constants=[0.07], gear_ratios=[101.0])
        assert made.configure() == SUCCESS


class TestCompensation:
    """What an identified law gives to others, live."""

    @pytest.fixture
    def active(self, rig, tmp_path) -> NodeRig:
        store(tmp_path, friction_result())
        return rig().start()

    def test_a_bad_trajectory_is_not_sent_on(self, active):
        out = active.subscribe(JointTrajectory, 'trajectory_out')
        into = active.publisher(JointTrajectory, f'{active.node.get_name()}/trajectory_in')
        into.publish(JointTrajectory(joint_names=['joint_1']))
        active.spinner.until(lambda: active.log['error'])
        assert 'Trajectory not passed on: Expected at least two points' in active.log['error'][-1]
        assert not out

    def feed(self, made: NodeRig, states: Any, velocity: float) -> None:
        made.time += 0.002
        values = [0.0] * 5 + [velocity]
        states.publish(joint_state(made.time, NAMES, [0.0] * 6, values, [0.0] * 6))

    def test_torque_of_a_measured_speed_and_none_at_standstill(self, active):
        received = active.subscribe(JointState, 'compensation')
        states = active.publisher(JointState, 'joint_states', 10)
        generator = np.random.default_rng(0)
        def fed_until(condition: Callable[[], bool], velocity: Callable[[], float]) -> None:
            def step() -> bool:
                self.feed(active, states, velocity())
                return condition()

            active.spinner.until(step)

        for speed in (0.1, -0.2):
            expected = pytest.approx(float(LAW.torque(speed)), rel=1e-6)
            fed_until(
                lambda expected=expected: bool(received) and received[-1].effort[5] == expected,
                lambda speed=speed: speed)
            assert list(received[-1].effort[:5]) == [0.0] * 5
            assert received[-1].name == list(NAMES)
        fed_until(lambda: received[-1].effort[5] == 0.0, lambda: 0.0)
        received.clear()
        # The noise of a real speed at standstill.
        fed_until(lambda: len(received) >= 100, lambda: 1e-3 * float(generator.normal()))
        assert {message.effort[5] for message in received} == {0.0}

    def test_width_and_dead_band_are_parameters(self, rig, tmp_path):
        store(tmp_path, friction_result())
        made = rig(compensation_width=0.05, compensation_dead_band=0.03).start()
        compensator = made.node._feed_forward._compensator
        slow, fast = (np.array([0.0] * 5 + [speed]) for speed in (0.02, 0.05))
        assert compensator.torque(0.0, slow, np.zeros(6), measured=True)[5] == 0.0
        for speed in (slow, fast):
            dry, whole = float(LAW.level(speed[5])), float(LAW.torque(speed[5]))
            assert compensator.torque(0.0, speed, np.zeros(6), measured=False)[5] == pytest.approx(
                np.tanh(speed[5] / 0.05) * dry + whole - dry)

    def test_the_controllers_reference_wins_while_it_is_fresh(self, active):
        received = active.subscribe(JointState, 'compensation')
        states = active.publisher(JointState, 'joint_states', 10)
        controller = active.publisher(
            JointTrajectoryControllerState, 'joint_trajectory_controller/controller_state', 10)
        message = JointTrajectoryControllerState(joint_names=list(reversed(NAMES)))
        message.reference.velocities = [0.05, 0.0, 0.0, 0.0, 0.0, 0.0]
        expected = float(LAW.torque(0.05))

        def commanded() -> bool:
            message.header.stamp = stamp(active.time)
            controller.publish(message)
            self.feed(active, states, 0.3)
            return bool(received) and received[-1].effort[5] == pytest.approx(expected, rel=1e-6)

        active.spinner.until(commanded)

        def stale() -> bool:
            active.time += 0.05
            self.feed(active, states, 0.3)
            return received[-1].effort[5] == pytest.approx(float(LAW.torque(0.3)), rel=1e-6)

        active.spinner.until(stale)

    def test_trajectories_come_back_with_effort(self, active):
        out = active.subscribe(JointTrajectory, 'trajectory_out')
        into = active.publisher(JointTrajectory, f'{active.node.get_name()}/trajectory_in')
        motion = SEGMENT.trajectory(np.array([0.1, 0.3, -0.5, 0.2, 0.4, 0.0]), 5)
        message = conversions.to_joint_trajectory(motion, NAMES)
        # Another order of joints must come back as it came.
        order = [5, 0, 1, 2, 3, 4]
        message.joint_names = [NAMES[i] for i in order]
        for point in message.points:
            point.positions = [point.positions[i] for i in order]
            point.velocities = [point.velocities[i] for i in order]
        into.publish(message)
        active.spinner.until(lambda: out)
        robot = Robot(arm_urdf(), tool_frame='tool0')
        times = [conversions.seconds(point.time_from_start) for point in out[-1].points]
        assert set(motion.time.round(6)) <= set(np.round(times, 6))
        assert np.diff(times).max() < 0.0101
        for point, time in zip(out[-1].points, times, strict=True):
            q, v, a = (part for part in motion.sample(time))
            expected = robot.inverse_dynamics(q, v, a)
            expected[5] += float(LAW.torque(v[5]))
            np.testing.assert_allclose(point.positions, q[order], atol=1e-6)
            if 0.0 < np.abs(motion.time[1:-1] - time).min() < 1e-6:
                # The acceleration jumps where a blend begins or ends.
                continue
            np.testing.assert_allclose(point.effort, expected[order], atol=1e-6)
        assert out[-1].joint_names == message.joint_names

    def test_a_controller_without_effort_is_named(self, active):
        into = active.publisher(JointTrajectory, f'{active.node.get_name()}/trajectory_in')
        controller = active.publisher(
            JointTrajectoryControllerState, 'joint_trajectory_controller/controller_state', 10)
        state = JointTrajectoryControllerState(joint_names=list(NAMES))
        motion = conversions.to_joint_trajectory(SEGMENT.trajectory(np.zeros(6), 5), NAMES)

        def warned() -> bool:
            controller.publish(state)
            into.publish(motion)
            return any('The controller commands no effort' in text
                       for text in active.log['warning'])

        active.spinner.until(warned)
        # One with the interface gets none of it.
        state.output.effort = [0.0] * 6
        client = active.node.arm.client.controller
        active.spinner.until(lambda: (controller.publish(state), client.look(),
                                      client.commands_effort)[-1])
        active.log['warning'].clear()
        out = active.subscribe(JointTrajectory, 'trajectory_out')
        into.publish(motion)
        active.spinner.until(lambda: out)
        assert not active.log['warning']

    def test_tracking_is_switched_on_and_off(self, active):
        """Friction of 1.3 times the identified one, while the last joint swings."""
        compensated = active.subscribe(JointState, 'compensation')
        tracked = active.subscribe(String, 'tracked')
        states = active.publisher(JointState, 'joint_states', 10)
        robot = Robot(arm_urdf(), tool_frame='tool0')
        home = np.array([0.1, 0.3, -0.5, 0.2, 0.4, 0.0])

        def fed_until(condition: Callable[[], bool]) -> None:
            def step() -> bool:
                active.time += 0.04
                q, v, a = home.copy(), np.zeros(6), np.zeros(6)
                q[5], v[5], a[5] = (0.5 * np.sin(active.time), 0.5 * np.cos(active.time),
                                    -0.5 * np.sin(active.time))
                effort = robot.inverse_dynamics(q, v, a)
                effort[5] += 1.3 * float(LAW.torque(v[5]))
                states.publish(joint_state(active.time, NAMES, q, v, effort))
                return condition()

            active.spinner.until(step)

        def share() -> float:
            """Return the newest compensation over that of the identified law."""
            message = compensated[-1]
            speed = 0.5 * np.cos(message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec)
            return message.effort[5] / float(LAW.torque(speed)) if abs(speed) > 0.3 else np.nan

        fed_until(lambda: bool(compensated) and share() == pytest.approx(1.0, abs=0.02))
        assert not tracked
        answer = active.call('track')
        assert answer.success
        assert 'Friction is updated from joint states from now on' in answer.message
        fed_until(lambda: bool(tracked) and share() == pytest.approx(1.3, abs=0.05))
        law = friction_by_joint(from_yaml(tracked[-1].data))['joint_6']
        assert float(law.torque(0.4) / LAW.torque(0.4)) == pytest.approx(1.3, abs=0.05)
        answer = active.call('track')
        assert answer.success
        assert 'the identified laws are in use' in answer.message
        compensated.clear()
        fed_until(lambda: bool(compensated) and share() == pytest.approx(1.0, abs=0.02))
        tracked.clear()
        begin = active.time
        fed_until(lambda: active.time > begin + 2.5)
        assert not tracked

    def test_without_friction_there_is_nothing_to_track(self, rig):
        answer = rig().start().call('track')
        assert not answer.success
        assert 'No friction is identified yet; call run first' in answer.message

    def test_without_a_result_the_effort_lacks_friction_and_says_so(self, rig):
        made = rig().start()
        out = made.subscribe(JointTrajectory, 'trajectory_out')
        into = made.publisher(JointTrajectory, f'{made.node.get_name()}/trajectory_in')
        motion = SEGMENT.trajectory(np.zeros(6), 5)
        into.publish(conversions.to_joint_trajectory(motion, NAMES))
        made.spinner.until(lambda: out)
        assert 'No friction result is available' in made.log['warning'][-1]
        robot = Robot(arm_urdf(), tool_frame='tool0')
        np.testing.assert_allclose(
            out[-1].points[0].effort,
            robot.inverse_dynamics(*(part for part in motion.sample(0.0))), atol=1e-6)


class TestHandOver:
    """Results meet their users while all nodes run."""

    def test_payload_identification_takes_friction_live(self, rig):
        made = rig(PayloadIdentification, known_mass=2.0).start()
        results = made.publisher(String, 'friction_identification/result', qos.LATCHED)
        results.publish(String(data=to_yaml(friction_result())))
        made.spinner.until(lambda: made.node.results.current('friction'))
        laws = friction_by_joint(made.node.results.current('friction'))
        np.testing.assert_allclose(laws['joint_6'].coulomb, 0.7)

    def test_friction_takes_the_payload_live_and_from_the_store(self, rig, tmp_path):
        posture = np.array([0.1, 0.7, -0.5, 0.2, 0.4, 0.3])
        bare = Robot(arm_urdf(), tool_frame='tool0')

        def weight(mass: float) -> np.ndarray:
            load = RigidBodyInertia(mass, np.array([0.018, -0.011, 0.102]), np.zeros((3, 3)))
            return bare.with_payload(load, 'flange').gravity_torque(posture)

        store(tmp_path, payload_result(1.5))
        made = rig().start()
        np.testing.assert_allclose(made.node._load()[0].gravity_torque(posture), weight(1.5))
        results = made.publisher(String, 'payload_identification/result', qos.LATCHED)
        results.publish(String(data=to_yaml(payload_result(2.5))))
        made.spinner.until(lambda: np.allclose(
            made.node._load()[0].gravity_torque(posture), weight(2.5)))

class TestTemperature:
    """A law is good near the temperature it was identified at."""

    def test_the_compensation_follows_it(self, rig, tmp_path):
        result = friction_result(temperatures={'joint_6': 22.0})
        store(tmp_path, replace(result, parameters=(*result.parameters, Parameter(
            'joint_6.temperature_factor', '1/K', -0.01, 0.002))))
        made = rig(temperature_topic='drive_temperature').start()
        law = made.node._feed_forward._compensator.friction
        made.publisher(Temperature, 'drive_temperature', 10).publish(Temperature(temperature=30.0))
        made.spinner.until(lambda: made.node._feed_forward._compensator.friction is not law)
        warm = made.node._feed_forward._compensator.friction
        velocity = np.full(6, 0.3)
        np.testing.assert_allclose(warm.torque(velocity), 0.92 * law.torque(velocity))
        # Noise of the thermometer is not worth a new law.
        topic = made.publisher(Temperature, 'drive_temperature', 10)
        for second, value in enumerate((30.1, 29.8, 31.0), 1):
            message = Temperature(temperature=value)
            message.header.stamp.sec = second
            topic.publish(message)
        made.spinner.until(lambda: made.node._feed_forward.newest_temperature != 30.0)
        assert made.node._feed_forward.newest_temperature == 31.0

    def test_far_from_it_a_warning(self, rig, tmp_path):
        store(tmp_path, friction_result(temperatures={'joint_6': 22.0}))
        made = rig(temperature_topic='drive_temperature').start()
        topic = made.publisher(Temperature, 'drive_temperature', 10)
        for second, temperature in enumerate((27.0, float('nan'), 45.5)):
            message = Temperature(temperature=temperature)
            message.header.stamp.sec = second
            topic.publish(message)
        made.spinner.until(lambda: made.log['warning'])
        assert len(made.log['warning']) == 1
        assert '22.0 °C; it is 45.5 °C' in made.log['warning'][0]
