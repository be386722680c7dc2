# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the estimation of many bags, and of queries to a large catalogue."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import Benchmark, Outcome, Request
from benchmarks.figures import Figure
from benchmarks.offline_bag import RecordedProcedures, write_long
from robocal_ros.cli.console import ProgressView
from robocal_ros.errors import RobocalError
from robocal_ros.fleet import (
    ESTIMATED,
    Catalogue,
    Request as FleetRequest,
    find_bags,
    run as fleet,
)
from robocal_ros.fleet.bags import BagPlace
from robocal_ros.fleet.catalogue import RESULTS, utc
from robocal_ros.fleet.task import Task, estimate_bag

EFFICIENCY_BAR, QUERY_BAR = 0.9, 1.0
"""Limits of the throughput [× workers × that of one process] and of a query [s]."""

_WORKERS = 2
_BAGS, _QUICK_BAGS = 500, 4
_DURATION, _QUICK_DURATION = 60.0, 20.0
_SINGLE, _QUICK_SINGLE = 20, 2
_ROWS, _QUICK_ROWS = 10**6, 10**4
_ROBOTS, _PARAMETERS, _PART = 100, 20, 50_000
_REPEATS = 5
_REASON = ('start and end of the workers take 2 to 3 s, and the main process, which gives them '
           'bags, shares the cores with them.')
QUERIES = {
    'one parameter of a robot over time':
        'SELECT time, value, std, temperature FROM results '
        "WHERE robot = 'arm_042' AND parameter = 'joint_3.q_1' ORDER BY time",
    'newest verdict of every robot and kind':
        'SELECT robot, kind, count(DISTINCT result), max(time), arg_max(verdict, time) '
        'FROM results GROUP BY robot, kind',
    'drift of every parameter of every robot':
        'SELECT robot, parameter, regr_slope(value, epoch(time)), avg(value), stddev(value) '
        'FROM results GROUP BY robot, parameter',
    'newest values of the whole fleet':
        'SELECT robot, parameter, arg_max(value, time) FROM results GROUP BY robot, parameter',
}
"""Questions to a catalogue."""


class FleetBenchmark(Benchmark):
    """Estimates friction from many bags, and asks a catalogue questions."""

    title = 'Fleets of robots'
    about = (
        'Friction from many bags of a minute at 1 kHz by two worker processes, start of the '
        'workers and compaction of the catalogue included, compared with the same estimation of '
        'one bag after another in a process. The bags are one recording of the simulated default '
        'arm in many folders, each a robot of its own, and lie in the file cache. Queries are of '
        'a catalogue with drawn values, the opening of its files included.')
    seeds = 1

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        quick = request.quick
        with tempfile.TemporaryDirectory(dir=request.output) as folder:
            throughput = _throughput(
                Path(folder).absolute(), request.seeds[0], _QUICK_BAGS if quick else _BAGS,
                _QUICK_DURATION if quick else _DURATION, _QUICK_SINGLE if quick else _SINGLE)
        with tempfile.TemporaryDirectory(dir=request.output) as folder:
            queries = _queries(
                Path(folder).absolute(), request.seeds[0], _QUICK_ROWS if quick else _ROWS)
        return Outcome([*throughput, *queries])


def _throughput(
    folder: Path, seed: int, count: int, duration: float, single: int
) -> list[Figure]:
    recorded = folder / 'recorded'
    write_long(RecordedProcedures(seed).friction(), recorded, duration)
    for number in range(count):
        arm = folder / 'bags' / f'arm_{number:03d}'
        arm.mkdir(parents=True)
        for path in recorded.iterdir():
            os.link(path, arm / path.name)
    bags = find_bags([str(folder / 'bags')])
    alone = FleetRequest(str(folder / 'alone'), capabilities=('friction',),
                         robot_from='/(arm_[0-9]+)$')
    # The first one loads libraries. The others are timed before and after, as the load of the
    # machine may change.
    _alone(bags[:1], alone)
    half = bags[1:1 + single // 2]
    cases = _alone(half, alone)
    together = FleetRequest(str(folder / 'together'), capabilities=('friction',),
                            robot_from='/(arm_[0-9]+)$')
    began = perf_counter()
    arrivals = []
    with ProgressView(f'{count} bags') as view:
        def progress(done: int, name: str) -> None:
            arrivals.append(perf_counter() - began)
            view.update(100.0 * done / count, name)

        summary = fleet.estimate(
            bags, together, partial(fleet.workers, _WORKERS, '', ''), progress)
    taken = perf_counter() - began
    if summary.verdicts.total() != count:
        raise RobocalError(f'Expected {count} results, got {dict(summary.outcomes)}.')
    cases += _alone(half, FleetRequest(
        str(folder / 'after'), capabilities=('friction',), robot_from='/(arm_[0-9]+)$'))
    began = perf_counter()
    fleet.estimate(bags, together, partial(fleet.workers, _WORKERS, '', ''), lambda *_: None)
    again = perf_counter() - began
    one = float(np.median(cases))
    rate = count / taken
    steady = (count - 1) / (arrivals[-1] - arrivals[0])
    series = f'{count} bags of {duration:.0f} s, {_WORKERS} workers'
    return [
        Figure(series, 'throughput, of workers × one process', '1', rate * one / _WORKERS,
               rate * one / _WORKERS, EFFICIENCY_BAR, at_least=True, reason=_REASON),
        Figure(series, 'the same from the first bag on', '1', steady * one / _WORKERS,
               steady * one / _WORKERS),
        Figure(series, 'first bag after', 's', arrivals[0], arrivals[0]),
        Figure(series, 'throughput', 'bags/min', 60.0 * rate, 60.0 * rate),
        Figure.over(series, 'one bag in one process', 's', cases),
        Figure(series, 'second run, nothing to do', 's', again, again)]


def _alone(bags: list[BagPlace], request: FleetRequest) -> list[float]:
    """Return the times of each bag, one after the other in this process [s]."""
    times = []
    for place in bags:
        began = perf_counter()
        (attempt,) = estimate_bag(Task(place, request, ''))
        times.append(perf_counter() - began)
        if attempt.outcome != ESTIMATED:
            raise RobocalError(f'No estimate from {place.uri}: {attempt.reason}')
    return times


def _queries(folder: Path, seed: int, rows: int) -> list[Figure]:
    catalogue = Catalogue(str(folder))
    rng = np.random.default_rng(seed)
    per_part = min(_PART, rows)
    for first in range(0, rows, per_part):
        catalogue.add(_drawn(rng, first, per_part))
    began = perf_counter()
    catalogue.compact()
    series = f'catalogue of {rows} rows'
    compaction = perf_counter() - began
    figures = [Figure(series, 'compaction', 's', compaction, compaction)]
    for name, sql in QUERIES.items():
        times = []
        for _ in range(_REPEATS):
            began = perf_counter()
            if not catalogue.query(sql):
                raise RobocalError(f'The catalogue does not answer: {sql}')
            times.append(perf_counter() - began)
        figures.append(Figure.over(series, name, 's', times, QUERY_BAR))
    size = sum(
        path.stat().st_size for path in folder.rglob('*.parquet')) / 1e6
    return [*figures, Figure(series, 'size', 'MB', size, size)]


def _drawn(rng: np.random.Generator, first: int, count: int) -> pa.Table:
    """Return rows of results of 20 parameters, of robots in turn, an hour apart."""
    number = np.arange(first, first + count)
    result, parameter = np.divmod(number, _PARAMETERS)
    robot, joint = result % _ROBOTS, parameter % 6 + 1
    start = utc(1.7e9)
    columns = {
        'robot': [f'arm_{item:03d}' for item in robot], 'kind': ['friction'] * count,
        'method': ['runs'] * count,
        'verdict': np.where(result % 17 == 0, 'fail', 'pass').tolist(),
        'parameter': [f'joint_{a}.q_{b}' for a, b in zip(joint, parameter // 6, strict=True)],
        'joint': [f'joint_{item}' for item in joint],
        'quantity': [f'q_{item}' for item in parameter // 6], 'unit': ['N·m'] * count,
        'value': rng.normal(1.0, 0.1, count), 'std': rng.uniform(0.01, 0.1, count),
        'freedom': rng.uniform(5.0, 50.0, count), 'state': ['identified'] * count,
        'time': np.datetime64(start.replace(tzinfo=None), 'us')
                + result.astype('timedelta64[h]').astype('timedelta64[us]'),
        'temperature': rng.normal(35.0, 5.0, count),
        'bag': [f's3://hall/arm_{a:03d}/run_{b:06d}' for a, b in zip(robot, result, strict=True)],
        'bag_sha256': [f'{item:064x}' for item in result], 'urdf_sha256': ['u' * 64] * count,
        'settings_sha256': ['s' * 64] * count,
        'inputs_sha256': [f'{item:064x}' for item in result],
        'result': [f'results/arm_{a:03d}/friction-{b:024x}.yaml'
                   for a, b in zip(robot, result, strict=True)],
        'version': ['0.1.0'] * count}
    return pa.table([pa.array(columns[field.name], type=field.type) for field in RESULTS], RESULTS)


BENCHMARK = FleetBenchmark()
