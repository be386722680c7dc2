# SPDX-License-Identifier: Apache-2.0
"""Inputs of results: content hashes, staleness, and propagated covariance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.result_examples import ROBOT, example

from robocal_ros.results.provenance import (
    CHECK,
    absence,
    choose,
    later,
    stale_inputs,
    with_inputs,
)
from robocal_ros.results.result import CalibrationResult, Check, Efforts, Parameter, Verdict
from robocal_ros.results.store import ResultStore, from_yaml, to_yaml

NAMES = ('a', 'b', 'c')
COVARIANCE = np.array([[4.0, 1.0, 0.0], [1.0, 9.0, -2.0], [0.0, -2.0, 16.0]]) * 1e-4


def result(
    kind: str, value=(1.0, 2.0, 3.0), covariance: np.ndarray = COVARIANCE
) -> CalibrationResult:
    names = NAMES[:len(value)]
    return replace(
        example(), kind=kind, covariance_names=names, covariance=covariance,
        parameters=tuple(Parameter(n, '1', float(v), float(np.sqrt(c)))
                         for n, v, c in zip(names, value, np.diag(covariance), strict=True)))


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, ROBOT)


def built(
    kind: str, store: ResultStore, *used: str, units: tuple[str, ...] = ()
) -> CalibrationResult:
    return with_inputs(result(kind), choose(store.load, used, units))


def test_of_a_kind_that_is_not_stored_it_is_known_why(store: ResultStore) -> None:
    assert absence(store.load, 'arm') == ''
    store.save(replace(result('arm'), source='night.mcap', checks=(
        Check('torque', False, 2.0, 1.0, 'N·m', '2 N·m are not explained.'),)))
    text = ' The last one (two_plane, night.mcap) did not pass: 2 N·m are not explained.'
    assert absence(store.load, 'arm') == text
    assert choose(store.load, ('arm', 'friction')).absent == {'arm': text, 'friction': ''}
    store.save(result('arm'))
    assert choose(store.load, ('arm', 'friction')).absent == {'friction': ''}


class TestHash:
    def test_it_survives_a_file(self) -> None:
        found = result('friction')
        assert from_yaml(to_yaml(found)).sha256 == found.sha256

    def test_it_depends_on_what_turned_efforts_into_torques(self) -> None:
        found = result('friction')
        hashes = {replace(found, efforts=efforts).sha256 for efforts in (
            None, Efforts('torque', 'all', (1.0,)), Efforts('current', 'all', (1.0,)),
            Efforts('torque', 'external', (1.0,)), Efforts('torque', 'all', (1.15,)))}
        assert len(hashes) == 5
        made = replace(found, efforts=Efforts('current', 'all', (7.07, 0.1 + 0.2)))
        assert from_yaml(to_yaml(made)).sha256 == made.sha256

    @pytest.mark.parametrize('change', [
        {'time': 5.0}, {'covariance': 2.0 * COVARIANCE}, {'frame': 'flange'},
        {'parameters': result('friction', (1.0, 2.0, 3.0 + 1e-15 * 4)).parameters}])
    def test_it_depends_on_the_content(self, change) -> None:
        found = result('friction')
        assert replace(found, **change).sha256 != found.sha256

    def test_it_ignores_the_presentation(self) -> None:
        found = result('friction')
        assert replace(found, series=(), checks=()).sha256 == found.sha256

    def test_it_depends_on_the_inputs(self, store) -> None:
        store.save(result('drive_gains'))
        assert built('friction', store, 'drive_gains').sha256 != result('friction').sha256

    def test_inputs_survive_a_file(self, store) -> None:
        store.save(result('drive_gains'))
        found = built('friction', store, 'drive_gains')
        (item,) = from_yaml(to_yaml(found)).inputs
        assert (item.kind, item.sha256) == ('drive_gains', result('drive_gains').sha256)

    def test_files_without_inputs_are_read(self) -> None:
        text = to_yaml(result('friction')).replace('inputs: []\n', '')
        assert from_yaml(text).inputs == ()


class TestStale:
    def test_a_prior_is_used_while_it_is_current_and_left_out_afterwards(self, store) -> None:
        store.save(result('drive_gains'))
        store.save(built('friction', store, 'drive_gains'))
        chosen = choose(store.load, (), ('drive_gains',), priors=('friction',))
        assert set(chosen.used) == {'drive_gains', 'friction'}
        assert {item.kind for item in chosen.listed} == {'drive_gains', 'friction'}
        store.save(result('drive_gains', (1.1, 2.0, 3.0)))
        chosen = choose(store.load, (), ('drive_gains',), priors=('friction', 'payload'))
        assert set(chosen.used) == {'drive_gains'}
        # Friction that is identified later does not make the estimate stale.
        assert {item.kind for item in chosen.listed} == {'drive_gains'}
        assert chosen.stale == ()

    def test_a_replaced_input_is_named(self, store) -> None:
        store.save(result('drive_gains'))
        found = built('friction', store, 'drive_gains')
        assert stale_inputs(found, store.load) == ()
        store.save(result('drive_gains', (1.1, 2.0, 3.0)))
        (text,) = stale_inputs(found, store.load)
        assert 'drive_gains' in text
        assert 'was replaced' in text

    def test_a_result_of_before_the_gains_is_stale(self, store) -> None:
        found = built('friction', store, units=('drive_gains',))
        assert found.verdict is Verdict.PASS
        assert stale_inputs(found, store.load) == ()
        store.save(result('drive_gains'))
        assert stale_inputs(found, store.load) == (
            'It was estimated before drive_gains was identified.',)

    @pytest.mark.parametrize('earlier', [False, True])
    def test_an_arm_is_stale_after_gains_that_were_built_on_it(self, store, earlier) -> None:
        if earlier:
            store.save(result('drive_gains', (1.1, 2.0, 3.0)))
        arm = built('arm', store, units=('drive_gains',))
        store.save(arm)
        gains = built('drive_gains', store, 'arm', units=('drive_gains',))
        store.save(gains)
        assert len(stale_inputs(arm, store.load)) == 1
        again = built('arm', store, units=('drive_gains',))
        store.save(again)
        assert stale_inputs(again, store.load) == stale_inputs(gains, store.load) == ()

    def test_an_input_that_only_might_have_been_used_may_be_stale(self, store) -> None:
        gains = replace(result('drive_gains'), time=20.0)
        store.save(replace(built('arm', store, units=('drive_gains',)), time=10.0))
        store.save(gains)
        chosen = choose(store.load, (), ('arm', 'drive_gains'))
        assert chosen.gains is not None
        assert chosen.gains.sha256 == gains.sha256
        assert set(chosen.used) == {'drive_gains'}
        for inputs, verdict in ((chosen, Verdict.PASS),
                                (choose(store.load, ('arm',), ('drive_gains',)), Verdict.FAIL)):
            found = with_inputs(result('payload'), inputs)
            assert found.verdict is verdict
            assert {item.kind for item in found.inputs} == {'arm', 'drive_gains'}

    def test_gains_replace_those_that_their_arm_lacks(self, store) -> None:
        store.save(built('arm', store, units=('drive_gains',)))
        store.save(built('drive_gains', store, 'arm'))
        inputs = choose(store.load, ('arm',), apart_from='drive_gains')
        assert with_inputs(result('drive_gains'), inputs).verdict is Verdict.PASS

    def test_what_was_estimated_with_the_other_is_later_whatever_its_samples(self, store) -> None:
        gains = replace(result('drive_gains'), time=20.0)
        arm = replace(result('arm'), time=10.0)
        assert later([gains, arm]) is later([arm, gains]) is gains
        with_gains = replace(arm, inputs=(gains.as_input(),))
        assert later([gains, with_gains]) is later([with_gains, gains]) is with_gains
        assert later([arm]) is arm
        assert later([]) is None

    def test_a_missing_input_that_changes_no_units_is_no_input(self, store) -> None:
        found = built('payload', store, 'friction')
        assert found.inputs == ()

    def test_nothing_passes_on_a_stale_input(self, store) -> None:
        store.save(result('drive_gains'))
        store.save(built('friction', store, 'drive_gains'))
        good = built('payload', store, 'friction')
        assert good.verdict is Verdict.PASS
        store.save(result('drive_gains', (1.1, 2.0, 3.0)))
        bad = built('payload', store, 'friction')
        assert bad.verdict is Verdict.FAIL
        (check,) = (check for check in bad.checks if check.name == CHECK)
        assert 'friction result is stale' in check.reason

    def test_results_estimated_from_each_other_in_turns_are_not_stale(self, store) -> None:
        store.save(result('payload'))
        friction = built('friction', store, 'payload')
        store.save(friction)
        payload = replace(built('payload', store, 'friction'), time=9.0)
        store.save(payload)
        assert stale_inputs(friction, store.load) == ()
        assert stale_inputs(payload, store.load) == ()
