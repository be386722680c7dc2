# SPDX-License-Identifier: Apache-2.0
"""The parameter files of known drivers: names and values, on such an arm, and with its data.

Each arm is simulated with what its driver publishes: rate, unit and delay of the efforts, wrapped
joints, frame of the F/T sensor. Descriptions are those of example-robot-data; where it lacks an
arm, another one of as many joints gets the driver's names. ROBOCAL_DESCRIPTIONS names a folder
with the drivers' own URDFs, one for each file of config/examples, to be used instead, at the full
rates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.arms import foreign_urdf
from support.followed_arm import FollowedArm, inertias, largest_torques
from support.parameter_files import node_classes, tables
from support.ros_rig import ROOT, overrides

from demo import default_cell
from robocal_ros.cli.drivers import DRIVERS
from robocal_ros.estimators import Estimator
from robocal_ros.messages import Recording
from robocal_ros.node.calibration_node import SUCCESS
from robocal_ros.payload import ARM_IDENTIFICATION, PAYLOAD, plan
from robocal_ros.payload.node import PayloadIdentification
from robocal_ros.payload.result import COM
from robocal_ros.results import State, Verdict
from robocal_ros.robot import (
    CollisionChecker,
    MotionLimits,
    NewtonEuler,
    RigidBodyInertia,
    Trajectory,
    torque_factor,
)
from robocal_sim.model import read_description
from robocal_sim.truth import ForceTorqueTruth, FrictionTruth, HiddenTruth, JointTruth, ToolTruth

pytestmark = pytest.mark.usefixtures('ros')

DESCRIPTIONS = os.environ.get('ROBOCAL_DESCRIPTIONS')
# A tenth of the time that three periods of 8 s at 1 kHz take.
FASTEST, REPEATS, PERIOD = 250.0, 2, 5.0
FILES = {path.stem: yaml.safe_load(path.read_text(encoding='utf-8'))
         for path in sorted((ROOT / 'config' / 'examples').glob('*.yaml'))}
SECTIONS = [(file, key.rpartition('/')[2], section['ros__parameters'])
            for file, content in FILES.items() for key, section in content.items()]
TOOL = ToolTruth(2.0, (0.03, -0.02, 0.08), (3.4e-3, 3.1e-3, 1.3e-3, 0.0, 0.0, 0.0))


@dataclass(frozen=True)
class Published:
    """What an arm's driver publishes.

    Attributes:
        urdf: Path of its description, or of one with as many joints, in example-robot-data.
        names: Replacements of names in it by those of the driver.
        home: Posture about which it moves [rad].
        rate: Rate of the joint states [Hz].
        friction: Coulomb friction in the efforts, as a share of the largest torque; that of
            seals only for torque sensors on the link side.
        noise: Standard deviation of the efforts.
        unit: Reported effort per torque of each joint; other than 1 for currents.
        rotor: Whether the efforts accelerate the rotors too.
        delay: Age of the efforts at their stamp [s].
        wrapped: Joints whose positions are wrapped to ±π.

    """

    urdf: str
    home: Sequence[float]
    rate: float
    names: Mapping[str, str]
    friction: float = 0.002
    noise: float = 0.05
    unit: float = 1.0
    rotor: float = 0.0
    delay: float = 0.0
    wrapped: str = ''


_UR_HOME = (0.0, -1.2, 1.2, -0.8, 0.9, 0.0)
ARMS = {
    'ur_e_series': Published('ur10_robot.urdf', _UR_HOME, 500.0, {}, 0.05, 0.01, 0.09, 1.0),
    'ur_cb3': Published('ur5_robot.urdf', _UR_HOME, 125.0, {}, 0.05, 0.01, 0.09, 1.0),
    'franka_fr3': Published('panda.urdf', (0.0, 0.2, 0.0, -1.8, 0.0, 1.8, 0.5), 1000.0,
                            {'panda_': 'fr3_'}),
    # 100 Hz with report_type dev.
    'xarm': Published('xarm7.urdf', (0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0), 100.0, {}, 0.03, 0.1),
    # The driver's low-pass of 10 Hz delays by 16 ms.
    'kuka_lbr': Published('panda.urdf', (0.0, 0.4, 0.0, -1.4, 0.0, 1.3, 0.0), 100.0, {
        r'panda_joint(\d)': r'lbr_A\1', 'panda_link8': 'lbr_link_ee', 'panda_link': 'lbr_link_'},
        delay=0.016),
    'kinova_gen3': Published('xarm7.urdf', (0.0, 0.3, 3.1, 1.6, 0.0, 1.0, -3.1), 1000.0, {
        r'"joint(\d)"': r'"joint_\1"', 'link_eef': 'end_effector_link',
        r'name="joint_([1357])"(\s+)type="revolute"': r'name="joint_\1"\2type="continuous"'},
        wrapped='joint_[1357]'),
}


def description(file: str) -> str:
    """Return the URDF of the arm that a file is for."""
    if DESCRIPTIONS:
        return (Path(DESCRIPTIONS) / f'{file}.urdf').read_text(encoding='utf-8')
    text = foreign_urdf(ARMS[file].urdf)
    for old, new in ARMS[file].names.items():
        text = re.sub(old, new, text)
    return text


def test_they_cover_every_driver_and_node() -> None:
    assert set(FILES) == set(ARMS) == {driver.file for driver in DRIVERS}
    for file in FILES:
        covered = {node for name, node, _ in SECTIONS if name == file}
        # Without torques and without a sensor there is nothing to observe.
        assert covered == set(tables()) - ({'wrench_observer'} if file == 'ur_cb3' else set())


@pytest.mark.parametrize(('file', 'node', 'given'), SECTIONS,
                         ids=[f'{file}-{node}' for file, node, _ in SECTIONS])
def test_the_node_configures_on_such_a_robot(
    file: str, node: str, given: dict[str, Any], tmp_path: Path
) -> None:
    subject = node_classes()[node](node, parameter_overrides=overrides(
        **given, robot_description=description(file), results_dir=str(tmp_path)))
    assert subject.trigger_configure() == SUCCESS
    subject.trigger_cleanup()
    subject.destroy_node()


# ------------------------------------------------------------------ a payload from its data


class Robot:
    """The node of a file, configured, and the simulated arm that it measures."""

    def __init__(self, file: str, folder: Path) -> None:
        published, urdf = ARMS[file], description(file)
        given = FILES[file]['/**/payload_identification']['ros__parameters']
        node = PayloadIdentification('payload_identification', parameter_overrides=overrides(
            **given, robot_description=urdf, results_dir=str(folder)))
        assert node.trigger_configure() == SUCCESS
        self.robot, self.values, self.store = node.robot, node.values, node.store
        if not DESCRIPTIONS:
            self.values = replace(
                self.values, excitation_repeats=REPEATS, excitation_period=PERIOD)
        node.trigger_cleanup()
        node.destroy_node()
        self.home = np.array(published.home)
        self.checker = CollisionChecker(self.robot.copy())
        joints = {name: JointTruth(
            FrictionTruth(
                (published.friction * torque,) * 2, (1.5 * published.friction * torque,) * 2,
                (0.05, 0.05), (published.friction * torque,) * 2,
                max(1e3, 4e3 * published.friction * torque), 10.0),
            effort_scale=published.unit * (1.0 + 0.1 * np.sin(index)) if published.unit != 1.0
            else 1.0, rotor_inertia=0.3 * inertia, rotor_in_effort=published.rotor,
            wrapped=bool(published.wrapped and re.fullmatch(published.wrapped, name)))
            for index, (name, torque, inertia) in enumerate(zip(
                self.robot.joint_names, largest_torques(self.robot).tolist(),
                inertias(self.robot, self.home).tolist(), strict=True))}
        noise = default_cell.reference_cell()
        self.cell = FollowedArm(
            self.robot, read_description(urdf, self.robot.joint_names), HiddenTruth(
                joints=joints, effort_delay=published.delay,
                force_torque_sensors=(ForceTorqueTruth(self.values.tool_frame),)),
            replace(TOOL, parent=self.robot.tool_frame),
            replace(noise, joint_states=replace(
                noise.joint_states, effort_sigma=published.noise,
                effort_ripple=0.2 * published.noise)),
            published.rate if DESCRIPTIONS else min(published.rate, FASTEST))

    def recording(self, motions: list[Trajectory], *, tool: bool = True) -> Recording:
        """Return what the node records of motions."""
        joints, sensor = self.cell.record(motions, tool=tool, rest=0.5)
        inputs = ARM_IDENTIFICATION.inputs(self.robot, self.values, self.store.load)
        factor = torque_factor(self.robot, self.values, inputs.gains)
        read = PAYLOAD.needs(self.values).wrenches
        return Recording(replace(joints, effort=joints.effort * factor),
                         {self.values.sensor_topic: sensor} if read else {})

    def excitation(self) -> list[Trajectory]:
        """Return the exciting motion that the node would plan."""
        robot = self.robot
        limits = MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                              np.full(robot.n, self.values.excitation_acceleration))
        guess = RigidBodyInertia(1.0, np.zeros(3), np.zeros((3, 3)))
        return [plan.plan_excitation(
            robot.with_payload(guess), self.checker, limits, self.home,
            NewtonEuler(robot, robot.tool_frame).torque_regressor, self.values)]

    def postures(self) -> list[Trajectory]:
        """Return rests in the postures that the node would plan."""
        chosen = plan.plan_static_poses(
            self.robot, self.checker, self.home, sensor_frame=self.values.sensor_frame,
            count=self.values.poses)
        return [Trajectory(np.array([0.0, 0.5]), np.stack((q, q)), np.zeros((2, len(q))))
                for q in chosen]

    def keep(self, capability: Estimator, recording: Recording, values: Any) -> None:
        """Estimate, which must pass, and store the result."""
        found = capability.result(
            self.robot, recording, values, capability.inputs(self.robot, values, self.store.load))
        assert found.verdict is Verdict.PASS, found.reasons
        self.store.save(found)


@pytest.mark.parametrize('file', FILES)
def test_the_payload_is_identified_from_what_the_driver_publishes(
    file: str, tmp_path: Path
) -> None:
    arm = Robot(file, tmp_path)
    values = arm.values
    if values.method == 'static_poses':
        motion = arm.postures()
    else:
        motion = arm.excitation()
        if values.reference_run == 'record':
            arm.keep(PAYLOAD, arm.recording(motion, tool=False), values)
            values = replace(values, reference_run='subtract')
        else:
            arm.keep(ARM_IDENTIFICATION, arm.recording(motion, tool=False), values)
            arm.keep(ARM_IDENTIFICATION, arm.recording(motion),
                     replace(values, arm_load=TOOL.mass))
            arm.cell = replace(arm.cell, tool=replace(arm.cell.tool, mass=1.5))
    result = PAYLOAD.result(
        arm.robot, arm.recording(motion), values,
        PAYLOAD.inputs(arm.robot, values, arm.store.load))
    assert result.verdict is Verdict.PASS, result.reasons
    truth = default_cell.payload_truth(arm.cell.tool, arm.robot, arm.robot.tool_frame)
    found = [item for item in result.parameters
             if item.state is State.IDENTIFIED and item.name in ('mass', *COM)]
    assert len(found) >= 3
    for item in found:
        assert abs(item.value - truth[item.name]) < 3.9 * item.std, item.name
