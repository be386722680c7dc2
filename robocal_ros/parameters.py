# SPDX-License-Identifier: Apache-2.0
"""Declaration of node parameters as frozen dataclasses, and the parameters shared by all nodes.

ROS descriptors, range checks, the documentation's table and the files in ``config/`` are derived
from the fields (default, unit, range) and from the docstrings of the dataclasses, whose
``Attributes`` are the descriptions of the parameters.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.files import load

_METADATA = 'parameter'
_NUMBER = re.compile(r'[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+')
_TYPE_NAMES = {bool: 'true or false', int: 'an integer', float: 'a number with a point, like 3.0',
               str: 'a string'}


@dataclass(frozen=True)
class Declaration:
    """Declaration of one parameter.

    Attributes:
        name: Name.
        default: Default, which also sets the type.
        description: One sentence.
        unit: SI unit, empty for none.
        minimum: Smallest value of every element; -inf for none.
        maximum: Largest value of every element; inf for none.
        choices: Allowed strings; empty for any.
        dynamic: Whether it may change while the node is configured, for the next procedure.

    """

    name: str
    default: Any
    description: str
    unit: str = ''
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    dynamic: bool = False

    def range_text(self) -> str:
        """Return the range in words, empty for none."""
        if self.choices:
            return 'one of ' + ', '.join(f"'{choice}'" for choice in self.choices)
        if (self.minimum, self.maximum) == (-math.inf, math.inf):
            return ''
        return f'{self.minimum:g} … {self.maximum:g}'

    def problem(self, value: Any) -> str:
        """Return the violated range, choice or length as a sentence, empty for a valid value.

        A list with three elements by default, x, y, z, has three.
        """
        unit, expected = f' {self.unit}' if self.unit else '', self.range_text()
        if isinstance(self.default, list) and len(self.default) == len('xyz') != len(value):
            return f"Parameter '{self.name}' has {len(value)} values; expected three."
        for element in value if isinstance(value, list | tuple) else (value,):
            if self.choices:
                if element not in self.choices:
                    return f"Parameter '{self.name}' is '{element}'; expected {expected}."
            elif expected and not self.minimum <= element <= self.maximum:
                return f"Parameter '{self.name}' is {element:g}{unit}; expected {expected}{unit}."
        return ''

    @property
    def element_type(self) -> type[Any]:
        """Type of the value, of each element for lists."""
        return type(self.default[0] if isinstance(self.default, list) else self.default)

    def type_text(self) -> str:
        """Return the type in words."""
        each = 'a list whose elements are each ' if isinstance(self.default, list) else ''
        return f'{each}{_TYPE_NAMES[self.element_type]}'

    def fits(self, value: Any) -> bool:
        """Return whether a value has the parameter's ROS type."""
        elements = value if isinstance(self.default, list) else [value]
        return isinstance(elements, list) and all(
            type(element) is self.element_type for element in elements)


def parameter(
    default: Any, *, unit: str = '', minimum: float = -math.inf, maximum: float = math.inf,
    choices: Sequence[str] = (), dynamic: bool = False,
) -> Any:
    """Declare a field of a parameter dataclass; see ``Declaration`` for the arguments.

    Its description is the entry of the same name in the ``Attributes`` of the class.
    """
    metadata = {_METADATA: (unit, minimum, maximum, tuple(choices), dynamic)}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class ParameterTable:
    """Base of the parameter dataclasses."""

    def check(self) -> None:
        """Raise a ConfigurationError if values in range contradict each other."""


T = TypeVar('T', bound=ParameterTable)
V = TypeVar('V')


def declarations(table: type[ParameterTable]) -> Iterator[Declaration]:
    """Yield the declarations of a parameter dataclass, in their order."""
    descriptions, defaults = _descriptions(table), table()
    for item in dataclasses.fields(table):
        yield Declaration(item.name, getattr(defaults, item.name), descriptions[item.name],
                          *item.metadata[_METADATA])


@cache
def all_declarations() -> dict[str, Declaration]:
    """Return the declarations of the parameters of all nodes, by name."""
    return {item.name: item for module in registry.nodes().values()
            for _, table in inspect.getmembers(
                import_module(module.removesuffix('node') + 'parameters'), inspect.isclass)
            if issubclass(table, ParameterTable) for item in declarations(table)}


def _descriptions(table: type[ParameterTable]) -> dict[str, str]:
    """Return the entries of the ``Attributes`` of a table and its bases, by name."""
    texts: dict[str, str] = {}
    for base in reversed(table.__mro__):
        section = inspect.cleandoc(base.__doc__ or '').partition('\nAttributes:\n')[2]
        for entry in re.split(r'\n(?=    \S)', section.partition('\n\n')[0]):
            name, _, text = entry.partition(': ')
            texts[name.strip()] = ' '.join(text.split())
    return texts


def checked(table: type[T], values: Mapping[str, Any]) -> T:
    """Return a table from values of the right types, with defaults for missing ones.

    Raises:
        ConfigurationError: If values are out of range (one sentence each) or contradict each
            other.

    """
    items = list(declarations(table))
    given = {item.name: list(value) if isinstance(item.default, list) else value
             for item in items for value in [values.get(item.name, item.default)]}
    if problems := list(filter(None, (item.problem(given[item.name]) for item in items))):
        raise ConfigurationError(' '.join(problems))
    made = table(**given)
    made.check()
    return made


def given_value(name: str, text: str) -> Any:
    """Return the value of a parameter on a command line, as ROS reads it.

    Raises:
        ConfigurationError: If the text is not YAML.

    """
    try:
        return with_numbers(load(text, name))
    except FileFormatError as error:
        raise ConfigurationError(f"--param '{name}:={text}': expected a YAML value, such as 2.0 "
                                 'or [a, b].') from error


def with_numbers(value: Any) -> Any:
    """Return texts such as 5e-4, which are numbers for ROS and not for YAML 1.1, as numbers."""
    if isinstance(value, list):
        return [with_numbers(element) for element in value]
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def named(values: Sequence[str]) -> tuple[str, ...]:
    """Drop empty strings: [''] represents the empty list, which ROS parameter files lack."""
    return tuple(value for value in values if value)


def one_for_each(values: Sequence[V], count: int, name: str, each: str) -> list[V]:
    """Return one value for each of several things, from one for each or one for all.

    Args:
        values: The values.
        count: Number of the things.
        name: Name of the parameter.
        each: Reason of the number, as a clause.

    Raises:
        ConfigurationError: If there is any other number of values.

    """
    if count and len(values) not in (1, count):
        raise ConfigurationError(
            f"Parameter '{name}' has {len(values)} values; expected 1 or {count}, {each}.")
    return list(values) if len(values) == count else list(values) * count


@dataclass(frozen=True)
class RobotParameters(ParameterTable):
    """Parameters of every node.

    Attributes:
        autostart: Configure and activate without a lifecycle manager, as soon as there is a robot
            description.
        robot_description: URDF text; when empty it is taken from the topic robot_description.
        description_timeout: Timeout of the topic robot_description on configure; with autostart,
            interval at which the node reports that it waits.
        robot_name: Name of the robot in results; the name in the URDF when empty. Two arms of one
            type need different names.
        tool_frame: Frame of the flange or tool in which results are expressed; the arm is the
            chain from the root to it.
        joints: The arm's joints; [''] for all movable joints from the root to tool_frame.
        gravity: Gravity vector in the root frame of the URDF, for tilted bases.
        effort_source: Quantity in the effort field of joint_states: link-side torque in N·m; motor
            current in A, torque constants being known; or unknown: proportional to the torque, by
            factors that calibrate_gains of payload_identification finds.
        effort_contains: Content of the efforts: all torques of the drives, or external ones,
            without the dynamics and friction of the bare arm (tau_ext of Franka arms, external
            torque of KUKA arms).
        min_weight_share: Least share of the bare arm's weight, by the URDF, that efforts must hold
            while effort_contains is all; lower it if masses or efforts are known to be that far
            off.
        torque_constants: With effort_source current: torque constants, one per joint or one for
            all; with unknown, only their signs matter.
        gear_ratios: With effort_source current: gear ratios, one per joint or one for all.
        use_drive_gains: Divide efforts by the drive gains of calibrate_gains if there is a result.
        use_arm_model: Use links and rotors of the identified arm, if there is a result, instead of
            those of the URDF wherever joint torques are read or predicted.
        use_torque_zero: Subtract the zeros of joint torques that ~/zero of wrench_observer found,
            if there is a result; in the observer otherwise those of the identified arm.
        results_dir: Folder of the result files; ~/.ros/robocal/<robot> when empty.

    """

    autostart: bool = parameter(False)
    robot_description: str = parameter('')
    description_timeout: float = parameter(5.0, unit='s', minimum=0.1, maximum=600.0)
    robot_name: str = parameter('')
    tool_frame: str = parameter('tool0')
    joints: list[str] = parameter([''])
    gravity: list[float] = parameter([0.0, 0.0, -9.81], unit='m/s²', minimum=-30.0, maximum=30.0)
    effort_source: str = parameter('torque', choices=('torque', 'current', 'unknown'))
    effort_contains: str = parameter('all', choices=('all', 'external'))
    min_weight_share: float = parameter(0.5, minimum=0.0, maximum=1.0)
    torque_constants: list[float] = parameter([1.0], unit='N·m/A', minimum=-1e4, maximum=1e4)
    gear_ratios: list[float] = parameter([1.0], minimum=-1e5, maximum=1e5)
    use_drive_gains: bool = parameter(True)
    use_arm_model: bool = parameter(True)
    use_torque_zero: bool = parameter(True)
    results_dir: str = parameter('')


@dataclass(frozen=True)
class ArmParameters(RobotParameters):
    """Parameters of every node that moves the arm.

    Attributes:
        controller: Name of the joint trajectory controller.
        connect_timeout: Timeout of joint states and controller when run is called.
        speed_scale: Scale factor of the speed of every motion; exciting motions and friction runs
            are planned for it.
        max_velocity: Largest joint speed of moves between postures, in addition to the URDF
            limits.
        max_acceleration: Largest joint acceleration.
        path_tolerance: Largest deviation from the path before the controller aborts a motion; the
            node cancels it at 1.5 times this value.
        goal_tolerance: Largest deviation from the goal at the end.
        goal_time: Time after the end of a motion within which the goal must be reached.
        state_timeout: Longest gap in joint states before a motion is cancelled.
        tool_box: Size of a box around the mounted tool, x, y, z of tool_frame, for the collision
            check; zeros for none.
        floor: Height in the root frame, against gravity, below which the arm must not reach; -1000
            for none.
        keep_out_boxes: Boxes in the root frame that the arm must not touch: centre x, y, z and
            size along x, y, z of the first, of the second, …; zeros for none.
        clearance: Distance that the arm keeps from itself, tool_box, floor, keep_out_boxes and
            what the robot description fixes to the base; -1 for what 1.5 times path_tolerance of
            each joint sweeps, and, where the arm rests nearer, half of that distance; 0 excludes
            contact only.
        max_effort_share: Share of the effort limit of the URDF at which a measured effort ends a
            motion, one per joint or one for all; 0 for no check: limits in URDFs are often
            placeholders.
        guard_topic: Topic of a F/T sensor whose readings end a motion at max_force or max_torque;
            empty for none.
        max_force: Force of guard_topic, weight and bias included, at which a motion ends; 0 for no
            check.
        max_torque: Torque of guard_topic, weight and bias included, at which a motion ends; 0 for
            no check.
        stop_statuses: Beginnings of the names of statuses on /diagnostics that end a motion while
            their level is ERROR or STALE, such as the driver's protective stop; [''] for none.
        drive_conditions: Conditions on the driver's own topics for any motion: topic, field, == or
            !=, and a value or a list of them, such as
            'io_and_status_controller/robot_program_running data == true' or 'robot_mode mode ==
            [1, 2]'; [''] for none.
        mesh_folders: Further folders to search for package:// meshes of the collision geometry, in
            addition to the ROS installation.

    """

    controller: str = parameter('joint_trajectory_controller')
    connect_timeout: float = parameter(5.0, unit='s', minimum=0.1, maximum=600.0, dynamic=True)
    speed_scale: float = parameter(1.0, minimum=0.01, maximum=1.0, dynamic=True)
    max_velocity: float = parameter(1.0, unit='rad/s', minimum=0.01, maximum=10.0, dynamic=True)
    max_acceleration: float = parameter(
        2.0, unit='rad/s²', minimum=0.01, maximum=100.0, dynamic=True)
    path_tolerance: float = parameter(0.1, unit='rad', minimum=1e-4, maximum=1.0, dynamic=True)
    goal_tolerance: float = parameter(0.01, unit='rad', minimum=1e-5, maximum=0.5, dynamic=True)
    goal_time: float = parameter(2.0, unit='s', minimum=0.1, maximum=60.0, dynamic=True)
    state_timeout: float = parameter(0.5, unit='s', minimum=0.05, maximum=10.0, dynamic=True)
    tool_box: list[float] = parameter([0.0, 0.0, 0.0], unit='m', minimum=0.0, maximum=5.0)
    floor: float = parameter(-1000.0, unit='m', minimum=-1000.0, maximum=1000.0)
    keep_out_boxes: list[float] = parameter(
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0], unit='m', minimum=-100.0, maximum=100.0)
    clearance: float = parameter(-1.0, unit='m', minimum=-1.0, maximum=1.0, dynamic=True)
    max_effort_share: list[float] = parameter([0.0], minimum=0.0, maximum=10.0)
    guard_topic: str = parameter('')
    max_force: float = parameter(0.0, unit='N', minimum=0.0, maximum=1e6)
    max_torque: float = parameter(0.0, unit='N·m', minimum=0.0, maximum=1e6)
    stop_statuses: list[str] = parameter([''])
    drive_conditions: list[str] = parameter([''])
    mesh_folders: list[str] = parameter([''])


@dataclass(frozen=True)
class ResumableParameters(ArmParameters):
    """Parameters of nodes whose procedures go on after a restart.

    Attributes:
        resume_within: Largest age of what an unfinished run has measured, as before a restart of
            the node, for the next one to go on from it: temperature and tool may change. 0 begins
            anew always.

    """

    resume_within: float = parameter(600.0, unit='s', minimum=0.0, maximum=86400.0, dynamic=True)
