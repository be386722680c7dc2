# SPDX-License-Identifier: Apache-2.0
"""Files generated from the parameter tables; run this module to write them."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from robocal_ros import registry
from robocal_ros.node import CalibrationNode
from robocal_ros.parameters import (
    ArmParameters,
    Declaration,
    ParameterTable,
    RobotParameters,
    declarations,
)
from support import ROOT

_HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from the parameter tables, see CONTRIBUTING.md. -->
# Parameters

All at their defaults, with a comment each, in `config/<node>.yaml`. A number with a point is
expected where the default has one (`3.0`, not `3`). A value of the wrong type, out of its range or
at odds with the others is refused with the reason: by `ros2 param set` at once, from a parameter
file when the node is configured.

Before the node is configured every parameter may be set. On a configured node, active or not,
only those marked "may change" are accepted, and the next procedure uses them; while a procedure
is under way none is. To change another, deactivate and clean up the node, set it, and configure
again.

## Shared by all nodes that move the arm

"""


def _yaml_value(value: Any) -> str:
    """Return a value in the syntax of ROS parameter files."""
    if isinstance(value, list):
        return f'[{", ".join(_yaml_value(element) for element in value)}]'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    text = repr(value)
    # YAML 1.1 reads 5e-05 as a string, 5.0e-05 as a number.
    return text.replace('e', '.0e') if 'e' in text and '.' not in text else text


def _remarks(item: Declaration) -> str:
    """Return unit, range and dynamic as text, empty for none."""
    texts = (item.unit, item.range_text(), 'may change while active' if item.dynamic else '')
    return ', '.join(text for text in texts if text)


def yaml_text(table: type[ParameterTable], node_name: str) -> str:
    """Return a parameter file with all defaults, for a node in any namespace."""
    lines = ['# SPDX-License-Identifier: Apache-2.0',
             f'# Parameters of {node_name}, all at their defaults. Generated from the table in',
             "# the node's parameters.py (see CONTRIBUTING.md): copy this file, don't edit it.",
             f'/**/{node_name}:', '  ros__parameters:']
    for item in declarations(table):
        remarks = _remarks(item)
        comment = item.description + (f' [{remarks}]' if remarks else '')
        lines += textwrap.wrap(comment, 99, initial_indent='    # ', subsequent_indent='    # ',
                               break_on_hyphens=False)
        lines.append(f'    {item.name}: {_yaml_value(item.default)}')
    return '\n'.join(lines) + '\n'


def markdown_table(items: Iterable[Declaration]) -> str:
    """Return declarations as a table for the documentation."""
    lines = ['| parameter | default | unit | range | while active | meaning |',
             '|---|---|---|---|---|---|']
    for item in items:
        cells = (f'`{item.name}`', f'`{_yaml_value(item.default)}`', item.unit,
                 item.range_text(), 'may change' if item.dynamic else '', item.description)
        lines.append(f'| {" | ".join(cell.replace("|", chr(92) + "|") for cell in cells)} |')
    return '\n'.join(lines) + '\n'


def node_classes() -> dict[str, type[CalibrationNode]]:
    """Return the lifecycle node classes by node name."""
    found = {}
    for name, module in registry.nodes().items():
        for item in vars(importlib.import_module(module)).values():
            # On Python 3.10, list[int] and the like are instances of type, too.
            if isinstance(item, type) and item.__module__ == module \
                    and issubclass(item, CalibrationNode):
                found[name] = item
    return found


def tables() -> dict[str, type[RobotParameters]]:
    return {name: node.parameter_table for name, node in node_classes().items()}


def documents() -> dict[Path, str]:
    """Return the content of every generated file, by path."""
    shared = {item.name for item in fields(ArmParameters)}
    page = _HEAD + markdown_table(declarations(ArmParameters))
    texts = {}
    for name, table in tables().items():
        texts[ROOT / 'config' / f'{name}.yaml'] = yaml_text(table, name)
        own = [item for item in declarations(table)
               if item.name not in shared or not issubclass(table, ArmParameters)]
        page += f'\n## {name}\n\n{markdown_table(own)}'
    texts[ROOT / 'docs' / 'parameters.md'] = page
    return texts


if __name__ == '__main__':
    for path, text in documents().items():
        path.write_text(text, encoding='utf-8')
