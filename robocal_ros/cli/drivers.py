# SPDX-License-Identifier: Apache-2.0
"""Known drivers of robot arms: recognition in a ROS graph, and the calls that set a payload."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin
import yaml
from scipy.optimize import linear_sum_assignment

from robocal_ros.arrays import Array
from robocal_ros.resources import share_directory
from robocal_ros.robot import RigidBodyInertia, link_of

_NODE = 'payload_identification'


@dataclass(frozen=True)
class Driver:
    """A driver, and what distinguishes it from others.

    Attributes:
        name: Arm and driver.
        file: Stem of its parameter file in ``config/examples``.
        marks: Patterns of nodes, topics, controllers, joints and hardware plugins that only this
            driver has; one is enough.
        tool_frame: Pattern of the frame at the end of the arm.
        rates: Least and largest rate of its joint states [Hz], where that distinguishes two arms.
        joint_states: Topic with efforts at the full rate.
        remark: What to do before, empty for nothing.

    """

    name: str
    file: str
    marks: tuple[str, ...]
    tool_frame: str
    rates: tuple[float, float] = (0.0, float('inf'))
    joint_states: str = 'joint_states'
    remark: str = ''

    @property
    def path(self) -> Path:
        """Its parameter file."""
        return share_directory() / 'config' / 'examples' / f'{self.file}.yaml'


_UR = (r'(\w+_)?(shoulder_(pan|lift)|wrist_[123])_joint', 'scaled_joint_trajectory_controller',
       'io_and_status_controller', 'ur_configuration_controller', 'ur_robot_driver/.*')
DRIVERS = (
    Driver('Universal Robots e-Series, ur_robot_driver', 'ur_e_series', _UR, r'(\w+_)?tool0',
           (160.0, float('inf')), remark='Set TCP and payload on the pendant to zero.'),
    Driver('Universal Robots CB3, ur_robot_driver', 'ur_cb3', _UR, r'(\w+_)?tool0',
           (0.0, 160.0), remark='Set the payload on the pendant to zero.'),
    Driver('Franka, franka_ros2', 'franka_fr3',
           (r'(\w+_)?(fr3|fp3|fer|panda)\w*_joint[1-7]', 'franka_robot_state_broadcaster',
            'franka_hardware/.*'),
           r'(\w+_)?(fr3|fp3|fer|panda)\w*_link8', joint_states='franka/joint_states',
           remark='Set the load in Desk to zero.'),
    Driver('UFACTORY xArm or Lite, xarm_ros2', 'xarm',
           (r'\w*(xarm[567]|lite6|uf850)_traj_controller', 'ufactory_driver',
            'uf_ftsensor_(raw|ext)_states', 'uf_robot_hardware/.*'), r'\w*link_eef',
           joint_states='xarm/joint_states',
           remark='Start the driver with report_type:=dev, for torques at 100 Hz.'),
    Driver('KUKA LBR iiwa or Med, lbr_fri_ros2_stack', 'kuka_lbr',
           (r'\w+_A[1-7]', 'lbr_state_broadcaster', 'lbr_ros2_control::.*'), r'\w+_link_ee'),
    Driver('Kinova Gen3, ros2_kortex', 'kinova_gen3',
           (r'gen3_joint_[1-7]', 'kortex_driver/.*', 'picknik_.*'), r'(\w+_)?end_effector_link'),
)
"""All known drivers, each with a parameter file."""


@dataclass(frozen=True)
class Recognised:
    """A driver in a graph, and what its parameter file has to be changed in.

    Attributes:
        driver: The driver.
        marks: Names by which it was recognised.
        edits: Values that differ from the parameter file, by parameter.
        tool_frame: Frame at the end of the arm.
        controller: Its joint trajectory controller.

    """

    driver: Driver
    marks: tuple[str, ...]
    edits: dict[str, str]
    tool_frame: str
    controller: str


def recognised(
    graph: Sequence[str] = (), joints: Sequence[str] = (), rate: float = 0.0,
    controllers: Sequence[str] = (), urdf: str = '',
) -> Recognised | None:
    """Return the driver whose names are in a ROS graph, None for an unknown one.

    Args:
        graph: Nodes, topics and controllers, without their namespace.
        joints: Joints in the joint states.
        rate: Rate of the joint states [Hz], 0 if it is unknown.
        controllers: Names of the joint trajectory controllers.
        urdf: Robot description, empty without one.

    """
    try:
        root = ElementTree.fromstring(urdf)
    except ElementTree.ParseError:
        root = ElementTree.Element('robot')
    plugins = [(element.text or '').strip() for element in root.iter('plugin')]
    links = sorted((element.get('name', '') for element in root.iter('link')),
                   key=lambda link: not _is_moved(root, link, joints))
    for driver in DRIVERS:
        found = sorted(name for name in {*graph, *joints, *controllers, *plugins}
                       if any(re.fullmatch(mark, name) for mark in driver.marks))
        low, high = driver.rates
        # Without a rate, the first of several arms of one driver.
        if not found or (rate and not low <= rate < high):
            continue
        given = yaml.safe_load(driver.path.read_text(encoding='utf-8'))[
            f'/**/{_NODE}']['ros__parameters']
        usual = given['controller']
        wanted = {
            'tool_frame': next((link for link in links if re.fullmatch(driver.tool_frame, link)),
                               given['tool_frame']),
            'controller': usual if usual in controllers else min(controllers, default=usual)}
        edits = {name: value for name, value in wanted.items() if value != given[name]}
        return Recognised(driver, tuple(found), edits, **wanted)
    return None


def _is_moved(root: ElementTree.Element, link: str, joints: Sequence[str]) -> bool:
    """Return whether some joints move a link, which other arms of the URDF do not."""
    # Others are in a <ros2_control> block.
    before = {link_of(joint, 'child'): joint for joint in root.findall('joint')}
    while (joint := before.pop(link, None)) is not None:
        if joint.get('name') in joints:
            return True
        link = link_of(joint, 'parent')
    return False


# --------------------------------------------------------------------- setting a payload


def payload_calls(
    payload: RigidBodyInertia, driver: Driver | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the names of drivers and what sets a payload in them.

    That is a service call; the load data of KUKA as KRL and Sunrise have them; and for Kinova the
    fields of ToolConfiguration, which ControlConfig of the Kortex API sets.

    Args:
        payload: The payload, in the coordinates of the driver's flange: ``tool0`` of Universal
            Robots, link 8 of Franka, ``link_eef`` of UFACTORY, ``end_effector_link`` of Kinova
            (the interface module), ``link_ee`` of KUKA. An inertia of zeros is left out where it
            can be; older versions of ur_msgs have none.
        driver: The driver of which the calls are wanted; all without it.

    """
    tensor, mass = np.asarray(payload.inertia), f'{payload.mass:.4f}'
    x, y, z = payload.com
    centre = f'x: {x:.5f}, y: {y:.5f}, z: {z:.5f}'

    def fields(order: str) -> str:
        inertia = (f', i{pair}: {tensor[tuple("xyz".index(axis) for axis in pair)]:.6f}'
                   for pair in order.split())
        return f'{{{centre}}}{"".join(inertia) if tensor.any() else ""}'

    def axes(values: Iterable[float], digits: int, names: str = 'XYZ') -> str:
        # Zero is added because rounding leaves minus signs of zeros.
        return ','.join(f'{name} {round(value, digits) + 0.0:.{digits}f}'
                        for name, value in zip(names, values, strict=True))

    ros = 'ros2 service call'
    ur = f'{ros} /io_and_status_controller/set_payload ur_msgs/srv/SetPayload'
    millimetres = 1e3 * np.asarray(payload.com)
    moments, angles = _principal(tensor)
    calls = {
        'Universal Robots':
            f'{ur} "{{mass: {mass}, center_of_gravity: {fields("xx yy zz xy xz yz")}}}"',
        # With geometry_msgs/Inertia, of ur_msgs for Makoa and later.
        'Universal Robots, drivers from 2026 on':
            f'{ur} "{{payload: {{m: {mass}, com: {fields("xx xy xz yy yz zz")}}}}}"',
        # The order of the tensor's elements is irrelevant: it is symmetric.
        'Franka':
            f'{ros} /service_server/set_load franka_msgs/srv/SetLoad "{{mass: {mass}, '
            f'center_of_mass: [{listed(payload.com, ".5f")}], '
            f'load_inertia: [{listed(tensor.ravel(), ".6f")}]}}"',
        'UFACTORY':
            f'{ros} /xarm/set_tcp_load xarm_msgs/srv/SetTcpLoad "{{weight: {mass}, '
            f'center_of_gravity: [{listed(millimetres, ".2f")}]}}"',
        # Replaces all of the tool's configuration.
        'Kinova, SetToolConfiguration of the Kortex API, with the tool_transform of '
        'GetToolConfiguration [kg, m]':
            f'{{tool_mass: {mass}, tool_mass_center: {{{centre}}}}}',
        'KUKA, load data of the tool [kg, mm, °, kg·m²]':
            f'{{M {mass},CM {{{axes(millimetres, 2)},{axes(angles, 3, "ABC")}}},'
            f'J {{{axes(moments, 6)}}}}}',
        # The inertia stays zero, as the controller's definition of the command demands.
        'Doosan':
            f'{ros} /dsr01/tool/config_create_tool dsr_msgs2/srv/ConfigCreateTool "{{name: '
            f'robocal, weight: {mass}, cog: [{listed(millimetres, ".2f")}]}}"',
        'Doosan, then':
            f'{ros} /dsr01/tool/set_current_tool dsr_msgs2/srv/SetCurrentTool "{{name: robocal}}"'}
    return tuple((name, call) for name, call in calls.items()
                 if driver is None or driver.name.startswith(name.partition(',')[0]))


def listed(values: Iterable[float], form: str) -> str:
    """Return numbers in a format such as ``.5f``, separated by commas."""
    return ', '.join(f'{value:{form}}' for value in values)


def _principal(tensor: Array) -> tuple[Array, Array]:
    """Return principal moments of inertia and the axes' angles A, B, C [°], as KUKA has them.

    The axes are turned by A about z of the flange, then by B about the new y, then by C about the
    new x (KUKA's assembly instructions: load centre of gravity and mass moment of inertia). Of
    the orders and signs of the axes, those nearest to the flange's.

    Args:
        tensor: Inertia about the centre of mass [kg·m²], shape (3, 3).

    """
    moments, axes = np.linalg.eigh(tensor)
    order = linear_sum_assignment(-np.abs(axes))[1]
    axes = axes[:, order] * np.where(np.diag(axes[:, order]) < 0.0, -1.0, 1.0)
    axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])
    return moments[order], np.degrees(pin.rpy.matrixToRpy(axes))[::-1]


def desk_settings(payload: RigidBodyInertia) -> str:
    """Return the end effector's settings that Franka Desk reads from a JSON file.

    Matrices are stored column by column. The frame of the end effector is the flange's.

    Args:
        payload: The end effector, in the coordinates of the flange.

    """
    return json.dumps({
        'mass': round(payload.mass, 4), 'centerOfMass': np.round(payload.com, 5).tolist(),
        'transformation': np.eye(4).ravel().tolist(),
        'inertia': np.round(payload.inertia, 6).ravel(order='F').tolist()}) + '\n'
