# SPDX-License-Identifier: Apache-2.0
"""What an unfinished procedure has measured, on disk, so that it goes on after a restart.

A procedure consists of parts, such as the joints of a friction run or the postures of a set. After
each part the node writes everything that it has measured so far, and under what conditions. The
next run goes on from there if the conditions are the same: parameters, robot description, results
in use, the processes that send joint states and sensor readings, and software.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import CancelledError, DataError, FileFormatError, RobocalError
from robocal_ros.files import exists, read_bytes, write_atomically
from robocal_ros.messages import Recorded
from robocal_ros.node.calibration_node import CalibrationNode
from robocal_ros.node.procedure_node import Resumable
from robocal_ros.node.sample_recorder import SampleRecorder

S = TypeVar('S')
T = TypeVar('T')

# First line of a file, with the version of its format.
_HEAD = b'robocal journal 1\n'
_HASH = 32
# Largest file that is read [bytes].
_LARGEST = 256 * 10**6
# Parameters that are not conditions: the description is compared by its hash.
_IGNORED = ('robot_description', 'resume_within')


class Entry(msgspec.Struct, Generic[S], forbid_unknown_fields=True):
    """Content of a journal.

    Attributes:
        saved: Wall-clock time of writing [s].
        conditions: Conditions of the measurement, by name.
        parts: What is measured, in words.
        start: Identity of the node's start.
        resumed: How often the measurement was gone on with.
        streams: Recording by topic.
        state: State of the procedure.

    """

    saved: float
    conditions: dict[str, str]
    parts: str
    start: str
    resumed: int
    streams: dict[str, Recorded]
    state: S


class Journal(Resumable, Generic[S]):
    """The journal of a node's procedure; ``S`` is a dataclass with the state of the procedure."""

    def __init__(
        self, node: CalibrationNode, recorder: SampleRecorder, kind: str, schema: type[S]
    ) -> None:
        """Set the file; nothing is read yet.

        Args:
            node: The node; its parameters are ``ResumableParameters``.
            recorder: The recording of the procedure.
            kind: Kind of the result.
            schema: Type of the state.

        """
        self._node = node
        self._recorder = recorder
        self._type: Any = Entry[schema]  # type: ignore[valid-type]
        self._path = node.store.path(kind).with_suffix('.unfinished')
        self._start = uuid.uuid4().hex

    async def keep(self, state: S, parts: str) -> None:
        """Write the recording and the state after a part; a failure is logged only.

        Args:
            state: State of the procedure.
            parts: What is measured, in words.

        """
        node, streams = self._node, self._recorder.saved()
        if not node.values.resume_within or any(
                stream.counts.clock_jumps for stream in streams.values()):
            return
        entry = Entry(time.time(), self._conditions(), parts, self._start, self.resumed, streams,
                      state)
        try:
            await node.waiter.compute(self._write, entry)
        except OSError as error:
            node.get_logger().warning(
                f'{parts} could not be written to {self._path} ({error.strerror or error}); '
                'they would be lost if the node ended now.', throttle_duration_sec=60.0)

    def _write(self, entry: Entry[S]) -> None:
        body = msgspec.msgpack.encode(entry, enc_hook=_plain)
        write_atomically(self._path, _HEAD + sha256(body).digest() + body)

    async def resume(self) -> S | None:
        """Restore what an unfinished run has recorded, if it can be gone on from.

        Returns:
            The state of the procedure; None to begin anew.

        Raises:
            CancelledError: If a stop was requested.

        """
        node = self._node
        self.resumed = 0
        try:
            if not exists(self._path, 'journal'):
                return None
            entry = await node.waiter.compute(self._read)
            await node.waiter.until_stopped(
                lambda: all(map(math.isfinite, self._recorder.newest_by_topic.values()))
                and all(self._senders().values()), node.values.connect_timeout)
            self._check(entry)
            self._recorder.restore(entry.streams)
        except CancelledError:
            raise
        except RobocalError as error:
            node.get_logger().warning(
                f'What the last run has measured is not used: {error} Measuring begins anew.')
            return None
        self.resumed = entry.resumed + 1
        after = '' if entry.start == self._start else ' after a restart'
        at = datetime.fromtimestamp(entry.saved).astimezone()
        self.sentence = f'Resumed{after}: {entry.parts} were measured at {at:%H:%M}.'
        node.get_logger().info(self.sentence)
        node.status.note(resumed=self.sentence)
        return entry.state

    async def ended_by(self, estimate: Callable[[], Awaitable[T]]) -> T:
        """Estimate after the last part, and remove the file unless the node is stopped."""
        try:
            return await estimate()
        finally:
            if not self._node.waiter.stop_reason:
                self.remove()

    def forget(self) -> None:
        """Remove the file, and count anew: what was measured is discarded."""
        self.remove()
        if self.sentence:
            self._node.status.note(resumed='nothing')
        self.resumed, self.sentence = 0, ''

    def remove(self) -> None:
        """Remove the file: the measurement is finished, or must not be gone on with."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._node.get_logger().warning(
                f'{self._path} could not be removed ({error.strerror}); remove it, or the next '
                'start of the node may go on from it.')

    # ------------------------------------------------------------------------ judging

    def _read(self) -> Entry[S]:
        """Read the file.

        Raises:
            ConfigurationError: If it cannot be read.
            FileFormatError: If it is damaged, too large, or of another version.

        """
        content = read_bytes(self._path, 'journal', 'It is not used.', _LARGEST)
        begin = len(_HEAD) + _HASH
        if content[:len(_HEAD)] != _HEAD:
            raise FileFormatError(f'{self._path} is damaged, or of another version.')
        body = content[begin:]
        if sha256(body).digest() != content[len(_HEAD):begin]:
            raise FileFormatError(f'{self._path} is damaged.')
        try:
            entry: Entry[S] = msgspec.msgpack.decode(body, type=self._type, dec_hook=_array)
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, OverflowError,
                RecursionError) as error:
            raise FileFormatError(f'{self._path} is of another version ({error}).') from error
        return entry

    def _check(self, entry: Entry[S]) -> None:
        """Raise a DataError if a measurement cannot be gone on with."""
        now = self._conditions()
        changed = [name for name in {**entry.conditions, **now}
                   if entry.conditions.get(name) != now.get(name)]
        if changed:
            verb = 'differs' if len(changed) == 1 else 'differ'
            raise DataError(f'{", ".join(changed)} {verb} now.')
        limit = self._node.values.resume_within
        ages = {'the clock of this machine': time.time() - entry.saved}
        for topic, newest in self._recorder.newest_by_topic.items():
            earlier = entry.streams[topic].newest if topic in entry.streams else math.nan
            ages[f"the stamps on '{topic}'"] = newest - earlier
        for clock, age in ages.items():
            if not math.isfinite(age) or age < 0.0:
                raise DataError(f'By {clock} it is not known how old it is.')
            if age > limit:
                raise DataError(f'By {clock} it is {age:.0f} s old (limit {limit:.0f} s, '
                                'resume_within).')

    def _conditions(self) -> dict[str, str]:
        """Return what must be the same for a measurement to go on, by name."""
        node = self._node
        return {
            'robot description': node.robot.identity.mechanics_sha256,
            'software version': __version__,
            **{f'parameter {name}': repr(value)
               for name, value in vars(node.values).items() if name not in _IGNORED},
            **{f'{kind} result': known for kind, known in node.results.hashes().items()},
            **{f"the sender on '{topic}'": sender
               for topic, sender in self._senders().items()}}

    def _senders(self) -> dict[str, str]:
        """Return the identities of the publishers by topic: a restarted driver has another one."""
        return {topic: ' '.join(sorted(
            bytes(info.endpoint_gid).hex()
            for info in self._node.get_publishers_info_by_topic(topic)))
            for topic in self._recorder.newest_by_topic}


def _plain(value: object) -> dict[str, Any]:
    """Return an array as plain values for msgspec."""
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f'{type(value).__name__} cannot be written.')
    array = np.ascontiguousarray(value, dtype=np.float64)
    return {'shape': list(array.shape), 'data': array.tobytes()}


def _array(_: Any, value: Any) -> Array:
    """Return plain values as an array."""
    return np.frombuffer(value['data'], dtype=np.float64).reshape(value['shape'])
