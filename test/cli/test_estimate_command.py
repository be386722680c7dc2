# SPDX-License-Identifier: Apache-2.0
"""`robocal estimate`: what it takes, what it refuses, and real bags."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from support import bag_examples
from support.fixtures import Call
from support.fleet_bags import URDF, write_runs

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError
from robocal_ros.estimators import estimator
from robocal_ros.messages import BagWriter
from robocal_ros.offline import read_parameters
from robocal_ros.payload.parameters import PayloadParameters

DATA = Path(__file__).parents[3] / 'shared' / 'data'
UR10 = DATA / 'ur10_bags' / 'ur10_exciting_trajectory.db3'
PANDA = DATA / 'panda_bag' / 'panda_exciting_trajectory.db3'
ARM = ('-p', 'tool_frame:=lower')


@pytest.fixture(autouse=True)
def _there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    """The elbow to and fro, at a few speeds, with Coulomb friction and gravity."""
    return write_runs(tmp_path / 'sweeps', begin=1.0, marked='', described=False)


@pytest.fixture
def refused(call: Call) -> Call:
    """Estimates friction, which must be refused; returns the reason."""
    return partial(call, 'estimate', 'friction', code=2)


def test_an_unknown_capability_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'level' is not a capa.*payload, drive_gains"):
        estimator('level')


def test_a_result_is_shown_and_written(sweeps: Path, call: Call, tmp_path: Path) -> None:
    told = call('estimate', 'friction', sweeps, '--urdf', URDF, *ARM, '-p',
                'model:=coulomb_viscous', '--results-dir', tmp_path / 'none')
    assert 'elbow.coulomb_forward' in told
    assert f'Result: {sweeps.name}.friction.yaml' in told
    assert (tmp_path / 'sweeps.friction.yaml').exists()


def test_ros_is_not_needed() -> None:
    program = ('import sys; from robocal_ros.cli import main; '
               'from robocal_ros.cli import estimate; '
               'from robocal_ros import estimators, offline, registry; '
               '[estimators.estimator(name) for name in registry.estimators()]; '
               "sys.exit('rclpy' in sys.modules or 'sensor_msgs' in sys.modules)")
    assert subprocess.run([sys.executable, '-c', program], check=False).returncode == 0


def test_a_bad_result_does_not_replace_a_good_one(
    sweeps: Path, call: Call, tmp_path: Path
) -> None:
    output = tmp_path / 'mine.yaml'
    output.write_text('good')
    call('estimate', 'friction', sweeps, '--urdf', URDF, *ARM, '-o', output, '-p',
         'fit_threshold:=0.011', '--results-dir', 'none', code=1)
    assert output.read_text() == 'good'
    assert (tmp_path / 'mine.failed.yaml').exists()


ROBOT = ('--urdf', str(URDF), *ARM)


@pytest.mark.parametrize(('arguments', 'words'), [
    ([*ROBOT, '--to', '0.3'],
     r'No constant-speed run.*it fails: No joint moved by more than 0\.2 rad'),
    ([*ROBOT, '--from', '5', '--to', '2'], '--from 5.0 and --to 2.0 select nothing'),
    ([*ROBOT, '--from', 'nan'], 'select nothing'),
    ([*ROBOT, '--from', '1e151'], 'No constant-speed run|no usable joint state'),
    (['--urdf', 'nowhere.urdf'], 'The URDF nowhere.urdf cannot be read'),
    ([], 'holds no robot description; give the URDF with --urdf'),
    (['--urdf', str(URDF)], "Frame 'tool0' is not in the robot description"),
    ([*ROBOT, '-p', 'max_rounds:=[1'], r"--param 'max_rounds:=\[1': expected a"),
    ([*ROBOT, '-p', 'speed_scal:=1.0'],
     "'speed_scal' is not a parameter of friction_identification; 'speed_scale' is the nearest"),
    ([*ROBOT, '-p', 'fit_threshold:=5'], 'a number with a point'),
    ([*ROBOT, '-p', 'fit_threshold:=500.0'], 'expected 0.01 … 100'),
    ([*ROBOT, '--params-file', 'no.yaml'],
     'The parameter file no.yaml cannot be read'),
    ([*ROBOT, '--namespace', '/left'], "no topic '/left/joint_states'"),
    ([*ROBOT, '--remap', 'joint_states:=/other'], "no topic '/other'"),
])
def test_what_does_not_fit_is_one_sentence(
    sweeps: Path, refused: Call, arguments: list[str], words: str
) -> None:
    told = refused(sweeps, '--results-dir', 'none', *arguments)
    assert re.search(words, told), told
    assert 'Traceback' not in told


def test_the_method_of_a_marked_run_is_used(call: Call, tmp_path: Path) -> None:
    topic = '/payload_identification/marks'
    with BagWriter(tmp_path / 'marked') as bag:
        bag.add('/joint_states', bag_examples.JOINT_STATE)
        bag.add(topic, bag_examples.MARKS)
        bag.write('/joint_states', 0, bag_examples.joint_state(1.0, ['elbow'], [0.0]))
        bag.write(topic, 1, bag_examples.marks(
            'end', 'run', joint_states='1.0', method='static_poses'))
    # Two planes need no F/T sensor.
    assert 'WrenchStamped' in call('estimate', 'payload', tmp_path / 'marked', *ROBOT, '-p',
                                   'sensor_frame:=lower', code=2)


def test_parameter_files_are_those_of_the_node(
    sweeps: Path, refused: Call, tmp_path: Path
) -> None:
    file = tmp_path / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n    tool_frame: lower\n'
                    '/**/friction_identification:\n  ros__parameters:\n'
                    '    model: coulomb_viscous\n    measure_joints: [shoulder]\n')
    assert 'No constant-speed run of joint shoulder' in refused(
        sweeps, '--urdf', URDF, '--params-file', file, '--results-dir', 'none')


class TestRealBags:
    """Recordings of a UR10 and a Franka arm: a result, or a reason."""

    @staticmethod
    def urdf(name: str) -> str:
        found = list(Path(sys.prefix).rglob(f'example-robot-data/robots/**/{name}'))
        if not found or not UR10.exists():
            pytest.skip(f'{name} of example-robot-data or the recordings in {DATA} are not here')
        return str(found[0])

    def test_friction_without_runs_is_that_of_the_motion(self, call: Call) -> None:
        arguments = ('estimate', 'friction', UR10, '--urdf', self.urdf('ur10_robot.urdf'),
                     '--results-dir', 'none', '-o', '/dev/null')
        assert 'No constant-speed run' in call(*arguments, '-p', 'method:=runs', code=2)
        told = call(*arguments, code=0)
        assert 'Friction, motion of ur10: pass' in told
        assert 'wrist_2_joint.coulomb_forward' in told

    def test_another_robot_is_told_by_its_joints(self, refused: Call) -> None:
        told = refused(PANDA, '--urdf', self.urdf('ur10_robot.urdf'), '--results-dir', 'none')
        assert "'shoulder_pan_joint' is missing" in told
        assert 'fer_joint1' in told

    def test_without_metadata_and_type_hash_the_samples_are_read(self, call: Call) -> None:
        told = call('estimate', 'payload', UR10, '--urdf', self.urdf('ur10_robot.urdf'),
                    '--results-dir', 'none', '-p', 'known_mass:=1.0', code=2)
        assert 'did not turn at constant speed' in told


CONFIG = Path(__file__).parents[2] / 'config'
NODE = 'payload_identification'


def read(tmp_path: Path, *texts: str, namespace: str = '', **overrides: str) -> PayloadParameters:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f'{number}.yaml')
        files[-1].write_text(text)
    return read_parameters(PayloadParameters, NODE, files, overrides, namespace)


@pytest.mark.parametrize('name', registry.estimators())
def test_the_files_of_the_package_are_the_defaults(name: str) -> None:
    item = estimator(name)
    assert item.name == name
    assert read_parameters(item.table, item.node, [CONFIG / f'{item.node}.yaml']) == item.table()


@pytest.mark.parametrize('key', [NODE, f'/{NODE}', '/**', '/*', f'/**/{NODE}', '"**"'])
def test_names_that_fit_the_node(tmp_path: Path, key: str) -> None:
    assert read(tmp_path, f'{key}:\n  ros__parameters: {{poses: 9}}').poses == 9


@pytest.mark.parametrize(('key', 'namespace', 'fits'), [
    (f'/left/{NODE}', '/left', True), (f'/left/{NODE}', '/right', False),
    (f'/left/{NODE}', '', False), (NODE, '/left', False), (f'/**/{NODE}', '/a/b', True),
    (f'/*/{NODE}', '/a/b', False), ('/**', '/a/b', True), ('other', '', False)])
def test_namespaces(tmp_path: Path, key: str, namespace: str, fits: bool) -> None:
    values = read(tmp_path, f'{key}:\n  ros__parameters: {{poses: 9}}', namespace=namespace)
    assert (values.poses == 9) is fits


def test_nested_namespaces(tmp_path: Path) -> None:
    text = f'left:\n  {NODE}:\n    ros__parameters: {{poses: 9}}'
    assert read(tmp_path, text, namespace='left').poses == 9


def test_later_files_and_the_command_line_win(tmp_path: Path) -> None:
    texts = [f'{NODE}:\n  ros__parameters: {{poses: {n}, dwell: {n}.0}}' for n in (7, 8)]
    values = read(tmp_path, *texts, dwell='2.5', method='static_poses', joints='[a, b]')
    assert (values.poses, values.dwell) == (8, 2.5)
    assert (values.method, values.joints) == ('static_poses', ['a', 'b'])


def test_texts_stay_texts(tmp_path: Path) -> None:
    assert read(tmp_path, robot_name='12').robot_name == '12'


@pytest.mark.parametrize(('text', 'words'), [
    ('poses: 9.0', "'poses' is 9.0; it must be an integer"),
    ('dwell: 2', "'dwell' is 2; it must be a number with a point"),
    ('gravity: [0, 0, -9.81]', 'a list whose elements are each a number with a point'),
    ('method: [a]', 'it must be a string'), ('use_friction: 1', 'true or false'),
    ('poses: 3', 'expected 6 … 100'), ('method: weigh', "one of 'two_plane'"),
    ('known_mass: .nan', "'known_mass' is nan"), ('known_mass: 1.0e151', '1e+151'),
])
def test_values_that_do_not_fit(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f'{NODE}:\n  ros__parameters:\n    {text}')
    assert words in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='cannot be read'):
        read_parameters(PayloadParameters, NODE, [tmp_path / 'none.yaml'])


def test_unknown_names_of_the_command_line_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'mass' is not a parameter .*of .*known_mass"):
        read(tmp_path, mass='2.0')
