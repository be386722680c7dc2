# SPDX-License-Identifier: Apache-2.0
"""The fault campaign in short: a few faults, and what it makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.friction_results import identity, payload_result

from benchmarks.faults import (
    CAPABILITIES,
    FAULTS,
    Outcome,
    Plan,
    campaign,
    kill_while_writing,
    product,
    subset,
    table,
)
from robocal_ros.results.store import ResultStore

SHORT = ('node stalled 0.1 to 0.5 s', 'controller aborts')


def test_each_fault_is_in_a_subset_as_often_as_in_others() -> None:
    chosen = subset(product(), 2 * len(FAULTS), 1)
    assert len(chosen) == 2 * len(FAULTS)
    counts = {fault.name: sum(plan.fault is fault for plan in chosen) for fault in FAULTS}
    assert set(counts.values()) <= {2, 3}
    assert subset(product(), 10**6, 1) == product()


def test_faults_in_mid_motion(tmp_path: Path) -> None:
    payload = CAPABILITIES[1]
    ResultStore(tmp_path / 'results', identity()).save(payload_result())
    plans = [Plan(payload, 'moving', fault) for fault in FAULTS if fault.name in SHORT]
    outcomes = list(campaign(plans, tmp_path, 1, prepare=False))
    assert len(outcomes) == len(SHORT)
    for outcome in outcomes:
        assert outcome.survived, outcome
        assert outcome.intact, outcome
        assert outcome.named is not False, outcome
        assert outcome.recovered, outcome
    assert f'| **all** | {len(SHORT)} |' in table(outcomes)


def test_kills_in_mid_write_damage_no_file(tmp_path: Path) -> None:
    stored = ResultStore(tmp_path / 'good', identity()).save(payload_result())
    assert kill_while_writing(stored, tmp_path / 'killed', 1, 4) == 0
    assert len(list((tmp_path / 'killed').rglob('*.yaml'))) > 4


@pytest.mark.parametrize('wrong', [
    {'survived': False}, {'within': False}, {'intact': False}, {'named': False},
    {'recovered': False}])
def test_what_goes_wrong_is_counted(wrong: dict[str, bool]) -> None:
    good = {'survived': True, 'held': 0.02, 'within': True, 'intact': True, 'named': True,
            'recovered': True}
    outcomes = [Outcome('a', 'moving', 'cancel', **good),
                Outcome('a', 'moving', 'cancel', **{**good, **wrong})]
    assert [outcome.good for outcome in outcomes] == [True, False]
    assert table(outcomes).count('1 of 2') == 2
