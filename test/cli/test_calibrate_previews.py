# SPDX-License-Identifier: Apache-2.0
"""The plan of `robocal calibrate` with previews, without nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from robocal_ros.cli import calibrate, calibration_plan
from robocal_ros.cli.calibration_answers import Answers
from robocal_ros.cli.calibration_plan import Action
from robocal_ros.errors import ConfigurationError
from robocal_ros.payload import PayloadParameters

Judge = Callable[[Action, Mapping[str, Any]], str]
"""Returns the expected verdict of a step with the parameters that are assumed."""


class Guide(calibrate._Guide):
    """A guide whose previews are judged by a function."""

    def __init__(self, answers: Answers, judge: Judge, values: PayloadParameters) -> None:
        self.answers, self.judge = answers, judge
        self._ruled, self._previewed, self._again, self._assumed = {}, {}, set(), set()
        self._gain_std = 0.005
        self._running, self._efforts = {'payload_identification'}, True
        self._values = values
        self._graph = SimpleNamespace(wrenches={}, name=lambda name: f'/{name}')
        self._store = SimpleNamespace(load=lambda kind: None)
        self._before = Path(mkdtemp()) / 'before'
        self.restored: list[Mapping[str, Any]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def _of(self, step: Action) -> Any:
        return SimpleNamespace(parameters=lambda names: dict.fromkeys(names, 0.1),
                               set_parameters=self.restored.append)

    def _prepare(self, step: Action, assumed: Mapping[str, Any] | None = None) -> Any:
        def call(service: str, show: Any) -> Any:
            assert service == step.preview
            self.asked.append((step.title, dict(assumed or {})))
            verdict = self.judge(step, assumed or {})
            gains = ': joint_1.effort_scale ± 0.0392' if step.procedure == 'drive_gains' else ''
            return SimpleNamespace(success=True, message=(
                f'Expected verdict: {verdict}{gains}. It takes 77 s with rests.'))

        return SimpleNamespace(call=call)

    def titles(self) -> list[str]:
        return [step.title for step in self._planned() or ()]


def uncalibrated(step: Action, assumed: Mapping[str, Any]) -> str:
    """An arm whose payload is known with links and gains only."""
    good = step.procedure != 'payload' or {'gain_std', 'arm_model_std'} <= set(assumed)
    return 'pass' if good else 'fail'


def test_what_a_preview_assumes_ends_with_it() -> None:
    """A run with it would state too much; a start that was killed leaves it to the next one."""
    kept: list[str] = []

    def lost(step: Action, assumed: Mapping[str, Any]) -> str:
        if not assumed:
            return uncalibrated(step, assumed)
        kept.append(guide._before.read_text())
        raise ConfigurationError('The node does not answer.')

    guide = Guide(WEIGHED, lost, PayloadParameters())
    with pytest.raises(ConfigurationError, match='does not answer'):
        guide.titles()
    assert guide.restored[-1] == yaml.safe_load(kept[0])
    assert set(guide.restored[-1].values()) == {0.1}
    assert not guide._before.exists()


WEIGHED = Answers('gripper', mass=2.0, mass_std=0.005)


def test_previews_lead_to_the_chain_without_an_arm_by_name() -> None:
    guide = Guide(WEIGHED, uncalibrated, PayloadParameters())
    assert guide.titles()[:4] == [
        'take the tool off', 'arm without load', 'mount the tool', 'arm with the weighed tool']
    # What is assumed is put back after every preview.
    assert len(guide.restored) == len(guide.asked)
    assert guide.restored[-1] == {'gain_std': 0.1, 'arm_model_std': 0.1} or (
        guide.asked[-1][0] == 'arm without load')
    # As they are first; each is asked once.
    assert guide.asked[0] == ('payload by joint torques at constant speed', {})
    assert len({title for title, _ in guide.asked}) == len(guide.asked)
    assert guide._planned()[1].seconds == 77.0
    # The gains are assumed as well known as their own preview expects.
    assumed = next(own for _, own in guide.asked if set(own) == {'gain_std'})
    assert assumed['gain_std'] == pytest.approx(0.02, rel=1e-3)


def test_what_was_assumed_is_previewed_again_once_it_is_measured() -> None:
    guide = Guide(WEIGHED, uncalibrated, PayloadParameters())
    last = guide._planned()[-1]
    asked = len(guide.asked)
    guide.answers.done = [*calibration_plan.KNOWLEDGE, calibration_plan.ARM_BARE]
    guide.judge = lambda *_: 'fail'
    assert last.title not in guide.titles()
    assert guide.asked[asked] == (last.title, {})


def test_after_a_verdict_the_plan_goes_on_and_after_a_stop_it_does_not() -> None:
    guide = Guide(WEIGHED, lambda *_: 'pass', PayloadParameters())
    guide._options = SimpleNamespace(yes=None)
    (step,) = guide._planned()
    for message, stops in (('Verdict fail: too wide.', False), ('Protective stop.', True)):
        guide._prepare = lambda step, answer=message: SimpleNamespace(
            call=lambda service, show: SimpleNamespace(success=False, message=answer))
        assert bool(guide._carried_out(step)) is stops
        assert guide._ruled[step] == message


def test_good_efforts_need_no_chain() -> None:
    guide = Guide(WEIGHED, lambda *_: 'pass', PayloadParameters(gain_std=0.002))
    assert guide.titles() == ['payload by joint torques at constant speed']


def test_where_nothing_helps_there_is_no_plan_and_a_reason() -> None:
    guide = Guide(WEIGHED, lambda step, _: 'fail' if step.procedure == 'payload' else 'pass',
                  PayloadParameters())
    assert guide._planned() is None
    told = calibration_plan.left_out(guide._steps, (), guide._facts(), guide._ruled)
    assert any('Expected verdict fail: It takes 77 s' in why for why in told)


def test_a_node_that_is_not_running_is_named() -> None:
    answers = Answers('gripper', mass=2.0, purposes=['friction'])
    guide = Guide(answers, lambda *_: 'pass', PayloadParameters())
    assert guide._planned() is None
    assert 'node friction_identification is not running' in guide._ruled.values()


@pytest.mark.parametrize(('tool', 'mounted', 'fact'), [
    ('gripper', True, calibration_plan.TOOL), ('gripper', False, calibration_plan.BARE),
    ('', True, calibration_plan.BARE)])
def test_what_is_mounted(tool: str, mounted: bool, fact: str) -> None:
    guide = Guide(Answers(tool, mounted), lambda *_: 'pass', PayloadParameters())
    assert guide._facts() & calibration_plan.MOUNTS == {fact}
