# SPDX-License-Identifier: Apache-2.0
"""Launch arguments: one table that the launch files declare, and their checked values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rclpy.context import Context

from robocal_ros.errors import ConfigurationError
from robocal_ros.launching.processes import NODES
from robocal_ros.resources import share_directory

HARDWARE = ('sim', 'mock', 'gazebo', 'real')
_TRUTHS = {'true': True, 'false': False}
_NAMESPACE = re.compile(r'(/[A-Za-z][A-Za-z0-9_]*)*')


@dataclass(frozen=True)
class Argument:
    """One launch argument.

    Attributes:
        name: Its name.
        default: Its default.
        description: A sentence or two.
        choices: Allowed values, empty for any.

    """

    name: str
    default: str
    description: str
    choices: tuple[str, ...] = ()


_NODES = Argument(
    'nodes', 'all', f'Nodes to start, with commas between: {", ".join(NODES)}; or all, or none.')
_NAMESPACE_ARGUMENT = Argument(
    'namespace', '', 'Namespace of the arm: of all nodes, topics and services.')
_PARAMS_FILE = Argument(
    'params_file', '', 'Parameter file of the nodes; empty for the defaults, which '
    'config/<node>.yaml holds with comments. Keys like /**/payload_identification fit every '
    'namespace.')
_RVIZ = Argument('rviz', 'false', 'true or false: whether to start RViz on config/robocal.rviz.')

BRINGUP = (
    Argument('hardware', 'sim', 'sim: the simulated arm of this package. mock: ros2_control on '
             'mock_components. gazebo: ros2_control in Gazebo. real: the controllers of a driver '
             'that runs already.', HARDWARE),
    _NODES,
    Argument('robot', '', "URDF or xacro file of the arm; empty for the package's own arm, and "
             'with real for the topic robot_description.'),
    Argument('robot_args', '', 'Arguments of the xacro file, such as "ur_type:=ur10e name:=ur". '
             'hardware is passed on by itself.'),
    _NAMESPACE_ARGUMENT,
    _PARAMS_FILE,
    Argument('controllers_file', '', 'ros2_control parameter file for mock and gazebo; empty for '
             "config/controllers.yaml, which fits the package's own arm."),
    Argument('use_sim_time', 'auto', 'true or false: whether to follow /clock; auto: with sim and '
             'gazebo.'),
    Argument('autostart', 'true', 'true or false: whether the nodes configure and activate '
             'themselves.'),
    _RVIZ,
    Argument('real_time_factor', '1.0', 'Speed of the simulated arm; 0.0 as fast as the nodes '
             'keep up.'),
    Argument('truth_file', '', "What the simulated arm hides; empty: the package's own arm has "
             'config/sim/hidden_truth.yaml, others are ideal, as is every arm with none.'),
    Argument('cell_file', 'reference', 'Noise of the simulated sensors; reference: '
             'config/sim/reference_cell.yaml. Empty for none.'),
)
"""Arguments of ``bringup.launch.py``."""

REPLAY = (
    Argument('bag', '', 'The bag to play: a rosbag2 folder or file. Must be given.'),
    _NODES,
    Argument('robot', '', 'URDF or xacro file of the arm; empty for the robot_description in '
             'the bag.'),
    Argument('robot_args', '', 'Arguments of the xacro file.'),
    _NAMESPACE_ARGUMENT,
    _PARAMS_FILE,
    Argument('rate', '1.0', 'Speed of playing; 1.0 is that of the recording.'),
    _RVIZ,
)
"""Arguments of ``replay.launch.py``."""


def _truth(name: str, text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ConfigurationError(f"Launch argument {name} is '{text}'; expected true or false.")
    return _TRUTHS[text.lower()]


def _number(name: str, text: str, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float('nan')
    if not least <= value < float('inf'):
        raise ConfigurationError(
            f"Launch argument {name} is '{text}'; expected a number of at least {least:g}.")
    return value


def namespace_of(text: str) -> str:
    """Return a namespace as ROS has it: absolute, empty for the root.

    Raises:
        ConfigurationError: If it is none.

    """
    name = '/' + text.strip('/') if text.strip('/') else ''
    if not _NAMESPACE.fullmatch(name):
        raise ConfigurationError(
            f"Launch argument namespace is '{text}'; expected letters, digits and underscores, "
            'beginning with a letter, such as arm_1 or cell/left.')
    return name


def nodes_of(text: str) -> tuple[str, ...]:
    """Return the nodes that an argument names.

    Raises:
        ConfigurationError: If it names what there is not.

    """
    names = tuple(dict.fromkeys(text.replace(',', ' ').split()))
    if names == ('all',):
        return NODES
    if names == ('none',):
        return ()
    unknown = [name for name in names if name not in NODES]
    if unknown or not names:
        raise ConfigurationError(
            f"Launch argument nodes is '{text}'; expected some of {', '.join(NODES)} with commas "
            'between, or all, or none.')
    return names


def file_of(name: str, text: str) -> str:
    """Return the absolute path of a file that an argument names, empty if it names none.

    Raises:
        ConfigurationError: If there is no such file.

    """
    if not text:
        return ''
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise ConfigurationError(f'Launch argument {name}: there is no file {path}.')
    return str(path)


def params_file_of(text: str) -> str:
    """Return the absolute path of a parameter file, empty for none.

    Raises:
        ConfigurationError: If there is no such file, or no node could read it.

    """
    file = file_of('params_file', text)
    if file:
        context = Context()
        try:
            # Which files it takes, only ROS knows.
            context.init(args=['--ros-args', '--params-file', file], initialize_logging=False)
        except RuntimeError as error:
            reason = re.sub(r', at \S+:\d+', '', str(error).rpartition('Error: ')[2])
            raise ConfigurationError(
                f'Launch argument params_file: {file} is no parameter file: '
                f"{' '.join(reason.split())}. Expected '<node>:' and 'ros__parameters:' below it, "
                'as in config/<node>.yaml.') from error
        context.shutdown()
    return file


def pairs_of(text: str) -> dict[str, str]:
    """Return the xacro arguments in a text of the form ``a:=1 b:="2 3"``.

    Raises:
        ConfigurationError: If it has another form.

    """
    try:
        words = shlex.split(text)
    except ValueError:
        words = ['an open quote']
    pairs = dict(word.split(':=', 1) for word in words if ':=' in word)
    if len(pairs) != len(words):
        raise ConfigurationError(
            f"Launch argument robot_args is '{text}'; expected name:=value pairs with spaces "
            'between, values with spaces in quotes, each name once.')
    return pairs


@dataclass(frozen=True)
class RobotChoice:
    """The arm that is asked for.

    Attributes:
        file: URDF or xacro file, empty for the default.
        arguments: Arguments of the xacro file.
        namespace: Absolute namespace, empty for the root.

    """

    file: str
    arguments: Mapping[str, str]
    namespace: str

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> RobotChoice:
        """Return what the launch arguments say.

        Raises:
            ConfigurationError: If a value does not fit.

        """
        return cls(file_of('robot', texts['robot']), pairs_of(texts['robot_args']),
                   namespace_of(texts['namespace']))


@dataclass(frozen=True)
class BringupArguments:
    """Checked arguments of ``bringup.launch.py``; files are absolute paths, empty for none."""

    hardware: str
    robot: RobotChoice
    nodes: tuple[str, ...]
    params_file: str
    controllers_file: str
    use_sim_time: bool
    autostart: bool
    rviz: bool
    real_time_factor: float
    truth_file: str
    cell_file: str

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> BringupArguments:
        """Return what the launch arguments say.

        Raises:
            ConfigurationError: If a value does not fit.

        """
        hardware = texts['hardware']
        if hardware not in HARDWARE:
            raise ConfigurationError(
                f"Launch argument hardware is '{hardware}'; expected one of "
                f'{", ".join(HARDWARE)}.')
        config = share_directory() / 'config'
        simulated = hardware in ('sim', 'gazebo')
        time, truth, cell = (texts[name] for name in ('use_sim_time', 'truth_file', 'cell_file'))
        return cls(
            hardware=hardware,
            robot=RobotChoice.of(texts),
            nodes=nodes_of(texts['nodes']),
            params_file=params_file_of(texts['params_file']),
            controllers_file=file_of('controllers_file', texts['controllers_file']
                                     or str(config / 'controllers.yaml')),
            use_sim_time=simulated if time == 'auto' else _truth('use_sim_time', time),
            autostart=_truth('autostart', texts['autostart']),
            rviz=_truth('rviz', texts['rviz']),
            real_time_factor=_number('real_time_factor', texts['real_time_factor'], 0.0),
            truth_file=truth if truth == 'none' else file_of('truth_file', truth),
            cell_file=(str(config / 'sim' / 'reference_cell.yaml') if cell == 'reference'
                       else file_of('cell_file', cell)),
        )


@dataclass(frozen=True)
class ReplayArguments:
    """Checked arguments of ``replay.launch.py``."""

    bag: str
    robot: RobotChoice
    nodes: tuple[str, ...]
    params_file: str
    rate: float
    rviz: bool

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> ReplayArguments:
        """Return what the launch arguments say.

        Raises:
            ConfigurationError: If a value does not fit.

        """
        path = Path(texts['bag']).expanduser().absolute()
        if not texts['bag'] or not path.exists():
            raise ConfigurationError(
                'Launch argument bag: '
                + (f'there is no {path}.' if texts['bag'] else
                   'it must name a rosbag2 folder or file, as in bag:=my_bag.'))
        return cls(
            bag=str(path),
            robot=RobotChoice.of(texts),
            nodes=nodes_of(texts['nodes']),
            params_file=params_file_of(texts['params_file']),
            rate=_number('rate', texts['rate'], 0.01),
            rviz=_truth('rviz', texts['rviz']),
        )
