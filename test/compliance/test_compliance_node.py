# SPDX-License-Identifier: Apache-2.0
"""The compliance node without an arm: what it refuses, what it offers, what others hand over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import PointStamped, PoseStamped, Vector3Stamped
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from support.compliance_results import COMPLIANCE, compliance_result
from support.friction_results import friction_result, payload_result, store
from support.ros_rig import NodeRig, arm_urdf, joint_state, made_rigs, stamp
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.compliance.node import ComplianceCalibration
from robocal_ros.messages import conversions, qos
from robocal_ros.results import to_yaml
from robocal_ros.robot import RigidBodyInertia, Robot, SagCorrection, quintic_path

pytestmark = pytest.mark.usefixtures('ros')

NAMES = tuple(f'joint_{number}' for number in range(1, 7))
POSTURE = np.array([0.1, 0.7, -0.5, 0.2, 0.4, 0.3])
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class Rig(NodeRig):
    """The node, and an arm at rest."""

    def __init__(self, results: Path, **values: Any) -> None:
        super().__init__(ComplianceCalibration, results, name='compliance_calibration',
                         connect_timeout=0.3, **values)

    def arm_stands(self, posture: np.ndarray = POSTURE) -> Callable[[], None]:
        """Return what publishes one more joint state of an arm at rest."""
        states = self.publisher(JointState, 'joint_states', 10)

        def feed() -> None:
            self.time += 0.05
            states.publish(joint_state(self.time, NAMES, posture, [0.0] * 6, [0.0] * 6))

        return feed


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    yield from made_rigs(partial(Rig, tmp_path))


def correction(load: RigidBodyInertia | None) -> tuple[Robot, SagCorrection]:
    robot = Robot(arm_urdf())
    carrying = robot if load is None else robot.with_payload(load, 'flange')
    return robot, SagCorrection(robot, carrying, COMPLIANCE)


def test_postures_of_ones_own_that_touch_are_refused_at_configure(rig, tmp_path) -> None:
    path = tmp_path / 'postures.yaml'
    path.write_text('- [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]\n' * 4
                    + '- [0.0, 2.2, 1.3, 0.0, 0.0, 0.0]\n')
    made = rig(posture_file=str(path))
    assert made.configure() == FAILURE
    assert re.search('In posture 5 of posture_file.*touches', made.log['error'][-1])


def test_meshes_are_found_in_further_folders(rig, tmp_path) -> None:
    (tmp_path / 'parts').mkdir()
    (tmp_path / 'parts' / 'base.stl').write_text(
        'solid base\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 0.1 0 0\n'
        'vertex 0 0.1 0\nendloop\nendfacet\nendsolid base\n')
    urdf = arm_urdf().replace('</link>', (
        '<collision><geometry><mesh filename="package://parts/base.stl"/></geometry></collision>'
        '</link>'), 1)
    for folder, missing in (('', True), (str(tmp_path), False)):
        made = rig(robot_description=urdf, mesh_folders=[folder], load_mass=5.0)
        made.configure()
        assert any('Set mesh_folders' in line for line in made.log['warning']) is missing


class TestRefusedWhenCalled:
    """What cannot work is refused by the service, with the cure."""

    def answer(self, made: Rig, verb: str) -> str:
        """Call a service while the arm stands still and its controller is there."""
        feed = made.arm_stands()
        timer = made.talker.create_timer(0.02, feed)

        async def there() -> None:
            """Take the controller for there: nothing is to be moved."""

        made.node.arm.connect = there
        made.spinner.until(lambda: made.node.joints.latest is not None)
        answer = made.call(verb)
        timer.cancel()
        assert not answer.success
        return str(answer.message)

    @pytest.mark.parametrize(('values', 'verb', 'words'), [
        ({'load_mass': 5.0}, 'run',
         'call measure_unloaded, mount the load, call measure_loaded'),
        ({'load_mass': 5.0, 'measure_posture': 3, 'attach_service': 'there/attach',
          'detach_service': 'there/detach'}, 'run',
         'measure_posture is set, but run measures whole sets'),
        ({}, 'measure_unloaded', 'The mass of the load is unknown: load_mass is 0'),
        ({}, 'estimate', 'The mass of the load is unknown: load_mass is 0'),
        ({'load_mass': 5.0}, 'measure_loaded', 'call measure_unloaded first'),
        ({'load_mass': 5.0}, 'estimate', 'has no rest'),
        ({'load_mass': 5.0, 'tracker_timeout': 0.3}, 'measure_unloaded',
         "Topic '/tracker/point' has no publisher.*The arm was not moved"),
    ])
    def test_what_is_missing(self, rig, values: dict[str, Any], verb: str, words: str) -> None:
        assert re.search(words, self.answer(rig(**values).start(), verb))

    def test_with_a_tracker_that_sends_no_numbers(self, rig):
        made = rig(load_mass=5.0, tracker_timeout=0.5).start()
        points = made.publisher(PointStamped, 'tracker/point', 10)

        def bad() -> None:
            made.time += 0.01
            message = PointStamped()
            message.header.stamp, message.point.x = stamp(made.time), float('nan')
            points.publish(message)

        made.talker.create_timer(0.01, bad)
        made.spinner.until(made.node._tracker.problem)
        assert "'/tracker/point' sends values that are not finite" in self.answer(
            made, 'measure_unloaded')

class TestTracker:
    """Points and poses become readings."""

    def test_poses_are_heard_where_they_are_asked_for(self, rig):
        made = rig(tracker_message='pose').start()
        poses = made.publisher(PoseStamped, 'tracker/pose', 10)
        message = PoseStamped()
        message.header.frame_id = 'tracker'
        message.pose.position.x, message.pose.orientation.w = 1.5, 1.0

        def received() -> bool:
            made.time += 0.1
            message.header.stamp = stamp(made.time)
            poses.publish(message)
            return made.node._tracker.recorded >= 3

        made.spinner.until(received)
        found = made.node._tracker.samples()
        assert found.rows == 6
        np.testing.assert_array_equal(found.point[0], [1.5, 0.0, 0.0])


class TestAtWork:
    """What an identified compliance gives to others, live."""

    LOAD = RigidBodyInertia(5.0, np.array([0.0, 0.02, 0.1]), np.zeros((3, 3)))

    @pytest.fixture
    def active(self, rig, tmp_path) -> Rig:
        store(tmp_path, compliance_result())
        return rig(load_mass=5.0, load_com=[0.0, 0.02, 0.1], load_frame='flange').start()

    def sag_is(self, made: Rig, received: list[Vector3Stamped], expected: np.ndarray) -> None:
        feed = made.arm_stands()

        def met() -> bool:
            feed()
            if not received:
                return False
            found = received[-1].vector
            return bool(np.allclose([found.x, found.y, found.z], expected, atol=1e-9))

        made.spinner.until(met, what=f'a deflection of {expected}')

    def test_deflection_of_the_load_and_of_a_payload_that_is_identified_later(self, active):
        received = active.subscribe(Vector3Stamped, 'deflection')
        _, known = correction(self.LOAD)
        expected = known.sag(POSTURE)
        assert expected[2] < -1e-4
        self.sag_is(active, received, expected)
        assert received[-1].header.frame_id == 'world'
        payloads = active.publisher(String, 'payload_identification/result', qos.LATCHED)
        payloads.publish(String(data=to_yaml(payload_result(2.5))))
        payload = payload_result(2.5)
        _, carrying = correction(RigidBodyInertia(
            2.5, payload.values(('com_x', 'com_y', 'com_z')), np.zeros((3, 3))))
        self.sag_is(active, received, carrying.sag(POSTURE))

    def test_without_its_own_weight_the_deflection_is_that_of_the_load_alone(self, rig, tmp_path):
        store(tmp_path, compliance_result())
        made = rig(load_mass=5.0, load_com=[0.0, 0.02, 0.1], load_frame='flange',
                   correct_own_weight=False).start()
        _, known = correction(self.LOAD)
        alone = known.sag(POSTURE, payload_alone=True)
        assert abs(alone[2] - known.sag(POSTURE)[2]) > 1e-5
        self.sag_is(made, made.subscribe(Vector3Stamped, 'deflection'), alone)

    def test_identified_friction_counts_in_the_efforts_of_motions(self, rig, tmp_path):
        store(tmp_path, friction_result())
        made = rig(load_mass=5.0).start()
        effort = made.node._method._effort('loaded')
        gravity = effort.robot.gravity_torque(POSTURE)
        # Breakaway of the only joint with a law.
        np.testing.assert_allclose(
            np.abs(effort.holding(POSTURE[None])[0]) - np.abs(gravity),
            [0.0, 0.0, 0.0, 0.0, 0.0, 1.2], atol=1e-6)

    def test_trajectories_come_back_corrected_in_their_own_order_of_joints(self, active):
        out = active.subscribe(JointTrajectory, 'trajectory_out')
        into = active.publisher(JointTrajectory, 'compliance_calibration/trajectory_in')
        motion = quintic_path(np.stack((POSTURE, POSTURE + 0.3)), np.full(6, 1.0), np.full(6, 2.0))
        message = conversions.to_joint_trajectory(motion, NAMES)
        order = [5, 0, 1, 2, 3, 4]
        message.joint_names = [NAMES[i] for i in order]
        for point in message.points:
            for what in ('positions', 'velocities', 'accelerations'):
                values = getattr(point, what)
                setattr(point, what, [values[i] for i in order])
        into.publish(message)
        active.spinner.until(lambda: out)
        _, known = correction(self.LOAD)
        expected = known.corrected(motion)
        assert np.abs(expected.position - motion.position).max() > 1e-4
        for row, point in enumerate(out[-1].points):
            np.testing.assert_allclose(point.positions, expected.position[row][order], atol=1e-12)
            np.testing.assert_allclose(point.velocities, expected.velocity[row][order], atol=1e-12)
        assert out[-1].joint_names == message.joint_names

    def test_a_bad_trajectory_is_not_sent_on(self, active):
        out = active.subscribe(JointTrajectory, 'trajectory_out')
        into = active.publisher(JointTrajectory, 'compliance_calibration/trajectory_in')
        start = np.array([0.0, 2.2, np.radians(80.0), 0.0, 0.0, 0.0])
        into.publish(conversions.to_joint_trajectory(
            quintic_path(np.stack((start, start - 0.1)), np.ones(6), np.full(6, 2.0)), NAMES))
        active.spinner.until(lambda: active.log['error'])
        assert 'Trajectory not passed on' in active.log['error'][-1]
        assert "joint 'joint_3' exceeds its limit" in active.log['error'][-1]
        assert not out

    def test_without_a_result_nothing_is_passed_on(self, rig):
        made = rig().start()
        into = made.publisher(JointTrajectory, 'compliance_calibration/trajectory_in')
        motion = quintic_path(np.stack((POSTURE, POSTURE + 0.3)), np.full(6, 1.0), np.full(6, 2.0))
        into.publish(conversions.to_joint_trajectory(motion, NAMES))
        made.spinner.until(lambda: made.log['error'])
        assert 'no compliance is identified yet' in made.log['error'][-1]
