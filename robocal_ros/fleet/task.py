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
from typing import Any

import pyarrow as pa
from distributed import get_worker

from robocal_ros import __version__, registry
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.estimators import Estimator, Follower, estimator
from robocal_ros.fleet import bags, catalogue, storage
from robocal_ros.messages import Bag, Selection, description_in
from robocal_ros.offline import OfflineEstimation, read_parameters
from robocal_ros.parameters import ParameterTable, declarations
from robocal_ros.results import default_directory, to_yaml
from robocal_ros.robot import make_robot, read_urdf

# Parameters that say where something is, not what is done with it.
_PLACES = ('robot_description', 'robot_name', 'results_dir')


@dataclass(frozen=True)
class Task:
    """One bag to estimate from.

    Attributes:
        bag: The bag.
        request: What to estimate.
        request_sha256: Its hash.
        bag_sha256: Hash of the bag's content, empty if unknown.

    """

    bag: bags.BagPlace
    request: bags.Request
    request_sha256: str
    bag_sha256: str = ''


@dataclass
class Attempt:
    """Outcome of an attempt at one capability of one arm in a bag, or at the whole bag.

    Attributes:
        outcome: One of the outcomes of the catalogue.
        reason: Reason in a sentence, empty for an estimate.
        robot: Name of the arm, as far as it is known.
        kind: Kind of the result.
        bag_sha256: Hash of the bag's content.
        inputs_sha256: Hash of all that the result depends on.
        result: Path of the result file within the output folder.
        verdict: Verdict of a result that is new, else empty.
        seconds: Time taken [s].

    """

    outcome: str = catalogue.ESTIMATED
    reason: str = ''
    robot: str = ''
    kind: str = ''
    bag_sha256: str = ''
    inputs_sha256: str = ''
    result: str = ''
    verdict: str = ''
    seconds: float = 0.0

    def fail(self, error: Exception) -> None:
        """Note why there is no estimate."""
        refused = isinstance(error, RobocalError)
        self.outcome = catalogue.REFUSED if refused else catalogue.BROKEN
        self.reason = str(error) if refused else (
            f'{type(error).__name__}: {" ".join(str(error).split())}')


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
        # Of the whole bag; a path may name the robot nevertheless.
        whole = Attempt(robot=bags.name_in_path(task.request, task.bag.uri))
        try:
            attempts = list(_attempts(task, Path(folder), whole))
        # Whatever is wrong with one bag must not stop the others.
        except Exception as error:  # noqa: BLE001
            whole.fail(error)
            whole.reason = whole.reason.replace(f'{_copy(task, Path(folder)).parent}/', '')
            attempts = [whole]
    whole.seconds = monotonic() - began
    record(task, attempts)
    return attempts


def _overrides(request: bags.Request, table: type[ParameterTable]) -> dict[str, str]:
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


def _copy(task: Task, folder: Path) -> Path:
    """Return the folder for a copy of a bag, which has the bag's name."""
    return folder / 'bag' / storage.names_in_path(task.bag.uri)[-1]


def _attempts(task: Task, folder: Path, whole: Attempt) -> Iterator[Attempt]:
    files = storage.fetched(task.bag.files, _copy(task, folder))
    sha256 = task.bag_sha256 or storage.sha256_of(files)
    with Bag(files[0].parent if len(files) > 1 else files[0]) as bag:
        arms = bags.arms_in(bag, task.request)
        if not any(arm.capabilities for arm in arms):
            whole.outcome, whole.bag_sha256 = catalogue.SKIPPED, sha256
            whole.reason = 'The marked runs are others than --capability names.'
            yield whole
        for arm in arms:
            for name in arm.capabilities:
                # What the observer yields of a bag as a whole is its tare.
                began, attempt = monotonic(), Attempt(
                    kind=registry.procedures()[name].kind, bag_sha256=sha256)
                try:
                    _estimate(task, bag, arm, estimator(name), folder, attempt)
                except Exception as error:  # noqa: BLE001
                    attempt.fail(error)
                attempt.seconds = monotonic() - began
                yield attempt


def _estimate(
    task: Task, bag: Bag, arm: bags.Arm, chosen: Estimator | Follower[Any], folder: Path,
    attempt: Attempt,
) -> None:
    """Estimate unless there is a result of the same inputs; errors as for the estimator."""
    request = task.request
    attempt.robot = bags.robot_name(request, task.bag.uri, arm)

    def fetched(uri: str, what: str) -> Path:
        (path,) = storage.fetched(
            [uri.replace(bags.ROBOT, attempt.robot)], folder / what / attempt.robot)
        return path

    # In a bag of one arm, its topics are found in whatever namespace they are.
    selection = Selection('' if arm.alone else arm.namespace, dict(request.remapped))
    files = [fetched(uri, f'parameters_{number}')
             for number, uri in enumerate(request.params_files)]
    values = read_parameters(
        chosen.table, chosen.node, files, _overrides(request, chosen.table), arm.namespace)
    urdf = (read_urdf(fetched(request.urdf, 'urdf')) if request.urdf
            else values.robot_description or description_in(bag, selection))
    robot = make_robot(urdf, replace(values, robot_name=attempt.robot or values.robot_name))
    attempt.robot = robot.name
    if not (arm.alone or request.namespace or request.robot_from == bags.NAMESPACE):
        attempt.robot = f'{robot.name}/{arm.namespace.strip("/")}'.rstrip('/')
    # Nothing of the home folder of whoever runs the worker is used.
    stored = _stored_results(request, folder, attempt.robot)
    values = replace(values, robot_name=attempt.robot, results_dir=str(stored))
    settings = _hash({
        'kind': attempt.kind, 'remapped': request.remapped,
        **{key: value for key, value in asdict(values).items() if key not in _PLACES}})
    inputs = _hash([__version__, attempt.kind, attempt.robot, arm.namespace, attempt.bag_sha256,
                    robot.identity.urdf_sha256, settings,
                    storage.sha256_of(sorted(stored.glob('*.yaml')))])
    path = f'results/{default_directory(attempt.robot).name}/{attempt.kind}-{inputs[:24]}.yaml'
    uri = storage.joined(request.output, *path.split('/'))
    if not storage.exists(uri):
        if isinstance(chosen, Follower):
            result = chosen.follow(bag, values, urdf, selection).tare()
            if result is None:
                raise ConfigurationError(
                    'The observer has no sensor whose bias is estimated. Check sensor_frames.')
        else:
            result = OfflineEstimation(chosen, bag, values, urdf, selection).run().result
        dated = result.time if result.time >= catalogue.DATED else max(result.time, bag.end)
        catalogue.Catalogue(request.output).add(catalogue.rows_of(
            result, dated, bag=task.bag.uri, bag_sha256=attempt.bag_sha256,
            settings_sha256=settings, inputs_sha256=inputs, result=path))
        storage.write_bytes(uri, to_yaml(result).encode())
        attempt.verdict = result.verdict.value
    attempt.inputs_sha256, attempt.result = inputs, path


def _stored_results(request: bags.Request, folder: Path, robot: str) -> Path:
    """Return a folder with the robot's stored results; it may not exist."""
    uri = request.results_dir.replace(bags.ROBOT, robot)
    if uri and storage.is_local(uri):
        return storage.local_path(uri)
    there = folder / 'results' / robot
    if uri:
        storage.fetched((storage.joined(uri, name) for name in storage.names_in(uri)
                         if name.endswith('.yaml')), there)
    return there


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
