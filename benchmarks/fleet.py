# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the estimation of many bags, and of queries to a large catalogue."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import fleet_data
from benchmarks.benchmark import Benchmark, Figure, Outcome, Request
from benchmarks.offline_bag import write_long
from benchmarks.reference import recorded
from robocal_ros.cli.console import ProgressView
from robocal_ros.errors import RobocalError
from robocal_ros.fleet import ESTIMATED, Request as FleetRequest, find_bags, run as fleet
from robocal_ros.fleet.bags import BagPlace
from robocal_ros.fleet.task import Task, estimate_bag

EFFICIENCY_BAR, QUERY_BAR = 0.9, 1.0
"""Limits of the throughput [× workers × that of one process] and of a query [s]."""

_WORKERS = 2
_BAGS, _QUICK_BAGS = 500, 4
_DURATION, _QUICK_DURATION = 60.0, 20.0
_SINGLE, _QUICK_SINGLE = 20, 2
_ROBOTS, _WEEKS, _QUICK_WEEKS = 100, 270, 4
_REPEATS = 5
_REASON = ('start and end of the workers take 2 to 3 s, and the main process, which gives them '
           'bags, shares the cores with them.')
QUERIES = {
    'one parameter of a robot over time':
        'SELECT time, value, std, temperature FROM results '
        "WHERE robot = 'arm_042' AND parameter = 'joint_3.coulomb_forward' ORDER BY time",
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


def _throughput(folder: Path, seed: int, count: int, duration: float, single: int) -> list[Figure]:
    first = folder / 'recorded'
    write_long(recorded('friction', seed=seed, measure_joints=('joint_6',), speed_count=5,
                        min_speed=0.03), first, duration)
    for number in range(count):
        arm = folder / 'bags' / f'arm_{number:03d}'
        arm.mkdir(parents=True)
        for path in first.iterdir():
            os.link(path, arm / path.name)
    bags = find_bags([str(folder / 'bags')])
    alone = FleetRequest(str(folder / 'alone'), capabilities=('friction',),
                         robot_from='/(arm_[0-9]+)$')
    # The first one loads libraries. The others are timed before and after, as the load of the
    # machine may change.
    _alone(bags[:1], alone)
    half = bags[1:1 + single // 2]
    cases = _alone(half, alone)
    together = replace(alone, output=str(folder / 'together'))
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
    cases += _alone(half, replace(alone, output=str(folder / 'after')))
    began = perf_counter()
    fleet.estimate(bags, together, partial(fleet.workers, _WORKERS, '', ''), lambda *_: None)
    again = perf_counter() - began
    one = float(np.median(cases))
    rate = count / taken
    steady = (count - 1) / (arrivals[-1] - arrivals[0])
    series = f'{count} bags of {duration:.0f} s, {_WORKERS} workers'
    return [
        Figure.single(series, 'throughput, of workers × one process', '1', rate * one / _WORKERS,
                      EFFICIENCY_BAR, at_least=True, reason=_REASON),
        Figure.single(series, 'the same from the first bag on', '1', steady * one / _WORKERS),
        Figure.single(series, 'first bag after', 's', arrivals[0]),
        Figure.single(series, 'throughput', 'bags/min', 60.0 * rate),
        Figure.over(series, 'one bag in one process', 's', cases),
        Figure.single(series, 'second run, nothing to do', 's', again)]


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


def _queries(folder: Path, seed: int, weeks: int) -> list[Figure]:
    catalogue, rows = fleet_data.catalogue_of(fleet_data.fleet(_ROBOTS, weeks, seed), folder)
    began = perf_counter()
    catalogue.compact()
    series = f'catalogue of {rows} rows'
    figures = [Figure.single(series, 'compaction', 's', perf_counter() - began)]
    for name, sql in QUERIES.items():
        times = []
        for _ in range(_REPEATS):
            began = perf_counter()
            if not catalogue.query(sql):
                raise RobocalError(f'The catalogue does not answer: {sql}')
            times.append(perf_counter() - began)
        figures.append(Figure.over(series, name, 's', times, QUERY_BAR))
    size = sum(path.stat().st_size for path in folder.rglob('*.parquet')) / 1e6
    return [*figures, Figure.single(series, 'size', 'MB', size)]


def _run(request: Request) -> Outcome:
    quick, figures = request.quick, []
    for function, sizes in ((_throughput, (_QUICK_BAGS, _QUICK_DURATION, _QUICK_SINGLE) if quick
                             else (_BAGS, _DURATION, _SINGLE)),
                            (_queries, (_QUICK_WEEKS if quick else _WEEKS,))):
        with tempfile.TemporaryDirectory(dir=request.output) as folder:
            figures += function(Path(folder).absolute(), request.seeds[0], *sizes)
    return Outcome(figures)


BENCHMARK = Benchmark('Fleets of robots', (
    'Friction from many bags of a minute at 1 kHz by two worker processes, start of the workers '
    'and compaction of the catalogue included, compared with the same estimation of one bag after '
    'another in a process. The bags are one recording of the simulated default arm in many '
    'folders, each a robot of its own, and lie in the file cache. Queries are of the catalogue of '
    'a simulated fleet, the opening of its files included.'), _run)
