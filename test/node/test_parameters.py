# SPDX-License-Identifier: Apache-2.0
"""Parameters: one declaration gives descriptor, check, file and documentation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
from rcl_interfaces.srv import SetParametersAtomically
from rclpy.node import Node
from rclpy.parameter import Parameter
from support import parameter_files
from support.ros_rig import Log, NodeRig, arm_urdf, await_service, overrides

from robocal_ros.errors import ConfigurationError
from robocal_ros.node import parameters
from robocal_ros.node.calibration_node import FAILURE, SUCCESS
from robocal_ros.parameters import ParameterTable, named, parameter
from robocal_ros.payload.node import PayloadIdentification
from robocal_ros.robot.trajectories import quintic_path

pytestmark = pytest.mark.usefixtures('ros')

TABLES = parameter_files.tables()


@dataclass(frozen=True)
class Table(ParameterTable):
    """One parameter of every kind.

    Attributes:
        speed: A speed.
        count: A count.
        kind: A kind.
        flag: Whether it's so | or not.
        names: Names.
        box: A box.

    """

    speed: float = parameter(0.5, unit='rad/s', minimum=0.1, maximum=2.0)
    count: int = parameter(7, minimum=1)
    kind: str = parameter('round', choices=('round', 'square'))
    flag: bool = parameter(False)
    names: list[str] = parameter([''])
    box: list[float] = parameter([0.0, 1.0], unit='m', minimum=0.0)


@pytest.fixture
def node() -> Iterator[Node]:
    made = rclpy.create_node('holder')
    yield made
    made.destroy_node()


def holder(**values: Any) -> Node:
    return rclpy.create_node(
        'holder', parameter_overrides=[Parameter(name, value=v) for name, v in values.items()])


def test_descriptors_say_unit_and_range(node: Node) -> None:
    assert parameters.declare(node, Table) == {}
    speed = node.describe_parameter('speed')
    assert speed.description == 'A speed. [rad/s]'
    assert speed.floating_point_range[0].from_value == 0.1
    assert speed.floating_point_range[0].to_value == 2.0
    assert node.describe_parameter('count').integer_range[0].from_value == 1
    assert "'round', 'square'" in node.describe_parameter('kind').additional_constraints
    assert parameters.read(node, Table) == Table()


@pytest.mark.parametrize(('values', 'words'), [
    ({'speed': 1}, ("'speed'", 'a number with a point, like 3.0')),
    ({'speed': 'fast'}, ("'speed'", 'a number with a point')),
    ({'count': 2.0}, ("'count'", 'an integer')),
    ({'flag': 1}, ("'flag'", 'true or false')),
    ({'names': 'one'}, ("'names'", 'a list whose elements are each a string')),
    ({'box': [1, 2]}, ("'box'", 'a list whose elements are each a number with a point')),
    ({'speed': 2.5}, ("'speed'", '0.1 … 2', 'rad/s')),
])
def test_wrong_type_or_range_is_a_sentence_and_the_default_stands(
    values: dict[str, Any], words: tuple[str, ...]
) -> None:
    node = holder(**values)
    problems = parameters.declare(node, Table)
    assert list(problems) == list(values)
    for word in words:
        assert word in problems[next(iter(values))]
    assert parameters.read(node, Table) == Table()
    node.destroy_node()


@pytest.mark.parametrize(('values', 'words'), [
    ({'kind': 'oval'}, ("'kind' is 'oval'", "'round', 'square'")),
    ({'box': [0.0, -1.0]}, ("'box' is -1 m", '0 … inf')),
    ({'box': [0.0, math.nan]}, ("'box' is nan",)),
])
def test_what_descriptors_cannot_say_is_checked_on_reading(
    values: dict[str, Any], words: tuple[str, ...]
) -> None:
    node = holder(**values)
    assert parameters.declare(node, Table) == {}
    with pytest.raises(ConfigurationError) as refusal:
        parameters.read(node, Table)
    for word in words:
        assert word in str(refusal.value)
    node.destroy_node()


def test_empty_names_stand_for_none() -> None:
    assert named(['']) == ()
    assert named(['a', '', 'b']) == ('a', 'b')


@pytest.mark.parametrize(('line', 'words'), [
    ('known_mass: 2', "'known_mass' must be.* or restart the node with it corrected"),
    ('sweep_speed: 9.0', "'sweep_speed' must be.* or restart the node with it corrected"),
    ('method: 3', "'method' must be.* or restart the node with it corrected"),
    ('know_mass: 2.0', "no parameter 'know_mass'; 'known_mass' is the nearest name"),
    ('speedscale: 0.3', "'speed_scale' is the nearest name"),
    ('xyzzy: 1', r"no parameter 'xyzzy'\. Correct"),
    # One of another node, as in a section for all nodes.
    ('track: true', ''),
    ('qos_overrides./joint_states.subscription.reliability: reliable', ''),
])
def test_a_bad_value_or_name_in_a_file_is_refused_at_configure(
    tmp_path: Path, line: str, words: str
) -> None:
    file = tmp_path / 'file.yaml'
    file.write_text(f'/**:\n  ros__parameters:\n    {line}\n')
    node = PayloadIdentification(
        'payload_identification', parameter_overrides=overrides(
            robot_description=arm_urdf(), results_dir=str(tmp_path)),
        cli_args=['--ros-args', '--params-file', str(file)])
    log = Log(node)
    assert node.trigger_configure() == (FAILURE if words else SUCCESS)
    assert re.search(words, ''.join(log['error']))
    node.release()
    node.destroy_node()


def test_a_bad_value_is_forgotten_once_a_good_one_is_set(tmp_path: Path) -> None:
    node = PayloadIdentification('payload_identification', parameter_overrides=overrides(
        known_mass=2, sweep_speed=9.0, robot_description=arm_urdf(),
        results_dir=str(tmp_path)))
    said = Log(node)['error']
    assert node.trigger_configure() == FAILURE
    assert 'Set known_mass and sweep_speed (' in said[-1]
    node.set_parameters(overrides(known_mass=2.0))
    assert node.trigger_configure() == FAILURE
    assert 'known_mass' not in said[-1]
    node.set_parameters(overrides(sweep_speed=0.4))
    assert node.trigger_configure() == SUCCESS
    assert node.values.known_mass == 2.0
    node.release()
    node.destroy_node()


@pytest.mark.parametrize('path', sorted(parameter_files.documents()), ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding='utf-8') == parameter_files.documents()[path], (
        f'{path.name} does not match the tables; run cd test && python -m support.parameter_files')


@pytest.mark.parametrize('namespace', ['', '/cell/left'])
@pytest.mark.parametrize('name', TABLES)
def test_ros_takes_the_config_files_in_every_namespace(
    name: str, namespace: str, tmp_path: Path
) -> None:
    # One value other than its default shows that the file is read at all.
    text = (parameter_files.ROOT / 'config' / f'{name}.yaml').read_text(encoding='utf-8')
    assert 'description_timeout: 5.0' in text
    file = tmp_path / f'{name}.yaml'
    changed = text.replace('description_timeout: 5.0', 'description_timeout: 6.5')
    file.write_text(changed, encoding='utf-8')
    node = rclpy.create_node(
        name, namespace=namespace, cli_args=['--ros-args', '--params-file', str(file)])
    assert parameters.declare(node, TABLES[name]) == {}
    read = asdict(parameters.read(node, TABLES[name]))
    assert read == {**asdict(TABLES[name]()), 'description_timeout': 6.5}
    node.destroy_node()


class TestSet:
    """Parameters set through the node's own service, as ``ros2 param set`` does."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[NodeRig]:
        made = NodeRig(PayloadIdentification, tmp_path, name='payload_identification',
                       known_mass=2.0, connect_timeout=30.0)
        yield made
        made.end()

    def set(self, rig: NodeRig, **values: Any) -> str:
        """Set parameters at once; return why they are refused, empty if they are not."""
        client = rig.talker.create_client(
            SetParametersAtomically, f'{rig.node.get_name()}/set_parameters_atomically')
        await_service(rig.spinner.until, rig.talker, client)
        result = rig.spinner.wait(client.call_async(SetParametersAtomically.Request(parameters=[
            item.to_parameter_msg() for item in overrides(**values)]))).result
        assert result.successful == (not result.reason)
        return str(result.reason)

    def test_before_configure_any_valid_value(self, rig: NodeRig) -> None:
        assert not self.set(rig, method='excitation', tool_frame='flange', poses=20)
        assert rig.configure() == SUCCESS
        assert rig.node.robot.tool_frame == 'flange'

    @pytest.mark.parametrize('state', ['unconfigured', 'inactive', 'active'])
    @pytest.mark.parametrize(('values', 'words'), [
        ({'method': 'guess'}, "'method' is 'guess'; expected one of 'two_plane', "),
        ({'speed_scale': 7.0}, 'speed_scale out of range Min: 0.01, Max: 1.0, value: 7.0'),
        ({'gravity': [0.0, 0.0, -99.0]}, "'gravity' is -99 m/s²; expected -30 … 30 m/s²"),
        ({'gravity': [0.0, -9.81]}, "'gravity' has 2 values; expected three"),
    ])
    def test_invalid_values_are_refused_in_every_state(
        self, rig: NodeRig, state: str, values: dict[str, Any], words: str
    ) -> None:
        if state != 'unconfigured':
            assert rig.configure() == SUCCESS
        if state == 'active':
            assert rig.node.trigger_activate() == SUCCESS
        assert words in self.set(rig, **values)

    def test_what_may_change_takes_effect_in_the_next_motion(self, rig: NodeRig) -> None:
        rig.start()
        motion = quintic_path(np.array([np.zeros(6), np.full(6, 0.1)]), np.ones(6), np.ones(6))
        before = rig.node.arm.check_path(motion, None)
        assert not self.set(rig, speed_scale=0.5, max_acceleration=1.5)
        assert rig.node.values.speed_scale == 0.5
        assert rig.node.arm.check_path(motion, None).duration == 2.0 * before.duration
        assert rig.node.arm.limits.acceleration[0] == 1.5
        # A motion that was planned for the scale is not slowed again, unless the scale is lowered.
        limits = rig.node.arm.limits.scaled(0.5)
        slow = motion.slowed(0.5)
        assert rig.node.arm.check_path(slow, limits).duration == slow.duration
        assert not self.set(rig, speed_scale=0.25)
        assert rig.node.arm.check_path(slow, limits).duration == 2.0 * slow.duration

    @pytest.mark.parametrize('values', [
        {'method': 'static_poses'}, {'tool_frame': 'flange'}, {'autostart': True},
        {'speed_scale': 0.5, 'controller': 'other'},
    ])
    def test_what_is_read_at_configure_is_refused_with_what_to_do(
        self, rig: NodeRig, values: dict[str, Any]
    ) -> None:
        rig.start()
        reason = self.set(rig, **values)
        assert f'{list(values)[-1]} cannot change while the node is configured. Deac' in reason
        assert rig.node.get_parameter(list(values)[-1]).value != list(values.values())[-1]
        assert rig.node.values.speed_scale == 1.0

    def test_a_value_that_is_held_already_is_no_change(self, rig: NodeRig) -> None:
        rig.start()
        assert not self.set(rig, method='two_plane', gravity=[0.0, 0.0, -9.81], speed_scale=0.5)
        assert rig.node.values.speed_scale == 0.5

    def test_values_that_do_not_fit_each_other_are_refused(self, rig: NodeRig) -> None:
        rig.start()
        assert 'makes sweeps of 0.0025 rad/s' in self.set(rig, speed_scale=0.01)
        assert rig.node.values.speed_scale == 1.0

    def test_a_mass_that_the_arm_may_not_carry_is_refused_at_once(self, rig: NodeRig) -> None:
        rig.start()
        assert not self.set(rig, max_payload=5.0)
        assert 'max_payload' in self.set(rig, known_mass=6.0)
        assert not self.set(rig, known_mass=4.5)
        assert (rig.node.values.known_mass, rig.node.values.max_payload) == (4.5, 5.0)

    def test_nothing_changes_while_a_procedure_is_under_way(self, rig: NodeRig) -> None:
        rig.start()
        run = rig.begin('run')
        rig.spinner.until(lambda: rig.node.busy)
        assert self.set(rig, speed_scale=0.5) == ('run is under way; call cancel first, or wait.')
        assert rig.call('cancel').success
        rig.spinner.wait(run)
        assert not self.set(rig, speed_scale=0.5)

    def test_after_cleanup_all_may_be_set_again(self, rig: NodeRig) -> None:
        rig.start()
        assert rig.node.trigger_deactivate() == SUCCESS
        assert rig.node.trigger_cleanup() == SUCCESS
        assert not self.set(rig, method='static_poses')
        assert rig.configure() == SUCCESS
        assert rig.node.values.method == 'static_poses'
