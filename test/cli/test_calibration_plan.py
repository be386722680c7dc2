# SPDX-License-Identifier: Apache-2.0
"""The plan of `robocal calibrate`, computed from what is there and what previews say."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from robocal_ros import registry
from robocal_ros.cli import calibration_plan as of
from robocal_ros.cli.calibration_plan import Action

MOUNTED = frozenset((of.TOOL, of.REMOVABLE, of.EFFORTS, of.MASS))


def plan(
    facts: frozenset[str], *purposes: str, hopeless: Collection[str] = ()
) -> list[str] | None:
    """Return the titles of the steps, without those that are hopeless."""
    steps = [step for step in of.actions(2.0) if step.title not in hopeless]
    found = of.cheapest(steps, facts, of.goals(purposes, facts) | facts & {of.TOOL})
    return None if found is None else [step.title for step in found]


def by_torque_without(*known: str) -> set[str]:
    """Return the titles of payload steps by torque that do not assume this."""
    return {step.title for step in of.actions(2.0) if step.procedure == 'payload'
            and of.EFFORTS in step.needs and not step.needs >= set(known)}


def test_every_step_is_of_a_registered_procedure_and_its_services() -> None:
    for step in of.actions(2.0):
        if not step.by_hand:
            assert step.procedure in registry.procedures()


def test_efforts_that_are_good_enough_need_the_tool_alone() -> None:
    assert plan(MOUNTED, 'gravity') == ['payload by joint torques at constant speed']


def test_gains_suffice_where_the_links_are_known() -> None:
    assert plan(MOUNTED, 'gravity', hopeless=by_torque_without(of.GAINS)) == [
        'drive gains by the weighed tool',
        'payload by joint torques at constant speed with calibrated drive gains']


NEED_ALL = {*by_torque_without(of.GAINS, of.LINKS), 'reference run without the tool'}
CHAIN = ['take the tool off', 'arm without load', 'mount the tool', 'arm with the weighed tool']


def test_where_gains_alone_fail_the_arm_is_identified_bare_and_with_the_weighed_tool() -> None:
    assert plan(MOUNTED, 'gravity', hopeless=NEED_ALL) == [
        *CHAIN, "payload by joint torques at constant speed with the arm's own links and "
        'calibrated drive gains']
    # What has been measured is not measured again, so that an interrupted plan goes on.
    assert plan(MOUNTED | {of.ARM_BARE}, 'gravity', hopeless=NEED_ALL)[0] == CHAIN[-1]
    assert plan(
        MOUNTED - {of.TOOL} | {of.BARE}, 'gravity', hopeless=NEED_ALL)[:3] == CHAIN[1:]
    # The weighed tool is what the drive gains come from.
    assert plan(MOUNTED - {of.MASS}, 'gravity', hopeless=NEED_ALL) is None
    assert plan(MOUNTED - {of.REMOVABLE}, 'gravity', hopeless=NEED_ALL) is None


def test_known_gains_need_no_load() -> None:
    steps = plan(MOUNTED | {of.GAINS}, 'gravity', hopeless=NEED_ALL)
    assert steps[:3] == CHAIN[:3]
    assert 'arm with the weighed tool' not in steps


def test_an_ft_sensor_needs_neither_gains_nor_scale() -> None:
    facts = frozenset((of.TOOL, of.SENSOR, of.EFFORTS))
    steps = tuple(of.actions())
    found = of.cheapest(steps, facts, of.goals(['gravity', 'contact'], facts))
    assert [step.title for step in found] == ['payload by the F/T sensor at rest', 'tare']
    told = of.left_out(steps, found, facts, {})
    assert 'friction' in told['Not needed']
    assert 'drive gains by the weighed tool' in told['Needs the mass of the tool from a scale']
    weighed = of.left_out(steps, found, facts | {of.MASS}, {})
    assert 'drive gains by the weighed tool' in weighed['Not needed']
    assert of.reason(found[0], found[1:], frozenset()) == '"tare" needs the payload'


@pytest.mark.parametrize(('purpose', 'last'), [
    ('contact', 'friction'), ('friction', 'friction')])
def test_friction_follows_the_payload_that_hangs_on_the_arm(purpose: str, last: str) -> None:
    steps = plan(MOUNTED, purpose)
    assert steps[-1] == last
    assert steps[0].startswith('payload')


def test_friction_is_measured_after_the_gains_that_are_its_unit() -> None:
    steps = plan(MOUNTED, 'gravity', 'friction', hopeless=NEED_ALL)
    assert steps[-1] == 'friction'
    assert steps[:4] == CHAIN


def test_compliance_ends_without_the_test_load() -> None:
    assert plan(MOUNTED, 'accuracy') is None, 'there is no tracker'
    steps = plan(MOUNTED | {of.TRACKER, of.TEST_LOAD, of.PAYLOAD}, 'accuracy')
    assert sorted(steps) == [
        'estimate of the compliance', 'mount the test load', 'postures with the test load',
        'postures without the test load with the tool', 'take the test load off']


def test_what_is_ruled_out_is_told_with_its_reason() -> None:
    steps = tuple(of.actions(2.0))
    ruled: dict[Action, str] = {step: 'expected to fail: ±36 mm' for step in steps
                                if step.title in by_torque_without(of.GAINS)}
    told = of.left_out(steps, (), MOUNTED, ruled)
    assert told['expected to fail: ±36 mm'] == sorted(by_torque_without(of.GAINS))
    assert 'tare' in told['Needs an F/T sensor']
