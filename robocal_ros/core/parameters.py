# SPDX-License-Identifier: Apache-2.0
"""A procedure's parameters as one frozen dataclass: default, unit, range, description together.

The dataclass is the only declaration: ROS descriptors, range checks, the documentation's
table, the test of the files in ``config/`` and reading those files without ROS all come from
its fields.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from robocal_ros.errors import ConfigurationError

T = TypeVar('T')
_METADATA = 'parameter'
_TYPE_NAMES = {bool: 'true or false', int: 'an integer', float: 'a number with a point, like 3.0',
               str: 'a string'}


@dataclass(frozen=True)
class Declaration:
    """What is said about one parameter.

    Attributes:
        name: Name of the parameter.
        default: Default; its type is the parameter's.
        description: A sentence.
        unit: SI unit, empty for none.
        minimum: Smallest value, of every element for arrays; None for none.
        maximum: Largest value; None for none.
        choices: Allowed strings; empty for any.

    """

    name: str
    default: Any
    description: str
    unit: str = ''
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def range_text(self) -> str:
        """Return the range in words, empty for none."""
        if self.choices:
            return 'one of ' + ', '.join(f"'{choice}'" for choice in self.choices)
        if self.minimum is None and self.maximum is None:
            return ''
        low = '-inf' if self.minimum is None else f'{self.minimum:g}'
        high = 'inf' if self.maximum is None else f'{self.maximum:g}'
        return f'{low} … {high}'

    def complaint(self, value: Any) -> str:
        """Return what is wrong with a value, or an empty string."""
        unit = f' {self.unit}' if self.unit else ''
        for element in value if isinstance(value, list | tuple) else (value,):
            if self.choices and element not in self.choices:
                return f"Parameter '{self.name}' is '{element}'; expected {self.range_text()}."
            below = self.minimum is not None and not element >= self.minimum
            above = self.maximum is not None and not element <= self.maximum
            if below or above:
                return (f"Parameter '{self.name}' is {element:g}{unit}; expected "
                        f'{self.range_text()}{unit}.')
        return ''

    @property
    def element_type(self) -> type[Any]:
        """Type of the value, of each element for lists."""
        return type(self.default[0] if isinstance(self.default, list) else self.default)

    def type_text(self) -> str:
        """Return the type in words."""
        wanted = _TYPE_NAMES[self.element_type]
        if isinstance(self.default, list):
            return f'a list whose elements are each {wanted}'
        return wanted

    def fits(self, value: Any) -> bool:
        """Return whether a value has the parameter's type, as ROS sees types."""
        if isinstance(self.default, list):
            return isinstance(value, list) and all(
                type(element) is self.element_type for element in value)
        return type(value) is self.element_type


def parameter(
    default: Any,
    description: str,
    *,
    unit: str = '',
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """Declare a field of a parameter dataclass; see ``Declaration`` for the arguments."""
    metadata = {_METADATA: (description, unit, minimum, maximum, tuple(choices))}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def declarations(table: type[Any]) -> Iterator[Declaration]:
    """Yield the declarations of a parameter dataclass, in their order."""
    for item in dataclasses.fields(table):
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        yield Declaration(item.name, default, *item.metadata[_METADATA])


def checked(table: type[T], values: Mapping[str, Any]) -> T:
    """Make a table from values of the right types; parameters that are not named take defaults.

    Raises:
        ConfigurationError: With one sentence for each value that is out of range.

    """
    complaints = []
    given = {}
    for item in declarations(table):
        value = values.get(item.name, item.default)
        given[item.name] = list(value) if isinstance(item.default, list) else value
        complaint = item.complaint(given[item.name])
        if complaint:
            complaints.append(complaint)
    if complaints:
        raise ConfigurationError(' '.join(complaints))
    return table(**given)


def _yaml_value(value: Any) -> str:
    """Return a value as ROS's parser of parameter files takes it."""
    if isinstance(value, list):
        return f'[{", ".join(_yaml_value(element) for element in value)}]'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    text = repr(value)
    # YAML takes 5e-05 for a word, 5.0e-05 for a number.
    return text.replace('e', '.0e') if 'e' in text and '.' not in text else text


def _remarks(item: Declaration) -> str:
    """Return unit and range in words, empty for neither."""
    return ', '.join(text for text in (item.unit, item.range_text()) if text)


def yaml_text(table: type[Any], node_name: str) -> str:
    """Return a parameter file that holds every parameter of a table with its default.

    Args:
        table: The parameter dataclass.
        node_name: Name of the node; the file fits it in every namespace.

    """
    lines = ['# SPDX-License-Identifier: Apache-2.0', f'# Parameters of {node_name}, all at '
             'their defaults.', f'/**/{node_name}:', '  ros__parameters:']
    for item in declarations(table):
        remarks = _remarks(item)
        comment = item.description + (f' [{remarks}]' if remarks else '')
        lines += textwrap.wrap(comment, 99, initial_indent='    # ', subsequent_indent='    # ',
                               break_on_hyphens=False)
        lines.append(f'    {item.name}: {_yaml_value(item.default)}')
    return '\n'.join(lines) + '\n'


def markdown_table(items: Iterable[Declaration]) -> str:
    """Return declarations as a table for the documentation."""
    lines = ['| parameter | default | unit | range | meaning |', '|---|---|---|---|---|']
    for item in items:
        cells = (f'`{item.name}`', f'`{_yaml_value(item.default)}`', item.unit,
                 item.range_text(), item.description)
        lines.append(f'| {" | ".join(cell.replace("|", chr(92) + "|") for cell in cells)} |')
    return '\n'.join(lines) + '\n'


def named(values: Sequence[str]) -> tuple[str, ...]:
    """Drop empty strings: ROS parameter files cannot hold an empty list, [''] stands for it."""
    return tuple(value for value in values if value)
