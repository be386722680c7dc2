# SPDX-License-Identifier: Apache-2.0
"""Parameter tables as parameters of a ROS node: declaring, reading, accepting changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from robocal_ros.errors import ConfigurationError, nearest_name
from robocal_ros.parameters import (
    Declaration,
    ParameterTable,
    all_declarations,
    checked,
    declarations,
)

T = TypeVar('T', bound=ParameterTable)


def descriptor(item: Declaration) -> ParameterDescriptor:
    """Return the ROS descriptor of a parameter, with unit and range."""
    unit = f' [{item.unit}]' if item.unit else ''
    made = ParameterDescriptor(
        name=item.name, description=f'{item.description}{unit}',
        additional_constraints=item.range_text())
    if not item.range_text():
        return made
    if isinstance(item.default, float):
        made.floating_point_range = [FloatingPointRange(
            from_value=float(max(item.minimum, -1e308)), to_value=float(min(item.maximum, 1e308)))]
    elif isinstance(item.default, int) and not isinstance(item.default, bool):
        made.integer_range = [IntegerRange(
            from_value=int(max(item.minimum, -2**62)), to_value=int(min(item.maximum, 2**62)))]
    return made


def declare(node: Node, table: type[ParameterTable]) -> dict[str, str]:
    """Declare all parameters of a table on a node.

    A value of the wrong type or out of range in a parameter file is replaced by the default and
    reported, so that configure refuses it with a sentence instead of ending in a traceback.

    Returns:
        Problems of given values, one sentence by parameter name.

    """
    problems: dict[str, str] = {}
    for item in declarations(table):
        try:
            node.declare_parameter(item.name, item.default, descriptor(item))
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            wanted = (item.type_text() if isinstance(error, InvalidParameterTypeException)
                      else f'within {item.range_text()} {item.unit}')
            problems[item.name] = f"Parameter '{item.name}' must be {wanted}: {error}"
            node.declare_parameter(item.name, item.default, descriptor(item), ignore_override=True)
    return problems


def unknown(node: Node, overrides: Iterable[Parameter[Any]]) -> list[str]:
    """Return a sentence for each given parameter that no node of this package has.

    Those of other nodes are ignored, so that a section for all nodes may contain them.

    Args:
        node: The node, whose parameters are declared.
        overrides: Parameters that it was given besides those of files and command line.

    """
    with node.handle:
        given = set(node.handle.get_parameters(Parameter))
    # QoS overrides are declared with the publishers.
    names = [name for name in given | {item.name for item in overrides}
             if not node.has_parameter(name) and not name.startswith('qos_overrides.')]
    if not names:
        return []
    known = all_declarations()
    own = [name for name in known if node.has_parameter(name)]
    return [f"There is no parameter '{name}'{nearest_name(name, own)}."
            for name in sorted(set(names) - known.keys())]


def read(node: Node, table: type[T]) -> T:
    """Read all parameters of a table from a node.

    Raises:
        ConfigurationError: With one sentence for each value that is out of range.

    """
    return checked(table, {item.name: node.get_parameter(item.name).value
                           for item in declarations(table)})


def refusal(
    table: type[T], given: Mapping[str, Any], values: T | None, running: str,
    check: Callable[[T], None],
) -> str:
    """Return why parameters may not be set now, or an empty string.

    Args:
        table: The node's table; other parameters are ignored.
        given: Values to set, by name.
        values: Current values; None while the node is not configured.
        running: The running procedure, empty for none.
        check: Raises a ConfigurationError for values that don't fit the robot.

    """
    known = {item.name: item for item in declarations(table) if item.name in given}
    # Arrays in messages do not compare equal to lists.
    given = {name: list(given[name]) if isinstance(item.default, list) else given[name]
             for name, item in known.items()}
    problems = [item.problem(given[name]) for name, item in known.items()]
    if any(problems) or not known or values is None:
        return ' '.join(filter(None, problems))
    if running:
        return f'{running} is under way; call cancel first, or wait.'
    fixed = [name for name, item in known.items()
             if not item.dynamic and given[name] != getattr(values, name)]
    if fixed:
        return (f'{" and ".join(fixed)} cannot change while the node is configured. Deactivate '
                'and clean up the node, set it, and configure again.')
    try:
        check(checked(table, {**vars(values), **given}))
    except ConfigurationError as error:
        return str(error)
    return ''
