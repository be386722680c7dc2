# SPDX-License-Identifier: Apache-2.0
"""What every procedure node shares: recording, estimation, results, and its services.

A subclass says what ``run`` does (``_procedure``) and how recorded samples become a result
(``_estimate``); everything else is here once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.errors import DataError
from robocal_ros.messages import marks
from robocal_ros.messages.mark_topic import Marks
from robocal_ros.messages.marks import Rest, Spans
from robocal_ros.node.arm_node import ArmNode
from robocal_ros.parameters import ArmParameters
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import to_yaml

__all__ = ['ArmParameters', 'ProcedureNode']


class ProcedureNode(ArmNode):
    """A node that moves the arm, records, estimates, checks and saves."""

    kind: str
    """Capability, and the name of its result file."""

    parameter_table = ArmParameters

    estimated_verbs: tuple[str, ...] = ('run', 'estimate')
    """Services whose recordings ``~/estimate`` understands."""

    # ------------------------------------------------------------------- lifecycle

    def _configure(self) -> None:
        super()._configure()
        self._result_publisher = self._publisher(String, '~/result')
        self._marks: Marks = self.part(Marks(self, self.group))
        self._configure_method()
        for verb, callback in (('run', self._on_run), ('estimate', self._on_estimate),
                               ('clear', self._on_clear)):
            self.service(verb, callback)
        self.status.say('idle', 'Configured; activate to begin.', progress=0.0)

    def _activate(self) -> None:
        super()._activate()
        self._record(True)
        self.status.say('idle', 'Active; call run, or play a bag and call estimate.')

    def _deactivate(self) -> None:
        if not self._made:
            return
        self._record(False)
        super()._deactivate()
        if not self._running:
            self.status.say('idle', 'Inactive; samples are kept.')

    # ------------------------------------------------- what subclasses fill in

    def _configure_method(self) -> None:
        """Create what the capability needs beyond the shared parts."""

    async def _procedure(self) -> CalibrationResult:
        """Move, record, estimate."""
        raise DataError(f'{self.kind} has no motion of its own.')

    def _estimate(self) -> Callable[[], CalibrationResult]:
        """Return a function, run in a thread, that turns what is recorded into a result."""
        raise DataError(f'{self.kind} has nothing to estimate.')

    def _publish_details(self, result: CalibrationResult) -> None:
        """Publish what the capability offers besides ``~/result``."""

    def _summary(self, result: CalibrationResult) -> str:
        """Return the result in a sentence with numbers, units and intervals."""
        return f'{result.kind} identified.'

    def _record(self, on: bool) -> None:
        """Start or end recording."""
        self.joints.recording = on

    def _begin_run(self) -> None:
        """Forget what an earlier run recorded; a resumable procedure may keep it."""
        self._clear()

    def _clear(self) -> None:
        """Forget recorded samples."""
        self.joints.clear()
        self._marks.forget()
        self._mark(marks.BEGIN)

    def _mark(self, name: str) -> None:
        stamps = {stream: repr(stamp) for stream, stamp in self._newest_stamps().items()
                  if np.isfinite(stamp)}
        self._marks.say(name, self._running, {**stamps, **self._mark_words()})

    def _newest_stamps(self) -> dict[str, float]:
        """Return the newest stamp of every stream that is recorded, by the stream's name."""
        return {marks.JOINTS: self.joints.newest}

    def _mark_words(self) -> dict[str, str]:
        """Return what else an estimation from a bag should know."""
        return {}

    def mark_discarded(self, span: tuple[float, float]) -> None:
        """Note in marks that joint states after one stamp, up to another, do not count [s]."""
        self._marks.say(marks.DISCARD, self._running,
                        {marks.JOINTS: f'{span[0]!r} {span[1]!r}'})

    def mark_rest(self, rest: Rest) -> None:
        """Note in marks that the arm was measured at rest."""
        self._marks.say(marks.REST, self._running, {
            marks.JOINTS: f'{rest.begin!r} {rest.end!r}', marks.PURPOSE: rest.purpose,
            marks.POSTURE: str(rest.posture)})

    def replayed_spans(self) -> Spans:
        """Return which samples count if they come out of a bag that tells of a run."""
        return self._marks.replayed(self.estimated_verbs)

    # -------------------------------------------------------------------- services

    async def _on_run(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        async def run() -> CalibrationResult:
            await self.arm.connect(self.values.connect_timeout)
            self._begin_run()
            return await self._procedure()

        return await self.answered('run', run, response)

    async def _on_estimate(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        return await self.answered('estimate', self.estimate, response)

    async def _on_clear(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        async def clear() -> str:
            count = self.joints.recorded
            self._clear()
            return f'{count} samples forgotten.'

        return await self.answered('clear', clear, response)

    def _told(self, outcome: Any) -> tuple[bool, str]:
        if not isinstance(outcome, CalibrationResult):
            return super()._told(outcome)
        return outcome.verdict is Verdict.PASS, self._verdict_sentence(outcome)

    # --------------------------------------------------- parts of every procedure

    async def estimate(
        self, function: Callable[[], CalibrationResult] | None = None
    ) -> CalibrationResult:
        """Estimate from what is recorded, save, publish; the last good result stays if bad.

        Args:
            function: Computes the result, in a thread; that of the capability by default.

        Raises:
            RobocalError: If the data do not allow an estimate.
            CancelledError: If a stop was asked for meanwhile; nothing is saved then.

        """
        self.status.say('estimating', 'Estimating from the recorded samples.')
        computation = function or self._estimate()
        self._mark(marks.END)
        result: CalibrationResult = await self.worker.run(self.pulse, computation)
        self.check_stopped()
        self.keep(result)
        return result

    def keep(self, result: CalibrationResult) -> None:
        """Save a result, and publish it if it passed; the last good one stays if it did not."""
        self.store.save(result)
        if result.verdict is Verdict.PASS:
            self.publish(result)

    def publish(self, result: CalibrationResult) -> None:
        """Publish a good result, latched."""
        self._result_publisher.publish(String(data=to_yaml(result)))
        self._publish_details(result)

    def _verdict_sentence(self, result: CalibrationResult) -> str:
        if result.verdict is Verdict.PASS:
            return self._summary(result)
        return (f'Verdict {result.verdict.value}: {" ".join(result.reasons)} '
                'The last good result stays.')
