# SPDX-License-Identifier: Apache-2.0
"""The payload benchmark through the real nodes, over DDS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from benchmarks.figures import deviations
from benchmarks.payload import STATIC, TWO_PLANE, Case
from benchmarks.random_cell import random_truth, truth_document
from demo import default_cell
from demo.payload import PayloadTour
from demo.stage import open_stage
from robocal_ros.cli.console import OUT
from robocal_ros.errors import RobocalError

_SERIES = {
    'static_poses': (STATIC, ('mass', 'com_x', 'com_y', 'com_z')),
    'two_plane': (TWO_PLANE, ('com_x', 'com_y', 'com_z')),
}


def run_live(seeds: Sequence[int], output: Path) -> list[Case]:
    """Run the procedures of the nodes on drawn cells, one after the other.

    Args:
        seeds: Seeds of tools, joints, biases and noise.
        output: Folder for logs.

    Raises:
        RobocalError: If a procedure brings no result.

    """
    return [_live_case(seed, output / f'seed_{seed}') for seed in seeds]


def _live_case(seed: int, output: Path) -> Case:
    truth = random_truth(
        default_cell.hidden_truth(), seed, sensor=default_cell.WRIST_SENSOR)
    output.mkdir(parents=True, exist_ok=True)
    truth_file = output / 'truth.yaml'
    truth_file.write_text(yaml.safe_dump(truth_document(truth)), encoding='utf-8')
    OUT.print(f'Seed {seed}:')
    with open_stage(output, seed, full=True, truth_file=truth_file) as stage:
        outcomes = PayloadTour().run(stage)
    found = []
    for outcome in outcomes:
        if outcome.result is None:
            raise RobocalError(f'Seed {seed}, {outcome.title}: {outcome.message}')
        series, names = _SERIES[outcome.result.method]
        found += deviations(series, seed, outcome.result, outcome.truth, names)
    return Case(seed, tuple(found), ())
