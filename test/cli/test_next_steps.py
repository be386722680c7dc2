# SPDX-License-Identifier: Apache-2.0
"""What a report tells to do with a result."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.arms import arm
from support.friction_results import arm_urdf, friction_result, identity, payload_result

from robocal_ros.cli.apply import driver_load
from robocal_ros.cli.arguments import build_parser
from robocal_ros.cli.drivers import payload_calls
from robocal_ros.cli.next_steps import REMEDIES, next_steps
from robocal_ros.payload.estimator import gains_summary
from robocal_ros.results.result import CalibrationResult, Check, Input
from robocal_ros.robot.model import RigidBodyInertia
from robocal_ros.robot.urdf import with_payload

FILE, URDF = Path('payload.yaml'), Path('cell/arm.urdf')
UR_JOINTS = ('shoulder_pan_joint', 'shoulder_lift_joint', 'elbow_joint', 'wrist_1_joint',
             'wrist_2_joint', 'wrist_3_joint')


def commands(result: CalibrationResult, **arguments) -> list[str]:
    steps = next_steps(result, arguments.pop('path', FILE), **arguments)
    return [command for step in steps for _, command in step.commands]


def failed(reason: str, result: CalibrationResult | None = None) -> CalibrationResult:
    return replace(result or payload_result(),
                   checks=(Check('x', False, 2.0, 1.0, '1', reason),))


def of(joints: tuple[str, ...], frame: str) -> CalibrationResult:
    return replace(payload_result(), frame=frame,
                   robot=replace(identity(), joint_names=joints))


def test_an_unknown_driver_gets_all_calls_and_the_frame_to_check() -> None:
    driver, _ = next_steps(payload_result(), FILE)
    assert [label for label, _ in driver.commands] == [
        'Universal Robots', 'Universal Robots, drivers from 2026 on', 'Franka', 'UFACTORY']
    assert "'flange' if that is the driver's flange" in driver.text
    assert 'needs the sum' in driver.text


def test_a_known_driver_gets_its_own_call() -> None:
    driver, _ = next_steps(of(UR_JOINTS, 'tool0'), FILE)
    assert {label.partition(',')[0] for label, _ in driver.commands} == {'Universal Robots'}
    kuka, _ = next_steps(of(tuple(f'lbr_A{i}' for i in range(1, 8)), 'lbr_link_ee'), FILE)
    assert not kuka.commands
    assert 'no service of its driver' in kuka.text


def test_values_in_another_frame_than_the_known_drivers_are_not_shown() -> None:
    driver, _ = next_steps(of(UR_JOINTS, 'gripper'), FILE)
    assert not driver.commands
    assert "It needs the values in 'tool0', and these are in 'gripper'" in driver.text


def test_a_known_driver_gets_the_values_in_its_own_frame() -> None:
    ur5 = arm('ur5')
    result = of(UR_JOINTS, 'wrist_3_link')
    driver, _ = next_steps(result, FILE, urdf=(URDF, ur5.urdf))
    total, _ = driver_load(result, ur5.urdf, 'tool0')
    assert "in frame 'tool0'. The URDF has no further mass" in driver.text
    assert driver.commands[0] == payload_calls(total)[0]
    assert not np.allclose(total.com, result.values(('com_x', 'com_y', 'com_z')))


def test_what_the_urdf_has_at_the_flange_is_part_of_the_drivers_load() -> None:
    gripper = with_payload(arm_urdf(), RigidBodyInertia(
        0.5, np.zeros(3), 1e-4 * np.eye(3)), 'flange').replace('robocal_payload', 'gripper')
    driver, _ = next_steps(payload_result(), FILE, urdf=(URDF, gripper))
    assert 'It includes 0.5 kg that the URDF has there.' in driver.text
    assert 'mass: 2.5000' in driver.commands[0][1]


def test_with_the_description_the_driver_gets_the_total_and_the_urdf_its_changes() -> None:
    urdf = arm_urdf()
    driver, apply = next_steps(payload_result(), FILE, urdf=(URDF, urdf))
    total, _ = driver_load(payload_result(), urdf, 'flange')
    assert payload_calls(total)[0] in driver.commands
    assert 'no further mass' in driver.text
    assert '+  <link name="robocal_payload">' in apply.changes
    # Only what changes: no line of the original is replaced by its own layout.
    assert not re.search(r'^-(?!--)', apply.changes, re.M)
    assert 'differs' not in apply.text
    other_arm = urdf.replace('<mass value="', '<mass value="1', 1)
    _, other = next_steps(payload_result(), FILE, urdf=(URDF, other_arm))
    assert 'This URDF differs' in other.text


@pytest.mark.parametrize('urdf', [None, (URDF, arm_urdf())])
def test_friction_goes_into_the_urdf(urdf) -> None:
    (step,) = next_steps(friction_result(), Path('my results/friction.yaml'), urdf=urdf)
    ((_, command),) = step.commands
    options = build_parser().parse_args(shlex.split(command)[1:])
    assert options.file == 'my results/friction.yaml'
    assert ('<dynamics' in step.changes) == (urdf is not None)


def test_values_that_do_not_fit_the_urdf_are_a_sentence() -> None:
    steps = next_steps(replace(payload_result(), frame='hand'), FILE, urdf=(URDF, arm_urdf()))
    assert [re.search("no link 'hand'|'hand' is not in", step.text) is not None
            for step in steps] == [True, True]
    assert not any(step.commands for step in steps)


def test_a_stale_result_is_not_applied() -> None:
    stale = replace(friction_result(), source='bag; rm -rf /', inputs=(Input('arm', 'x', 'a'),))
    assert commands(stale, stale=True) == [
        "robocal estimate friction 'bag; rm -rf /'", 'robocal run friction']


def test_a_stale_input_is_renewed_first(tmp_path: Path) -> None:
    (tmp_path / 'history').mkdir()
    result = replace(failed('The drive gains result is stale. Do it again.'), inputs=(
        Input('drive_gains', 'known_mass, bare_bag', 'a'), Input('arm', 'unloaded, live', 'b')))
    assert commands(result, path=tmp_path / 'payload.failed.yaml') == [
        f'robocal estimate drive_gains bare_bag --results-dir {tmp_path}',
        'robocal run drive_gains', 'robocal run payload']


def test_an_arm_of_before_the_drive_gains_is_identified_again() -> None:
    gains = replace(friction_result(), kind='drive_gains')
    assert commands(gains) == ['robocal run payload']
    first = replace(gains, inputs=(Input('arm', 'none', ''),))
    assert commands(first) == ['robocal run payload']
    after = replace(gains, inputs=(Input('arm', 'unloaded, bare_bag', 'a'),))
    assert commands(after) == [
        'robocal estimate arm bare_bag', 'robocal run arm', 'robocal run payload']
    assert 'no longer used: identify it again' in gains_summary(after)
    assert 'arm' not in gains_summary(first)


def test_what_prevents_a_pass_comes_with_its_command() -> None:
    assert commands(failed('2 N·m RMS of torque are not explained (limit 1 N·m).')) == [
        'robocal run friction', 'robocal run payload']
    (first, again) = next_steps(failed('It is odd.'), FILE)
    assert 'troubleshooting' in first.text
    assert again.commands == (('on the robot', 'robocal run payload'),)
    open_ = replace(payload_result(), checks=(Check(
        'x', True, 0.0, 1.0, '1', "Nothing shows that the arm's own model holds.",
        evaluated=False),))
    assert 'robocal calibrate --for gravity' in commands(open_)


@pytest.mark.parametrize(('pattern', 'command'), [(item[0], item[2]) for item in REMEDIES])
def test_remedies_are_those_of_the_documentation(pattern: str, command: str) -> None:
    root = Path(__file__).parents[2]
    page = (root / 'docs' / 'troubleshooting.md').read_text(encoding='utf-8')
    assert command in page
    sources = ''.join(
        re.sub(r"""['"]\s*\n\s*f?['"]""", '', path.read_text(encoding='utf-8'))
        for path in (root / 'robocal_ros').rglob('*.py') if path.name != 'next_steps.py')
    told = re.sub(r'\{[^{}]*\}', 'x', sources)
    for part in pattern.split('|'):
        assert re.search(part, told), part
