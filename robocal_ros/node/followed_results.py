# SPDX-License-Identifier: Apache-2.0
"""Results of other nodes in use: the stored ones, and new ones as they are published."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from std_msgs.msg import String

from robocal_ros import registry
from robocal_ros.errors import RobocalError
from robocal_ros.messages import TEXT_LIMIT, ConditionalGroup, Subscriber, guarded, qos
from robocal_ros.node.procedure_node import ProcedureNode
from robocal_ros.results import CalibrationResult, choose, from_yaml, stale_text
from robocal_ros.robot import EFFORT_UNITS, check_efforts, effort_units


class FollowedResults:
    """Results that a node uses.

    They are read in the worker thread. Those that are published while a service runs are used
    after its end: parsing would delay its motion, and what it uses must not change.

    Attributes:
        reading: Whether published results are being read.

    """

    def __init__(self, node: ProcedureNode) -> None:
        """Follow nothing yet.

        Args:
            node: The node.

        """
        self._node = node
        self._known: dict[str, CalibrationResult | None] = {}
        self._topics: list[Subscriber] = []
        self._unread: dict[str, tuple[Callable[[str], Awaitable[None]], str]] = {}
        self.reading = False

    def follow(
        self, kind: str, use: Callable[[CalibrationResult], object], *, remedy: str = ''
    ) -> None:
        """Use the stored result of a kind now, and new ones as they are published.

        Args:
            kind: Kind of the results.
            use: Called with each result.
            remedy: What to do if an optional stored result is unusable; empty if it is required.

        Raises:
            RobocalError: If the stored result is unusable, and no remedy is given.

        """
        node, name = self._node, kind.replace('_', ' ')

        def take(result: CalibrationResult) -> None:
            # Of these, a later one of the other kind may be in use.
            if kind not in EFFORT_UNITS:
                check_efforts(node.robot, node.values, result)
            use(result)

        topic = registry.result_topics()[kind]
        try:
            if (stored := node.store.load(kind)) is not None:
                take(stored)
                self._known[kind] = stored
        except RobocalError as error:
            if not remedy:
                raise
            node.get_logger().warning(f'Stored {name} not used: {error} {remedy}')
            self._known[kind] = None

        def parsed(text: str) -> tuple[CalibrationResult, str]:
            result = from_yaml(text, node.store.robot, topic)
            return result, result.sha256

        async def read(text: str) -> None:
            try:
                result, sha256 = await node.waiter.compute(parsed, text)
                known = self._known.get(kind)
                if known is None or sha256 != known.sha256:
                    take(result)
                    self._known[kind] = result
                    await self._warn_stale()
            except RobocalError as error:
                node.get_logger().warning(f'{name.capitalize()} result not used: {error}')

        def receive(message: String) -> None:
            self._unread[topic] = read, message.data
            if not self.reading:
                self.reading = True
                node.begin('result', self._read)

        subscriber = node.part(Subscriber(
            node, ConditionalGroup(lambda: not node.running and not self.reading), String, topic,
            receive, profile=qos.LATCHED, limit=TEXT_LIMIT))
        subscriber.start()
        self._topics.append(subscriber)

    def catch_up(self) -> None:
        """Receive what was published last."""
        for topic in self._topics:
            topic.catch_up()

    def clear(self) -> None:
        """Follow nothing any more."""
        for kept in (self._known, self._topics, self._unread):
            kept.clear()

    def current(self, kind: str) -> CalibrationResult | None:
        """Return the result of a kind that is in use: the followed one, else the stored one."""
        return self._known[kind] if kind in self._known else self._node.store.load(kind)

    def gains(self) -> CalibrationResult | None:
        """Return the result whose drive gains are used, None for none."""
        return choose(self.current, (), effort_units(self._node.values)).gains

    def hashes(self) -> dict[str, str]:
        """Return the hashes of the followed results by kind, empty for a missing one."""
        return {kind: '' if result is None else result.sha256
                for kind, result in self._known.items()}

    async def _read(self) -> None:
        """Read the newest text of each topic, and use it."""
        try:
            while self._unread:
                topic = next(iter(self._unread))
                read, text = self._unread.pop(topic)
                await guarded(self._node, f'message on {topic}', read)(text)
        finally:
            self.reading = False

    async def _warn_stale(self) -> None:
        """Log a warning for each stored result of the node with an outdated input."""
        texts = await self._node.waiter.compute(self._stale_texts)
        for text in texts:
            self._node.get_logger().warning(text)
        self._node.status.note(stale=' '.join(texts) or 'none')

    def _stale_texts(self) -> list[str]:
        texts, own = [], registry.of_node(self._node.capability)
        for kind in (*own.results, *own.own_kinds):
            try:
                stored = self._node.store.load(kind)
                texts.append('' if stored is None else stale_text(stored, self.current))
            except RobocalError:
                # A file that cannot be read is reported where it is used.
                continue
        return list(filter(None, texts))
