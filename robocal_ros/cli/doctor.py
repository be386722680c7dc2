# SPDX-License-Identifier: Apache-2.0
"""`robocal doctor`: what is missing on this machine or robot, each with its cure."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from robocal_ros.cli.console import OUT
from robocal_ros.errors import RobocalError

if TYPE_CHECKING:
    from robocal_ros.cli.doctor_findings import Finding
    from robocal_ros.cli.doctor_listening import Heard, Listener
    from robocal_ros.robot.model import Robot


NAME = 'doctor'
SUMMARY = 'look at machine and robot, and say what is missing and how to cure it'

NODES = ('payload_identification', 'friction_identification', 'compliance_calibration',
         'wrench_observer', 'leveling', 'sim_arm')
# What each library is needed for.
_LIBRARIES = {
    'rclpy': 'the nodes', 'control_msgs': 'moving the arm', 'pinocchio': 'every model of the arm',
    'scipy': 'every estimation', 'ompl': 'ways around obstacles', 'rosbags': 'bags',
    'mujoco': 'the simulated arm and the demo', 'plotly': 'reports',
}
_NEEDED = ('rclpy', 'control_msgs', 'pinocchio', 'scipy')
_DISCOVERY = 4.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument('--namespace', default='', metavar='NS', help="the robot's namespace")
    parser.add_argument('--tool-frame', default='tool0', metavar='FRAME',
                        help='frame at the end of the arm (default: %(default)s)')
    parser.add_argument('--controller', default='joint_trajectory_controller', metavar='NAME',
                        help='the joint trajectory controller (default: %(default)s)')
    parser.add_argument('--duration', type=float, default=3.0, metavar='SECONDS',
                        help='how long to listen (default: %(default)s)')
    parser.add_argument('--machine', action='store_true',
                        help='look at the machine only, not for a robot')


def run(options: argparse.Namespace) -> int:
    """Look, and tell.

    Returns:
        0 if nothing is bad, 1 if something is.

    """
    from robocal_ros.cli.doctor_findings import Grade

    findings = list(_machine())
    ros = all(item.what != 'rclpy' or item.grade is Grade.GOOD for item in findings)
    if ros and not options.machine:
        findings += _robot(options)
    _show(findings)
    return 1 if any(item.grade is Grade.BAD for item in findings) else 0


def _show(findings: list[Finding]) -> None:
    from robocal_ros.cli.doctor_findings import Grade

    marks = {Grade.GOOD: '[green]✓[/]', Grade.WARNING: '[yellow]![/]', Grade.BAD: '[red]✗[/]'}
    for item in findings:
        OUT.print(marks[item.grade], end=' ')
        OUT.print(f'{item.what}: {item.told}', soft_wrap=True, markup=False)
        if item.cure:
            OUT.print(f'    → {item.cure}', soft_wrap=True, markup=False, style='bold')
    bad = sum(item.grade is Grade.BAD for item in findings)
    doubtful = sum(item.grade is Grade.WARNING for item in findings)
    OUT.print(f'{bad} bad, {doubtful} doubtful, {len(findings) - bad - doubtful} good.')


# --------------------------------------------------------------------------- machine


def _machine() -> Iterator[Finding]:
    from robocal_ros.cli.doctor_findings import Finding, Grade, good

    for library, purpose in _LIBRARIES.items():
        if importlib.util.find_spec(library) is not None:
            yield good(library, 'installed.')
        else:
            yield Finding(
                Grade.BAD if library in _NEEDED else Grade.WARNING, library,
                f'not installed; {purpose} needs it.',
                "Run 'scripts/setup' in a checkout, or 'rosdep install' in a workspace, or "
                'source the distribution.')
    yield _domain()
    yield _results()


def _domain() -> Finding:
    from robocal_ros.cli.doctor_findings import Finding, Grade, good
    from robocal_ros.cli.domains import chosen_domain

    try:
        domain = chosen_domain()
    except RobocalError as error:
        return Finding(Grade.BAD, 'ROS_DOMAIN_ID', str(error))
    spread = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', 'SUBNET')
    middleware = os.environ.get('RMW_IMPLEMENTATION', "the distribution's default")
    return good('ROS domain', f'{domain or 0}, discovery {spread}, middleware {middleware}.')


def _results() -> Finding:
    from robocal_ros.cli.doctor_findings import Finding, Grade, good
    from robocal_ros.results.store import default_directory

    folder = default_directory('robot').parent
    existing: Path = next(item for item in (folder, *folder.parents) if item.exists())
    if os.access(existing, os.W_OK):
        return good('results', f'{folder} can be written.')
    return Finding(Grade.BAD, 'results', f'{folder} cannot be written.',
                   'Make it writable, set ROS_HOME, or set results_dir on every node.')


# ----------------------------------------------------------------------------- robot


def _robot(options: argparse.Namespace) -> Iterator[Finding]:
    from robocal_ros.cli.doctor_findings import Finding, Grade
    from robocal_ros.cli.doctor_listening import Listener
    from robocal_ros.cli.node_client import RosSession

    with RosSession('robocal_doctor') as session:
        others = session.other_nodes(_DISCOVERY)
        if not others:
            yield Finding(
                Grade.BAD, 'graph', 'No other node is in this ROS domain.',
                "Start the robot's driver (or sim_arm); compare ROS_DOMAIN_ID, "
                'ROS_AUTOMATIC_DISCOVERY_RANGE and RMW_IMPLEMENTATION with its terminal.')
            return
        listener = Listener(session, options.namespace)
        with OUT.status(f'Listening for {options.duration:g} s'):
            heard = listener.listen(options.duration)
        yield from _robot_findings(listener, heard, options)


def _robot_findings(
    listener: Listener, heard: Heard, options: argparse.Namespace
) -> Iterator[Finding]:
    from robocal_ros.cli.doctor_findings import (
        clock_finding,
        good,
        joint_findings,
        rate_finding,
        wrench_finding,
    )

    robot = yield from _description(listener, heard, options.tool_frame)
    topic = listener.name('joint_states')
    if heard.joints.stamps:
        yield rate_finding(topic, heard.joints.stamps, options.duration)
        yield clock_finding(heard.joints, simulated='/clock' in listener.published())
        if robot is not None:
            yield from joint_findings(robot, heard.joints)
        if listener.best_effort(topic):
            yield good('QoS', f'{topic} is best effort: what is lost is not sent again; the nodes '
                       'count it.')
    else:
        yield _silent(listener, topic, 'joint_states')
    links: list[str] = (
        [] if robot is None else [str(frame.name) for frame in robot.model.frames])
    for name, sensor in heard.wrenches.items():
        yield rate_finding(name, sensor.stamps, options.duration)
        if sensor.stamps:
            yield wrench_finding(name, sensor.frames, sensor.finite, links)
    if not heard.wrenches:
        yield good('F/T sensors', 'None; methods that need one are not available.')
    yield _controller(listener, options.controller)
    for name, state in listener.own_nodes(NODES):
        yield good(name, f'is {state}.')


def _description(
    listener: Listener, heard: Heard, tool_frame: str
) -> Generator[Finding, None, Robot | None]:
    """Yield what there is to say of the description; return the arm, None without one."""
    from robocal_ros.cli.doctor_findings import Finding, Grade, good
    from robocal_ros.robot.model import Robot

    if not heard.description.strip():
        yield _silent(listener, listener.name('robot_description'), 'robot_description')
        return None
    try:
        robot = Robot(heard.description, tool_frame=tool_frame)
    except RobocalError as error:
        yield Finding(Grade.BAD, 'robot_description', str(error),
                      'Name the frame at the end of the arm with --tool-frame, or correct the '
                      'URDF.')
        return None
    mass = sum(float(inertia.mass) for inertia in robot.model.inertias)
    told = (f"'{robot.name}', {robot.n} joints from '{robot.root_frame}' to '{tool_frame}', "
            f'{mass:.1f} kg.')
    if mass < 0.1:
        yield Finding(Grade.BAD, 'robot_description', told,
                      'The links have no mass: without inertials in the URDF no torque can be '
                      'told from weight. Add them.')
    else:
        yield good('robot_description', told)
    return robot


def _silent(listener: Listener, topic: str, name: str) -> Finding:
    from robocal_ros.cli.doctor_findings import Finding, Grade

    there = listener.published()
    alike = [other for other in there if other.endswith(f'/{name}') and other != topic]
    if topic in there:
        return Finding(Grade.BAD, topic, 'It has a publisher, but nothing comes.',
                       'Is the controller active? Look at it: ros2 control list_controllers.')
    cure = 'Start robot_state_publisher and joint_state_broadcaster, or sim_arm.'
    if alike:
        cure = (f'There is {", ".join(alike)}: name its namespace with --namespace, / for that of '
                'all.')
    return Finding(Grade.BAD, topic, 'Nobody publishes it.', cure)


def _controller(listener: Listener, controller: str) -> Finding:
    from robocal_ros.cli.doctor_findings import Finding, Grade, good

    wanted = listener.name(f'{controller}/follow_joint_trajectory')
    there = listener.controllers()
    if wanted in there:
        return good('controller', f'{wanted} is offered.')
    names = ', '.join(there) or 'none'
    return Finding(
        Grade.BAD, 'controller', f'Nobody offers the action {wanted}; there is: {names}.',
        "Name it with --controller (and the nodes' parameter 'controller'), or start it: ros2 "
        f'control switch_controllers --activate {controller}.')
