# SPDX-License-Identifier: Apache-2.0
"""One method in a process of its own: answer and processor time.

The same code measures the product's methods and those of other tools, whose environment has
neither the product nor ROS: here, only the standard library and NumPy are imported.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

ENVIRONMENT = 'ROBOCAL_PEERS'
"""Environment variable with the folder of the other tools' virtual environment."""

_REPEATS = 3
_LONG = 3.0
_LIMIT = 900.0
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """What a method did.

    Attributes:
        answer: What it returned; None if it did not run.
        seconds: Processor time of the estimation, the median of three after a first one [s].
        reason: Reason why it did not run or gave no answer; else empty.

    """

    answer: Any = None
    seconds: float = np.nan
    reason: str = ''


def available() -> Path | None:
    """Return the Python of the other tools' environment, None if they are not installed."""
    python = Path(os.environ.get(ENVIRONMENT, '')) / 'bin' / 'python'
    return python if ENVIRONMENT in os.environ and python.exists() else None


def run(method: str, /, *, peer: bool = False, repeats: int = _REPEATS, **arguments: Any) -> Run:
    """Call a method in a process of its own.

    Its function is a generator: it prepares and yields, estimates and yields, and yields the
    answer. The estimation alone is measured; reading models and predicting are not counted.

    Args:
        method: Module and function, such as ``benchmarks.peers.methods:textbook``.
        peer: Whether it needs the environment of the other tools.
        repeats: How often it is repeated to measure its time.
        arguments: Arguments of the function.

    """
    python = available() if peer else sys.executable
    if python is None:
        return Run(reason='not run: `scripts/bench --with-peers` installs the other tools')
    environment = {**os.environ, 'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1',
                   'MPLBACKEND': 'Agg'}
    if peer:
        # The libraries of the product's environment are not those of this one.
        environment = {name: text for name, text in environment.items()
                       if name not in ('LD_LIBRARY_PATH', '_ROS_WHEELS_BOOTSTRAP_COMPLETE')}
        environment['PYTHONPATH'] = str(_ROOT)
    try:
        done = subprocess.run(
            [str(python), '-m', 'benchmarks.peers.process', method, str(repeats)],
            input=pickle.dumps(arguments), capture_output=True, timeout=_LIMIT, check=False,
            env=environment, cwd=_ROOT)
    except subprocess.TimeoutExpired:
        return Run(reason=f'gave no answer within {_LIMIT:.0f} s')
    if done.returncode != 0:
        last = done.stderr.decode(errors='replace').strip().rpartition('\n')[2]
        return Run(reason=f'the process ended: {last}')
    return Run(*pickle.loads(done.stdout))


def measured(method: Callable[[], Iterator[Any]], repeats: int) -> tuple[Any, float]:
    """Return the answer of a method, and its processor time [s]."""
    times: list[float] = []
    while not times or (len(times) <= repeats and sum(times) < _LONG):
        steps = method()
        next(steps)
        began = process_time()
        next(steps)
        times.append(process_time() - began)
    return next(steps), float(np.median(times[1:] or times))


def _main() -> None:
    """Read arguments from standard input, call the function, write what it did."""
    arguments = pickle.load(sys.stdin.buffer)
    output = os.fdopen(os.dup(1), 'wb')
    # Tools that print would spoil the answer.
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(':')
    found: tuple[Any, ...]
    try:
        function = getattr(importlib.import_module(module), name)
        found = (*measured(partial(function, **arguments), int(sys.argv[2])), '')
    except ImportError as error:
        found = None, np.nan, f'not run: {error}'
    except Exception as error:  # noqa: BLE001 - what another tool raises is its answer
        found = None, np.nan, f'{type(error).__name__}: {error}'
    with output:
        pickle.dump(found, output)


if __name__ == '__main__':
    _main()
