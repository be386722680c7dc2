# SPDX-License-Identifier: Apache-2.0
"""How the tracker is placed: the unloaded arm shows it the target in some postures."""

from __future__ import annotations

from collections.abc import Callable

from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.estimate import ComplianceSettings, place_tracker
from robocal_ros.core.compliance.positions import EndPosition
from robocal_ros.core.compliance.registration import Registration
from robocal_ros.errors import DataError
from robocal_ros.nodes.compliance_procedure import ComplianceProcedure
from robocal_ros.nodes.compliance_resting import RestReader
from robocal_ros.ros.procedure import ProcedureNode


class TrackerRegistration:
    """Visits postures that spread the target, and places the tracker by what it saw."""

    def __init__(
        self, node: ProcedureNode, rest: RestReader, settings: ComplianceSettings,
        procedure: ComplianceProcedure, plan: Callable[[Array, int], Array],
    ) -> None:
        """Prepare; nothing moves yet.

        Args:
            node: The node.
            rest: Reads the tracker while the arm rests.
            settings: Settings of the estimation.
            procedure: Moves to postures.
            plan: Returns postures for where the arm is, and how many.

        """
        self._node = node
        self._rest = rest
        self._settings = settings
        self._procedure = procedure
        self._plan = plan

    async def measure(self, share: tuple[float, float]) -> Registration:
        """Visit the postures, move back, and return where the tracker stands.

        Args:
            share: Progress of the procedure at start and end [%].

        Raises:
            RobocalError: If too few postures are seen, or the points don't fit.

        """
        node, values = self._node, self._node.values
        home = node.joints.posture().copy()
        await self._rest.wait()
        three = values.registration == 'three_point'
        count = 3 if three else values.registration_postures
        node.status.say('planning', 'Choosing postures to place the tracker by.',
                        progress=share[0])
        # Some spare ones: the tracker may not see the target everywhere.
        postures: Array = await node.worker.run(
            node.pulse, self._plan, home, count + max(2, count // 3))
        seen: list[EndPosition] = []
        width = (share[1] - share[0]) / len(postures)
        for number, posture in enumerate(postures):
            begin = share[0] + number * width
            what = f'posture {number + 1} for placing the tracker'
            position = await self._procedure.visit(posture, what, (begin, begin + width))
            if position is not None:
                seen.append(position)
            if len(seen) == count:
                break
        await node.go_to(home, phase='moving', message='Moving back to where it began.',
                         share=(share[1], share[1]))
        if len(seen) < count:
            raise DataError(
                f'The tracker saw the target in {len(seen)} of {len(postures)} postures; '
                f'{count} are needed to place it. Check the line of sight, target_axis, '
                'visibility_angle and tracker_position.')
        found = place_tracker(node.robot, seen, self._settings)
        self._procedure.register(found, seen)
        return found
