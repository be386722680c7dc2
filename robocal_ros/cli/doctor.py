# SPDX-License-Identifier: Apache-2.0
"""`robocal doctor`: checks of machine and robot, with remedies."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Iterator

from robocal_ros.cli.console import Finding, Grade, bad, doubtful, good, show_findings
from robocal_ros.errors import ConfigurationError

# Libraries and what needs them.
_LIBRARIES = {
    'rclpy': 'the nodes', 'control_msgs': 'moving the arm', 'pinocchio': 'every model of the arm',
    'scipy': 'every estimation', 'msgspec': 'every file', 'ompl': 'paths around obstacles',
    'rosbags': 'bags', 'mujoco': 'the simulated arm and the demo', 'plotly': 'reports',
    'viser': 'robocal view',
}
_NEEDED = ('rclpy', 'control_msgs', 'pinocchio', 'scipy', 'msgspec')


def run(options: argparse.Namespace) -> int:
    """Check and report.

    Returns:
        0 without errors, 1 otherwise.

    """
    findings = list(_machine())
    if not options.machine and all(map(importlib.util.find_spec, _NEEDED)):
        from robocal_ros.cli.doctor_robot import robot_findings

        findings += robot_findings(options)
    show_findings(findings)
    return 1 if any(item.grade is Grade.BAD for item in findings) else 0


def _machine() -> Iterator[Finding]:
    for library, purpose in _LIBRARIES.items():
        if importlib.util.find_spec(library):
            yield good(library, 'installed.')
        else:
            yield (bad if library in _NEEDED else doubtful)(
                library, f'not installed; needed for {purpose}.',
                "Run 'scripts/setup' in a checkout, or 'rosdep install' in a workspace, or "
                'source the distribution.')
    try:
        domain = chosen_domain()
    except ConfigurationError as error:
        yield bad('ROS_DOMAIN_ID', str(error))
    else:
        spread = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', 'SUBNET')
        middleware = os.environ.get('RMW_IMPLEMENTATION', "the distribution's default")
        yield good('ROS domain', f'{domain or 0}, discovery {spread}, middleware {middleware}.')
    if all(map(importlib.util.find_spec, _NEEDED)):
        # It needs libraries that may be missing.
        from robocal_ros.results import check_writable, default_directory

        folder = default_directory('robot').parent
        try:
            check_writable(next(item for item in (folder, *folder.parents) if item.exists()))
            yield good('results', f'{folder} is writable.')
        except ConfigurationError as error:
            yield bad('results', str(error))


def chosen_domain() -> int | None:
    """Return the ROS domain of the environment, None if none is set.

    Raises:
        ConfigurationError: If ROS_DOMAIN_ID is not a valid domain.

    """
    text = os.environ.get('ROS_DOMAIN_ID', '')
    if not text:
        return None
    if not text.isdecimal() or int(text) > 232:
        raise ConfigurationError(
            f"ROS_DOMAIN_ID is '{text}'; expected a number from 0 to 232. Correct or unset it.")
    return int(text)
