# SPDX-License-Identifier: Apache-2.0
"""What ``replay.launch.py`` starts: the nodes on a bag's clock, and, once they listen, the bag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robocal_ros.errors import ConfigurationError
from robocal_ros.launching import robot_file
from robocal_ros.launching.arguments import ReplayArguments
from robocal_ros.launching.bringup import rviz
from robocal_ros.launching.processes import (
    ESTIMATING,
    Command,
    Process,
    capability_nodes,
    is_installed,
    require,
)
from robocal_ros.messages.bag import Bag

_DESCRIPTION = ('robot_description', 'std_msgs/msg/String')
_STATES = ('joint_states', 'sensor_msgs/msg/JointState')
# The player waits for nobody: until the nodes have found it, what it plays is lost. That takes
# a tenth of a second, or DDS's period of announcements [s].
_DISCOVERY = '4.0'


@dataclass(frozen=True)
class Replay:
    """What to start, in its order.

    Attributes:
        nodes: The capability nodes; the bag is played once all of them are active.
        beside: What is started along with them.
        player: Plays the bag.
        advice: What to do when the bag has ended.

    """

    nodes: list[Process]
    beside: list[Process]
    player: Command
    advice: str

    def ended(self, code: int) -> str:
        """Return what the user is told when the player has ended with an exit code."""
        return self.advice if code == 0 else (
            f'The bag was not played to its end: the player ended with exit code {code}. Correct '
            'what it says above.')

    @staticmethod
    def waits(node: Process) -> str:
        """Return what the user is told when a node could not be configured."""
        name = f'{node.namespace}/{node.name}'
        return (f'The bag waits for {name}, which is not configured. Correct what it says above, '
                f'with ros2 param set if that will do, and call: ros2 lifecycle set {name} '
                'configure')


def replay(
    arguments: ReplayArguments, installed: Callable[[str], bool] = is_installed
) -> Replay:
    """Return what to start.

    Args:
        arguments: What is asked for.
        installed: Tells whether a ROS package is there.

    Raises:
        ConfigurationError: If the bag does not hold what is needed, or a package is missing.
        FileFormatError: If the bag is broken.

    """
    require(('ros2bag', 'rosbag2_transport'), 'replay.launch.py', installed)
    namespace = arguments.robot.namespace
    with Bag(Path(arguments.bag)) as bag:
        _topic(bag, *_STATES, namespace)
        urdf = (robot_file.urdf_text(arguments.robot.file, arguments.robot.arguments)
                if arguments.robot.file else _description(bag, namespace))
    nodes = capability_nodes(
        arguments.nodes, namespace, arguments.params_file,
        # The launch file takes the nodes through their states: it must know when they listen.
        {'use_sim_time': True, 'autostart': False, 'robot_description': urdf})
    player = Command((
        'ros2', 'bag', 'play', arguments.bag, '--clock', '100', '--rate', f'{arguments.rate:g}',
        '--delay', _DISCOVERY,
        # The player's clock is the clock; that of the recorded simulator would be a second one.
        '--exclude-topics', '/clock', '--disable-keyboard-controls'))
    beside = [rviz(namespace, True, installed)] if arguments.rviz else []
    calls = '; '.join(f'ros2 service call {namespace}/{name}/estimate std_srvs/srv/Trigger'
                      for name in arguments.nodes if name in ESTIMATING)
    advice = f' The nodes hold what it told them: {calls}' if calls else ''
    return Replay(nodes, beside, player, f'The bag has ended.{advice}')


def _topic(bag: Bag, name: str, kind: str, namespace: str) -> str:
    """Return a topic of the bag in a namespace, or refuse with where else it is."""
    full = f'{namespace}/{name}'
    if bag.topics.get(full) == kind:
        return full
    others = [topic.removesuffix(f'/{name}') or '/' for topic, other in bag.topics.items()
              if other == kind and topic.endswith(f'/{name}')]
    if others:
        cure = f'It is in the namespace {", ".join(sorted(others))}: set the argument namespace.'
    elif name == _DESCRIPTION[0]:
        cure = 'Give the arm with robot:=, a URDF or xacro file.'
    else:
        cure = f'It holds {", ".join(sorted(bag.topics)) or "nothing"}. Record {name} too.'
    raise ConfigurationError(f"Bag '{bag.name}' has no {kind} on {full}. {cure}")


def _description(bag: Bag, namespace: str) -> str:
    topic = _topic(bag, *_DESCRIPTION, namespace)
    for message in bag.messages(topic):
        return str(message.data)
    raise ConfigurationError(
        f"Bag '{bag.name}' has no message on {topic}. Give the arm with robot:=, a URDF or xacro "
        'file.')
