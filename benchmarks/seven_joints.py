# SPDX-License-Identifier: Apache-2.0
"""A fictitious arm with seven joints and four F/T sensors, for measuring speed."""

from __future__ import annotations

SENSORS = ('ft_3_proximal', 'ft_3_distal', 'ft_5_proximal', 'ft_wrist')
JOINTS = tuple(f'joint_{number}' for number in range(1, 8))
_LENGTHS = (0.30, 0.20, 0.25, 0.15, 0.20, 0.10, 0.08)
_MASSES = (5.0, 4.0, 3.5, 3.0, 2.5, 1.8, 1.0)
# Sensors at the begin and end of a link, by joint number.
_FIRST = {3: 'ft_3_proximal', 5: 'ft_5_proximal', 7: 'ft_wrist'}
_SECOND = {3: 'ft_3_distal'}


def link_text(name: str, length: float, mass: float, radius: float = 0.05) -> str:
    """Return the URDF of a tube of some length [m] and mass [kg] along z."""
    across, along = mass * length**2 / 10.0, mass * radius**2 / 2.0
    return f"""
<link name="{name}">
  <inertial><origin xyz="0.002 0.001 {length / 2}"/><mass value="{mass}"/>
    <inertia ixx="{across}" iyy="{across * 0.97}" izz="{along}" ixy="0" ixz="0" iyz="0"/>
  </inertial>
  <collision><origin xyz="0 0 {length / 2}"/>
    <geometry><cylinder radius="{radius}" length="{length}"/></geometry></collision>
</link>"""


def joint_text(name: str, kind: str, parent: str, child: str, height: float, axis: str) -> str:
    """Return the URDF of a joint at a height [m] of its parent, with its axis."""
    return f"""
<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>
  <origin xyz="0 0 {height}"/><axis xyz="{axis}"/>
  <limit lower="-2.8" upper="2.8" effort="100" velocity="2"/></joint>"""


def urdf() -> str:
    """Return the URDF text."""
    parts = ['<robot name="seven_joints"><link name="base"/>']
    carrier, height = 'base', 0.0
    for number, (length, mass) in enumerate(zip(_LENGTHS, _MASSES, strict=True), 1):
        link = f'link_{number}'
        axis = '0 0 1' if number % 2 else '0 1 0'
        parts.append(joint_text(f'joint_{number}', 'revolute', carrier, link, height, axis))
        parts.append(link_text(link, 0.05, 0.2 * mass))
        carrier, height = link, 0.05
        for name in (_FIRST.get(number, f'tube_{number}'), _SECOND.get(number, '')):
            if not name:
                continue
            parts.append(joint_text(f'{name}_mount', 'fixed', carrier, name, height, '0 0 1'))
            parts.append(link_text(name, length / 2.0, 0.4 * mass))
            carrier, height = name, length / 2.0
    parts.append('<link name="tool0"/>')
    parts.append(joint_text('tool0_mount', 'fixed', carrier, 'tool0', height, '0 0 1'))
    return '\n'.join(parts) + '\n</robot>\n'
