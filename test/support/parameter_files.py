# SPDX-License-Identifier: Apache-2.0
"""Files generated from the parameter tables; run this module to write them."""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path

from robocal_ros import parameters
from robocal_ros.node.calibration_node import CalibrationNode
from robocal_ros.node.executables import NODES
from robocal_ros.parameters import ArmParameters

ROOT = Path(__file__).resolve().parents[2]

_HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
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


def node_classes() -> dict[str, type[CalibrationNode]]:
    """Return the lifecycle node classes by node name."""
    found = {}
    for name, module in NODES.items():
        for item in vars(importlib.import_module(module)).values():
            if isinstance(item, type) and issubclass(item, CalibrationNode) \
                    and item.__module__ == module:
                found[name] = item
    return found


def tables() -> dict[str, type[parameters.RobotParameters]]:
    return {name: node.parameter_table for name, node in node_classes().items()}


def documents() -> dict[Path, str]:
    """Return the content of every generated file, by path."""
    shared = {item.name for item in fields(ArmParameters)}
    page = _HEAD + parameters.markdown_table(parameters.declarations(ArmParameters))
    texts = {}
    for name, table in tables().items():
        texts[ROOT / 'config' / f'{name}.yaml'] = parameters.yaml_text(table, name)
        own = [item for item in parameters.declarations(table)
               if item.name not in shared or not issubclass(table, ArmParameters)]
        page += f'\n## {name}\n\n{parameters.markdown_table(own)}'
    texts[ROOT / 'docs' / 'parameters.md'] = page
    return texts


if __name__ == '__main__':
    for path, text in documents().items():
        path.write_text(text, encoding='utf-8')
