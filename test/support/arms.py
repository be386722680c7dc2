# SPDX-License-Identifier: Apache-2.0
"""Robot arms and mounts of the tests."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import xacro

from robocal_ros.robot import Robot
from support import ROOT

PROJECT_ARM = ROOT / 'urdf' / 'robocal_arm.urdf.xacro'
_FOREIGN = {
    'panda': ('panda_description/urdf/panda.urdf', 'panda_hand'),
    'ur5': ('ur_description/urdf/ur5_robot.urdf', 'tool0'),
    'xarm7': ('xarm_description/urdf/xarm7.urdf', 'link_eef'),
    'kinova': ('kinova_description/robots/kinova.urdf', 'j2s6s200_end_effector'),
}
ARMS = ('robocal', *_FOREIGN)

MOUNTS = {
    'upright': (0.0, 0.0, -9.81),
    'ceiling': (0.0, 0.0, 9.81),
    'wall_30': (9.81 * 0.5, 0.0, -9.81 * np.sqrt(0.75)),
    'wall_90': (9.81, 0.0, 0.0),
}


@dataclass(frozen=True)
class Arm:
    """A robot description, its tool frame, and the folders of its meshes."""

    name: str
    urdf: str
    tool: str
    package_dirs: tuple[str, ...] = ()

    def robot(self, mount: str = 'upright') -> Robot:
        return Robot(self.urdf, tool_frame=self.tool, gravity=MOUNTS[mount])


def _share() -> Path | None:
    spec = importlib.util.find_spec('pinocchio')
    if spec is None or spec.origin is None:
        return None
    for folder in Path(spec.origin).parents:
        share = folder / 'share'
        if (share / 'example-robot-data').is_dir():
            return share
    return None


def foreign_urdf(name: str) -> str:
    """Return a URDF of example-robot-data by its file name; skip the test without it."""
    share = _share()
    if share is None:
        pytest.skip('The PyPI package example-robot-data is not installed.')
    (path,) = (share / 'example-robot-data' / 'robots').glob(f'*/urdf/{name}')
    return path.read_text(encoding='utf-8')


@cache
def arm(name: str) -> Arm:
    """Return an arm; skip the test if its description is not installed."""
    if name == 'robocal':
        return Arm(name, xacro.process_file(str(PROJECT_ARM)).toxml(), 'tool0')
    if name == 'column':
        # The default arm on a lifting column instead of its first joint.
        turning = '<joint name="joint_1" type="revolute">'
        sliding = turning.replace('revolute', 'prismatic')
        before, after = arm('robocal').urdf.split(turning)
        strong = after.replace('effort="300', 'effort="900', 1)
        return Arm(name, before + sliding + strong, 'tool0')
    share = _share()
    if share is None:
        pytest.skip(f"The description of '{name}' comes with the PyPI package "
                    'example-robot-data, which is not installed.')
    path, tool = _FOREIGN[name]
    urdf = (share / 'example-robot-data' / 'robots' / path).read_text()
    return Arm(name, urdf, tool, (str(share),))


def arm_urdf() -> str:
    return arm('robocal').urdf


def middle(robot: Robot) -> np.ndarray:
    """Return the posture in the middle of the joint limits, shape (n,) [rad]."""
    low, high = robot.sampling_limits()
    return 0.5 * (low + high)


def scara(second_axis: str = '0 0 1') -> str:
    """Return the URDF of an arm whose two joints turn about parallel horizontal axes."""
    link = ('<link name="{0}"><inertial><origin xyz="0.1 0 0"/><mass value="2"/>'
            '<inertia ixx="0.01" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial>'
            '</link>')
    joint = ('<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{2}"/>'
             '<origin xyz="{3} 0 0" rpy="{5} 0 0"/><axis xyz="{4}"/>'
             '<limit lower="-3" upper="3" effort="100" velocity="2"/></joint>')
    return ('<robot name="scara"><link name="base"/>' + link.format('one') + link.format('two')
            + '<link name="tip"/>'
            + joint.format('shoulder', 'base', 'one', 0, '0 0 1', np.pi / 2)
            + joint.format('elbow', 'one', 'two', 0.3, second_axis, 0)
            + '<joint name="end" type="fixed"><parent link="two"/><child link="tip"/>'
              '<origin xyz="0.3 0 0"/></joint></robot>')


BALL = '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
CHAIN = ('<robot name="chain"><link name="root">' + BALL + '</link><link name="a"/>'
         '<link name="b"/><link name="tip">' + BALL + '</link>'
         + ''.join(
             f'<joint name="j{i}" type="revolute"><parent link="{p}"/><child link="{c}"/>'
             f'<origin xyz="{x} 0 0"/><axis xyz="0 0 1"/>'
             '<limit lower="-3.1" upper="3.1" effort="1" velocity="1"/></joint>'
             for i, (p, c, x) in enumerate([('root', 'a', 0), ('a', 'b', 1), ('b', 'tip', 1)]))
         + '</robot>')
"""Three joints in a plane, with a ball at each end."""
