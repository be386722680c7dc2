# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the nodes: time until active, and CPU load while inactive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState

from benchmarks.benchmark import Benchmark, Outcome, Request
from benchmarks.figures import Figure
from demo import default_cell
from demo.domains import own_domain
from demo.processes import Child, Children, processor_time
from robocal_ros import registry
from robocal_ros.cli.console import OUT
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import RobocalError
from robocal_ros.messages import qos
from robocal_ros.robot import Robot

START_BAR, IDLE_BAR = 1.5, 1.0
"""Limits of the time until active [s] and of the share of a core while inactive [%]."""

_MEASURED = ('payload_identification', 'friction_identification', 'compliance_calibration',
             'wrench_observer', 'leveling')

_TIMEOUT = 60.0
_SETTLING, _IDLE, _QUICK_IDLE = 3.0, 10.0, 0.5
_PERIOD = 1e-3
_ACTIVE, _LOOK = 'Active.', 0.005


@dataclass(frozen=True)
class Case:
    """One start of one node.

    Attributes:
        node: Name of the node.
        start: Time from the start of the process until its log says that it is active [s].
        processor: CPU time used until then [s].
        idle: Share of a core while inactive, with joint states published at 1 kHz.

    """

    node: str
    start: float
    processor: float
    idle: float


class NodesBenchmark(Benchmark):
    """Starts each node as a process on the default arm."""

    title = 'Start-up and idle load of the nodes'
    about = 'Processes of the nodes on the default arm; byte code is cached.'
    seeds = 3

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`. Each seed is one start."""
        cases = []
        domain = own_domain()
        environment = {'ROS_DOMAIN_ID': str(domain), 'OPENBLAS_NUM_THREADS': '1',
                       'ROS_LOG_DIR': str((request.output / 'logs' / 'ros').resolve())}
        for name in _MEASURED[-1:] if request.quick else _MEASURED:
            for _ in request.seeds:
                with (
                    Children(request.output / 'logs', environment) as children,
                    RosSession('robocal_bench', domain, watch=children.check) as session,
                ):
                    cases.append(_measured(
                        children, session, name, request.output / 'store',
                        _QUICK_IDLE if request.quick else _IDLE))
            OUT.print(f'{name}: active after {cases[-1].start:.2f} s', soft_wrap=True)
        return Outcome(figures(cases), cases)


def _measured(
    children: Children, session: RosSession, name: str, results: Path, idle: float
) -> Case:
    began = time.monotonic()
    child = children.start_node(registry.nodes()[name], name, {
        'autostart': True, 'robot_description': default_cell.urdf(), 'require_tare': False,
        'results_dir': str(results.resolve())})
    # Read from its log: over DDS, discovery time would be measured too.
    while _ACTIVE not in child.log.read_text(encoding='utf-8'):
        children.check()
        if time.monotonic() - began > _TIMEOUT:
            raise RobocalError(f"'{name}' is not active after {_TIMEOUT:.0f} s. The end of its "
                               f'log:\n{child.tail()}')
        time.sleep(_LOOK)
    start, taken = time.monotonic() - began, processor_time(child)
    NodeClient(session, name).change_state('deactivate')
    session.spin_until(lambda: False, min(_SETTLING, idle))
    return Case(name, start, taken, _idle(session, child, idle))


def _idle(session: RosSession, child: Child, duration: float) -> float:
    """Publish joint states at 1 kHz for some time [s] and return the node's share of a core."""
    publisher: Publisher[JointState] = session.node.create_publisher(
        JointState, '/joint_states', qos.RELIABLE)
    names = Robot(default_cell.urdf()).joint_names
    state = JointState(name=list(names), position=[0.0] * len(names),
                       velocity=[0.0] * len(names), effort=[0.0] * len(names))
    before, began = processor_time(child), time.monotonic()
    count = 0
    while (now := time.monotonic() - began) < duration:
        state.header.stamp = session.node.get_clock().now().to_msg()
        publisher.publish(state)
        count += 1
        time.sleep(max(0.0, count * _PERIOD - now))
    session.node.destroy_publisher(publisher)
    return (processor_time(child) - before) / (time.monotonic() - began)


def figures(cases: list[Case]) -> list[Figure]:
    """Return the figures of each node."""
    rows: list[Figure] = []

    def add(
        node: str, what: str, unit: str, bar: float | None, value: Callable[[Case], Any]
    ) -> None:
        found = [float(value(case)) for case in cases if case.node == node]
        rows.append(Figure(
            node, what, unit, float(np.median(found)), max(found), bar,
            reason='Wall time on a machine that did other work, too; see the CPU time.'))

    for node in dict.fromkeys(case.node for case in cases):
        add(node, 'start to active', 's', START_BAR, lambda case: case.start)
        add(node, 'CPU time until then', 's', None, lambda case: case.processor)
        add(node, 'inactive, joint states at 1 kHz: share of a core', '%', IDLE_BAR,
            lambda case: 100.0 * case.idle)
    return rows


BENCHMARK = NodesBenchmark()
