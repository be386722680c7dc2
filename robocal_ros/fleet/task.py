# SPDX-License-Identifier: Apache-2.0
"""Estimation from one bag on a worker."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic, time

import pyarrow as pa
from distributed import get_worker

from robocal_ros import __version__, registry
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.estimators import Follower, estimator
from robocal_ros.fleet import catalogue, storage
from robocal_ros.fleet.bags import (
    NAMESPACE,
    ROBOT,
    Arm,
    BagPlace,
    Request,
    arms_in,
    name_in_path,
    robot_name,
)
from robocal_ros.messages import Bag, Selection, description_in
from robocal_ros.offline import OfflineEstimation, read_parameters
from robocal_ros.parameters import ParameterTable, declarations
from robocal_ros.results import default_directory, to_yaml
from robocal_ros.robot import make_robot, read_urdf

# Parameters that say where something is, not what is done with it.
_PLACES = ('robot_description', 'robot_name', 'results_dir')
# Stamps before this are not of a clock that shows the date [s].
_DATED = 1e9


@dataclass(frozen=True)
class Task:
    """One bag to estimate from.

    Attributes:
        bag: The bag.
        request: What to estimate.
        request_sha256: Its hash.
        bag_sha256: Hash of the bag's content, empty if unknown.

    """

    bag: BagPlace
    request: Request
    request_sha256: str
    bag_sha256: str = ''


@dataclass(frozen=True)
class Attempt:
    """Outcome of an attempt at one capability of one arm in a bag, or at the whole bag.

    Attributes:
        outcome: One of the outcomes of the catalogue.
        reason: Reason in a sentence, empty for an estimate.
        robot: Name of the arm.
        kind: Kind of the result.
        bag_sha256: Hash of the bag's content.
        inputs_sha256: Hash of all that the result depends on.
        result: Path of the result file within the output folder.
        verdict: Verdict of a result that is new, else empty.
        seconds: Time taken [s].

    """

    outcome: str
    reason: str = ''
    robot: str = ''
    kind: str = ''
    bag_sha256: str = ''
    inputs_sha256: str = ''
    result: str = ''
    verdict: str = ''
    seconds: float = 0.0


def estimate_bag(task: Task) -> list[Attempt]:
    """Estimate all that a bag answers, write the results and record the attempts.

    Results are written before they are recorded: an attempt that was interrupted is repeated, and
    finds those that are complete.

    Raises:
        OSError: If the attempts cannot be recorded.

    """
    began = monotonic()
    # The worker's folder is removed by Dask even if the worker was killed.
    try:
        scratch = get_worker().local_directory
    except ValueError:
        scratch = None
    with tempfile.TemporaryDirectory(prefix='robocal-fleet-', dir=scratch) as folder:
        try:
            attempts = list(_attempts(task, Path(folder)))
        # Whatever is wrong with one bag must not stop the others.
        except Exception as error:  # noqa: BLE001
            found = _failed(error)
            copy = f'{_copy(task, Path(folder)).parent}/'
            attempts = [replace(found, reason=found.reason.replace(copy, ''))]
    if not attempts[0].kind:
        # Of the whole bag; a path may name the robot nevertheless.
        attempts = [replace(attempts[0], robot=name_in_path(task.request, task.bag.uri),
                            seconds=monotonic() - began)]
    record(task, attempts)
    return attempts


def _overrides(request: Request, table: type[ParameterTable]) -> dict[str, str]:
    """Return the single parameters but for those that only other capabilities have."""
    foreign = {item.name for name in registry.estimators()
               for item in declarations(estimator(name).table)}
    foreign -= {item.name for item in declarations(table)}
    return {name: text for name, text in request.overrides if name not in foreign}


def record(task: Task, attempts: list[Attempt]) -> None:
    """Record attempts at a bag in the catalogue; raises OSError."""
    common = {'bag': task.bag.uri, 'fingerprint': task.bag.fingerprint, 'version': __version__,
              'request_sha256': task.request_sha256, 'tried': catalogue.utc(time())}
    catalogue.Catalogue(task.request.output).add(pa.Table.from_pylist(
        [{**asdict(item), **common} for item in attempts], catalogue.BAGS))


def _failed(error: Exception) -> Attempt:
    if isinstance(error, RobocalError):
        return Attempt(catalogue.REFUSED, str(error))
    return Attempt(catalogue.BROKEN, f'{type(error).__name__}: {" ".join(str(error).split())}')


def _copy(task: Task, folder: Path) -> Path:
    """Return the folder for a copy of a bag, which has the bag's name."""
    return folder / 'bag' / storage.names_in_path(task.bag.uri)[-1]


def _attempts(task: Task, folder: Path) -> Iterator[Attempt]:
    files = storage.fetched(task.bag.files, _copy(task, folder))
    whole = files[0].parent if len(files) > 1 else files[0]
    sha256 = task.bag_sha256 or storage.sha256_of(files)
    with Bag(whole) as bag:
        arms = arms_in(bag, task.request)
        if not any(arm.capabilities for arm in arms):
            yield Attempt(catalogue.SKIPPED, 'The marked runs are others than --capability names.',
                          bag_sha256=sha256)
        for arm in arms:
            for name in arm.capabilities:
                began = monotonic()
                work = _Estimate(task, bag, sha256, arm, name, folder)
                try:
                    attempt = work.run()
                except Exception as error:  # noqa: BLE001
                    attempt = _failed(error)
                yield replace(attempt, robot=work.robot, kind=work.kind, bag_sha256=sha256,
                              seconds=monotonic() - began)


class _Estimate:
    """Estimation of one capability of one arm from a bag.

    Attributes:
        robot: Name of the arm, as far as it is known.
        kind: Kind of the result.

    """

    def __init__(
        self, task: Task, bag: Bag, bag_sha256: str, arm: Arm, name: str, folder: Path
    ) -> None:
        self._task, self._bag, self._arm = task, bag, arm
        self._bag_sha256, self._folder = bag_sha256, folder
        self._capability = estimator(name)
        # What the observer yields of a bag as a whole is its tare.
        self.kind = registry.procedures()[name].kind
        # In a bag of one arm, its topics are found in whatever namespace they are.
        self._selection = Selection(
            '' if arm.alone else arm.namespace, dict(task.request.remapped))
        self.robot = ''

    def run(self) -> Attempt:
        """Estimate unless there is a result of the same inputs; errors as for the estimator."""
        request, chosen = self._task.request, self._capability
        self.robot = robot_name(request, self._task.bag.uri, self._arm)
        files = [self._fetched(uri, f'parameters_{number}')
                 for number, uri in enumerate(request.params_files)]
        values = read_parameters(
            chosen.table, chosen.node, files, _overrides(request, chosen.table),
            self._arm.namespace)
        urdf = (read_urdf(self._fetched(request.urdf, 'urdf')) if request.urdf
                else values.robot_description or description_in(self._bag, self._selection))
        arm = make_robot(urdf, replace(values, robot_name=self.robot or values.robot_name))
        self.robot = arm.name
        if not (self._arm.alone or request.namespace or request.robot_from == NAMESPACE):
            self.robot = f'{arm.name}/{self._arm.namespace.strip("/")}'.rstrip('/')
        # Nothing of the home folder of whoever runs the worker is used.
        stored = self._stored_results()
        values = replace(values, robot_name=self.robot, results_dir=str(stored))
        settings = _hash({
            'kind': self.kind, 'remapped': request.remapped,
            **{key: value for key, value in asdict(values).items() if key not in _PLACES}})
        inputs = _hash([__version__, self.kind, self.robot, self._arm.namespace,
                        self._bag_sha256, arm.identity.urdf_sha256, settings,
                        storage.sha256_of(sorted(stored.glob('*.yaml')))])
        path = f'results/{default_directory(self.robot).name}/{self.kind}-{inputs[:24]}.yaml'
        uri = storage.joined(request.output, *path.split('/'))
        if storage.exists(uri):
            return Attempt(catalogue.ESTIMATED, inputs_sha256=inputs, result=path)
        if isinstance(chosen, Follower):
            result = chosen.follow(self._bag, values, urdf, self._selection).tare()
            if result is None:
                raise ConfigurationError(
                    'The observer has no sensor whose bias is estimated. Check sensor_frames.')
        else:
            result = OfflineEstimation(
                chosen, self._bag, values, urdf, self._selection).run().result
        dated = result.time if result.time >= _DATED else max(result.time, self._bag.end)
        catalogue.Catalogue(request.output).add(catalogue.rows_of(
            result, dated, bag=self._task.bag.uri, bag_sha256=self._bag_sha256,
            settings_sha256=settings, inputs_sha256=inputs, result=path))
        storage.write_bytes(uri, to_yaml(result).encode())
        return Attempt(catalogue.ESTIMATED, inputs_sha256=inputs, result=path,
                       verdict=result.verdict.value)

    def _fetched(self, uri: str, what: str) -> Path:
        """Return the path of a file of the robot on this machine."""
        (path,) = storage.fetched(
            [uri.replace(ROBOT, self.robot)], self._folder / what / self.robot)
        return path

    def _stored_results(self) -> Path:
        """Return a folder with the robot's stored results; it may not exist."""
        uri = self._task.request.results_dir.replace(ROBOT, self.robot)
        if not uri:
            return self._folder / 'none'
        if storage.is_local(uri):
            return storage.local_path(uri)
        folder = self._folder / 'results' / self.robot
        storage.fetched((storage.joined(uri, name) for name in storage.names_in(uri)
                         if name.endswith('.yaml')), folder)
        return folder


def _hash(content: object) -> str:
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
