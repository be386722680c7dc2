# SPDX-License-Identifier: Apache-2.0
"""Estimation of many bags by the workers of Dask Distributed."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, wait
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker
from distributed.utils import get_mp_context

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet import storage
from robocal_ros.fleet.bags import BagPlace, Request
from robocal_ros.fleet.catalogue import BROKEN, REFUSED, Catalogue
from robocal_ros.fleet.task import Attempt, Task, estimate_bag, record

KILLS = 3
"""Workers that a bag may end before it is recorded as bad."""

Progress = Callable[[int, str], None]

# Longest time in which a scheduler answers.
_ANSWER = '5s'
# Time between looks at the workers, and longest time until one of them is replaced [s].
_LOOK, _REPLACED = 5.0, 30.0
# Local clusters that a run may wear out.
_CLUSTERS = 5
# Bags after which the catalogue is compacted, so that the number of its files stays bounded.
_COMPACT_EVERY = 5000
# A worker runs one bag at a time, with one thread for linear algebra. Workers are forked from a
# process that has loaded their libraries once. They keep the memory of a bag for the next one, and
# are watched less often than Dask would.
_SETTINGS = {
    'distributed.admin.system-monitor.interval': '5s',
    'distributed.admin.tick.interval': '500ms',
    'distributed.scheduler.allowed-failures': 0,
    'distributed.scheduler.worker-saturation': 1.0,
    'distributed.worker.daemon': True,
    'distributed.worker.multiprocessing-method': 'forkserver',
    'distributed.worker.profile.enabled': False,
    'distributed.nanny.pre-spawn-environ': {
        'MALLOC_ARENA_MAX': 1,
        'MALLOC_MMAP_THRESHOLD_': 1 << 25, 'MALLOC_TRIM_THRESHOLD_': 1 << 28,
        'OMP_NUM_THREADS': 1, 'MKL_NUM_THREADS': 1, 'OPENBLAS_NUM_THREADS': 1,
        'DASK_LOGGING__DISTRIBUTED': 'critical'},
}
_LIBRARIES = ['distributed', 'robocal_ros.fleet.task', *sorted(
    {item.partition(':')[0] for item in registry.estimators().values()})]


@dataclass
class Summary:
    """What a run has done.

    Attributes:
        bags: Number of bags found.
        repeated: Number of bags that needed nothing, because an earlier run has finished them.
        outcomes: Number of attempts by outcome.
        verdicts: Number of new results by verdict.
        robots: Names of the robots of new results.

    """

    bags: int
    repeated: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    robots: set[str] = field(default_factory=set)


@contextmanager
def workers(count: int | None, memory: str, scheduler: str) -> Iterator[Client]:
    """Yield a client of the workers.

    Args:
        count: Number of worker processes on this machine; None for one per core.
        memory: Limit of each one's memory, such as ``2GiB``; empty for equal shares.
        scheduler: Address of an existing scheduler, which is used instead; empty for none.

    Raises:
        ConfigurationError: If the scheduler does not answer, or the limit is not valid.

    """
    # A worker that ends is reported as the bag's failure.
    logging.getLogger('distributed').setLevel(logging.CRITICAL)
    if scheduler:
        try:
            client = Client(scheduler, timeout=_ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"No scheduler of Dask answers at '{scheduler}': {error}. Start one with 'dask "
                "scheduler', and workers with 'dask worker --nthreads 1'.") from error
        with client:
            yield client
        return
    try:
        memory_limit: Any = dask.utils.parse_bytes(memory) if memory else 'auto'
    except ValueError as error:
        raise ConfigurationError(
            f"--memory-limit '{memory}' is no size; expected one such as 2GiB.") from error
    with dask.config.set(_SETTINGS):
        get_mp_context().set_forkserver_preload(_LIBRARIES)
        with (
            LocalCluster(
                n_workers=count or dask.system.CPU_COUNT, threads_per_worker=1, processes=True,
                memory_limit=memory_limit, dashboard_address='127.0.0.1:0', host='127.0.0.1',
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            try:
                yield client
            except BaseException:
                # Results are written at once, so that nothing is lost by not waiting for bags at
                # work.
                for nanny in cluster.workers.values():
                    nanny.auto_restart = False
                    if nanny.pid is not None:
                        os.kill(nanny.pid, signal.SIGKILL)
                raise


@contextmanager
def _alone(output: str) -> Iterator[None]:
    """Refuse a second run with the same output folder on this machine."""
    if not storage.is_local(output):
        yield
        return
    path = storage.local_path(output)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.fdopen(os.open(
            path / '.lock', os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o644), 'wb')
    except OSError as error:
        raise ConfigurationError(
            f"The output folder '{output}' cannot be written: {error.strerror}.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                f"Another run writes to '{output}'. Wait for its end, or name another folder."
            ) from error
        yield


class _LostWorkersError(Exception):
    """All worker processes of this machine have ended, and none of them was replaced."""


def estimate(
    bags: Sequence[BagPlace], request: Request, client: Callable[[], Any], progress: Progress, *,
    retry: bool = False,
) -> Summary:
    """Estimate all bags that no earlier run has finished.

    Args:
        bags: The bags.
        request: What to estimate.
        client: Returns the context of a client of the workers; called if there is work, and
            again if all workers were lost.
        progress: Called with the number of finished bags and a short text.
        retry: Whether refused bags are tried again.

    Raises:
        ConfigurationError: If output, options or workers are unsuitable.

    """
    with _alone(request.output):
        catalogue = Catalogue(request.output)
        catalogue.compact()
        tasks = _open_tasks(catalogue, bags, request, retry)
        run = _Run(catalogue, progress, {task.bag.uri: task for task in tasks},
                   Summary(len(bags), len(bags) - len(tasks)))
        try:
            for _ in range(_CLUSTERS):
                if run.tasks:
                    with suppress(_LostWorkersError), client() as connected:
                        run.go_on(connected)
            if run.tasks:
                raise ConfigurationError(
                    f'The worker processes have ended {_CLUSTERS} times and could not be replaced.'
                    ' Check the memory and the log of this machine; then start the command again: '
                    'finished bags are not repeated.')
        finally:
            catalogue.compact()
    return run.summary


def _open_tasks(
    catalogue: Catalogue, bags: Sequence[BagPlace], request: Request, retry: bool
) -> list[Task]:
    """Return the tasks of the bags that are not finished."""
    sha256 = request.sha256()
    final = catalogue.query(
        'SELECT bag, fingerprint FROM (SELECT * FROM bags WHERE request_sha256 = ? '
        'QUALIFY tried = max(tried) OVER (PARTITION BY bag)) GROUP BY ALL '
        'HAVING bool_and(outcome <> ? AND NOT (? AND outcome = ?))',
        [sha256, BROKEN, retry, REFUSED])
    known = catalogue.query(
        "SELECT DISTINCT bag, fingerprint, bag_sha256 FROM bags WHERE bag_sha256 <> ''")
    finished = {(row['bag'], row['fingerprint']) for row in final}
    hashes = {(row['bag'], row['fingerprint']): row['bag_sha256'] for row in known}
    return [Task(bag, request, sha256, hashes.get((bag.uri, bag.fingerprint), ''))
            for bag in bags if (bag.uri, bag.fingerprint) not in finished]


@dataclass
class _Run:
    """Work on all bags: first side by side, then one at a time those that ended their workers.

    Attributes:
        catalogue: Where the outcome is recorded.
        progress: Called with the number of finished bags and a short text.
        tasks: What is left to do, by the bag's URI.
        summary: What was done.
        kills: Workers that ended with each bag.

    """

    catalogue: Catalogue
    progress: Progress
    tasks: dict[str, Task]
    summary: Summary
    kills: Counter[str] = field(default_factory=Counter)

    def go_on(self, client: Client) -> None:
        """Work on what is left.

        Raises:
            _LostWorkersError: If there are no workers left.

        """
        waiting = [task for uri, task in reversed(self.tasks.items()) if not self.kills[uri]]
        at_work: dict[Future, Task] = {}
        room, looked = 0, -_LOOK
        # One task for each worker, and one waiting.
        while waiting or at_work:
            if monotonic() - looked > _LOOK:
                room, looked = 2 * max(sum(client.nthreads().values()), 1), monotonic()
            for _ in range(min(room - len(at_work), len(waiting))):
                task = waiting.pop()
                at_work[client.submit(estimate_bag, task, pure=False)] = task
            for future in _first_of(client, list(at_work)):
                self._take(at_work.pop(future), future)
        # With no other bag at work, it is known which one ends the worker.
        for uri in [uri for uri in self.kills if uri in self.tasks]:
            while uri in self.tasks:
                future = client.submit(estimate_bag, self.tasks[uri], pure=False)
                _first_of(client, [future])
                self._take(self.tasks[uri], future)

    def _take(self, task: Task, future: Future) -> None:
        """Take the outcome of a task, and forget it where the worker keeps it."""
        try:
            attempts = future.result()
        except FutureCancelledError as error:
            raise ConfigurationError(
                'The connection to the scheduler was lost. Start the command again when it is '
                'back: finished bags are not repeated.') from error
        except KilledWorker:
            self.kills[task.bag.uri] += 1
            if self.kills[task.bag.uri] < KILLS:
                return
            attempts = [Attempt(
                BROKEN, f'{KILLS} workers were ended while they read this bag, by the system or '
                'because they exceeded their memory limit. Raise --memory-limit, or lower '
                '--workers.')]
            record(task, attempts)
        # The catalogue could not be written from there, or the code there is another.
        except Exception as error:  # noqa: BLE001
            attempts = [Attempt(BROKEN, f'{type(error).__name__}: {error}')]
            record(task, attempts)
        finally:
            future.release()
        del self.tasks[task.bag.uri]
        self.summary.outcomes.update(item.outcome for item in attempts)
        new = [item for item in attempts if item.verdict]
        self.summary.verdicts.update(item.verdict for item in new)
        self.summary.robots.update(item.robot for item in new)
        finished = self.summary.bags - len(self.tasks)
        if not finished % _COMPACT_EVERY:
            self.catalogue.compact()
        self.progress(finished, storage.names_in_path(task.bag.uri)[-1])


def _first_of(client: Client, futures: list[Future]) -> set[Future]:
    """Return the futures that are done, at least one.

    Raises:
        _LostWorkersError: If none of this machine's workers is left.

    """
    there = monotonic()
    while True:
        try:
            with client.as_current():
                return wait(futures, _LOOK, 'FIRST_COMPLETED').done
        # Another class than TimeoutError on Python 3.10.
        except asyncio.TimeoutError:
            # Workers of a scheduler elsewhere may come and go.
            if client.cluster is None or client.nthreads():
                there = monotonic()
            elif monotonic() - there > _REPLACED + _LOOK:
                raise _LostWorkersError from None
