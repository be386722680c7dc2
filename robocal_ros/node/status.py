# SPDX-License-Identifier: Apache-2.0
"""Status of a procedure node: ``~/status``, latched, and ``/diagnostics`` at 1 Hz."""

from __future__ import annotations

from collections.abc import Callable

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node

from robocal_ros.messages import faults_of, qos

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
# Shortest interval between two statuses of one phase [s].
_SHORTEST_INTERVAL = 0.1


class StatusReporter:
    """Publisher of phase, progress, counts and the current estimate.

    Attributes:
        parts: Further statuses for /diagnostics, of parts of the node's work; none while idle.

    """

    def __init__(self, node: Node, group: CallbackGroup, now: Callable[[], float]) -> None:
        """Create publishers and the 1 Hz timer.

        Args:
            node: The node.
            group: A reentrant callback group.
            now: Steady clock [s].

        """
        self._node = node
        self._now = now
        self._publisher = node.create_publisher(DiagnosticStatus, '~/status', qos.LATCHED)
        self._diagnostics = node.create_publisher(DiagnosticArray, '/diagnostics', qos.RELIABLE)
        self._timer = node.create_timer(1.0, self._diagnose, group)
        self._status = DiagnosticStatus(
            level=OK, name=node.get_fully_qualified_name().lstrip('/'),
            hardware_id='', message='unconfigured')
        self._values: dict[str, str] = {}
        self.parts: list[DiagnosticStatus] = []
        self._left_out: dict[str, int] = {}
        # Replaces the units in sentences about prismatic joints by m and N.
        self.worded: Callable[[str], str] = str
        self._sent = -1e9

    def destroy(self) -> None:
        """Remove publishers and timer."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)
        self._node.destroy_publisher(self._diagnostics)

    def update(
        self, phase: str, message: str, *, progress: float | None = None, level: bytes = OK,
        **values: str | float,
    ) -> None:
        """Publish a status.

        Args:
            phase: One word or two: idle, planning, moving, …
            message: A sentence for the user.
            progress: Percent done, kept when None.
            level: DiagnosticStatus level.
            **values: Further values; they stay until overwritten or the phase is idle.

        """
        changed = phase != self._values.get('phase') or level != self._status.level
        if phase == 'idle' and changed:
            self._values.clear()
            self.parts = []
        self._values['phase'] = phase
        if progress is not None:
            self._values['progress'] = f'{min(max(progress, 0.0), 100.0):.1f}'
        self._values.setdefault('progress', '0.0')
        for name, value in values.items():
            self._values[name] = value if isinstance(value, str) else f'{value:.6g}'
        self._status.level = level
        self._status.message = self.worded(message)
        self._left_out = dict(faults_of(self._node))
        self._status.values = [KeyValue(key=k, value=v) for k, v in self._values.items()] + [
            KeyValue(key=f'left out: {k}', value=str(n)) for k, n in self._left_out.items()]
        # The status of an idle node stays for a while: publish it at once.
        if changed or phase == 'idle' or self._now() - self._sent >= _SHORTEST_INTERVAL:
            self._sent = self._now()
            self._publisher.publish(self._status)

    def note(self, **values: str) -> None:
        """Add values to the current status; phase and message stay."""
        self._values.update(values)
        self.update(self._values.get('phase', ''), self._status.message, level=self._status.level)

    def _diagnose(self) -> None:
        if self._left_out != faults_of(self._node):
            self.note()
        array = DiagnosticArray(status=[self._status, *self.parts])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._diagnostics.publish(array)
