# SPDX-License-Identifier: Apache-2.0
"""The default arm and cell: URDF, hidden truth, noise."""

from __future__ import annotations

from functools import cache

import numpy as np
import xacro

from robocal_ros.resources import share_directory
from robocal_ros.robot import RigidBodyInertia, Robot
from robocal_sim.truth import Cell, HiddenTruth, ToolTruth, load_cell, load_truth

SIM_FOLDER = share_directory() / 'config' / 'sim'
TRUTH_FILE = SIM_FOLDER / 'hidden_truth.yaml'
CELL_FILE = SIM_FOLDER / 'reference_cell.yaml'
WRIST_SENSOR = 'ft_wrist'


@cache
def urdf(hardware: str = 'sim') -> str:
    """Return the URDF text, with the ``<ros2_control>`` block of a hardware."""
    path = share_directory() / 'urdf' / 'robocal_arm.urdf.xacro'
    text: str = xacro.process_file(str(path), mappings={'hardware': hardware}).toxml()
    return text


def hidden_truth() -> HiddenTruth:
    """Return the hidden truth of the default arm."""
    return load_truth(TRUTH_FILE)


def reference_cell() -> Cell:
    """Return the noise model of the reference cell."""
    return load_cell(CELL_FILE)


def rigid_body(tool: ToolTruth) -> RigidBodyInertia:
    """Return a tool of the hidden truth as a rigid body, in the frame of its parent."""
    xx, yy, zz, xy, xz, yz = tool.inertia
    return RigidBodyInertia(tool.mass, np.array(tool.centre_of_mass),
                            np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))


def payload_truth(tool: ToolTruth, robot: Robot, frame: str) -> dict[str, float]:
    """Return mass [kg] and centre of mass [m] of a tool, by parameter name.

    Args:
        tool: The tool, expressed in its parent frame.
        robot: The arm that carries it.
        frame: Frame to express the centre in; it must be fixed to the tool's parent.

    """
    posture = np.zeros(robot.n)
    transform_parent_to_frame = robot.transform_frame_to_root(posture, frame).actInv(
        robot.transform_frame_to_root(posture, tool.parent or robot.tool_frame))
    x, y, z = transform_parent_to_frame.act(np.array(tool.centre_of_mass))
    return {'mass': tool.mass, 'com_x': float(x), 'com_y': float(y), 'com_z': float(z)}
