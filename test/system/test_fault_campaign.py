# SPDX-License-Identifier: Apache-2.0
"""The fault campaign in short: a few faults, and what it makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.friction_results import identity, payload_result

from benchmarks.faults import CAPABILITIES, FAULTS, Plan, campaign, kill_while_writing, table
from robocal_ros.results import ResultStore

SHORT = ('node stalled 0.1 to 0.5 s', 'controller aborts')


# A node is stalled for a time of the wall clock; one whose machine is late, too, names that.
@pytest.mark.realtime
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
