# SPDX-License-Identifier: Apache-2.0
"""The plan of `robocal calibrate`, computed from what is there and what previews say."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from msgspec import structs
from support.friction_results import friction_result

from robocal_ros import registry
from robocal_ros.cli import calibrate, calibration_plan, calibration_plan as of
from robocal_ros.cli.calibrate import Answers, as_parameters, asked, confirmed
from robocal_ros.cli.calibration_plan import Action
from robocal_ros.cli.main import main
from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.payload import PayloadParameters
from robocal_ros.results import CalibrationResult
from robocal_ros.results.result import Input

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
    assert plan(MOUNTED - {of.TOOL} | {of.BARE}, 'gravity', hopeless=NEED_ALL)[:3] == CHAIN[1:]
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


@pytest.mark.parametrize(('purpose', 'last'), [('contact', 'friction'), ('friction', 'friction')])
def test_friction_follows_the_payload_that_hangs_on_the_arm(purpose: str, last: str) -> None:
    steps = plan(MOUNTED, purpose)
    assert steps[-1] == last
    assert steps[0].startswith('payload')


def test_friction_is_measured_after_the_gains_that_are_its_unit() -> None:
    steps = plan(MOUNTED, 'gravity', 'friction', hopeless=NEED_ALL)
    assert steps[-1] == 'friction'
    assert steps[:4] == CHAIN


FRAMES = 'frames of the joints with the tool'


def test_accuracy_is_frames_and_with_a_test_load_compliance() -> None:
    assert plan(MOUNTED, 'accuracy') is None, 'there is no tracker'
    tracked = MOUNTED | {of.TRACKER, of.PAYLOAD}
    assert plan(tracked, 'accuracy') == [FRAMES]
    steps = plan(tracked | {of.TEST_LOAD}, 'accuracy')
    sets = ['postures without the test load with the tool', 'mount the test load',
            'postures with the test load', 'take the test load off', 'estimate of the compliance']
    assert sorted(steps) == sorted([*sets, FRAMES])
    # Not between the sets, which would be lost, nor with the load, of which it does not know.
    assert steps.index(FRAMES) in (0, len(sets))


def test_what_is_ruled_out_is_told_with_its_reason() -> None:
    steps = tuple(of.actions(2.0))
    ruled: dict[Action, str] = {step: 'expected to fail: ±36 mm' for step in steps
                                if step.title in by_torque_without(of.GAINS)}
    told = of.left_out(steps, (), MOUNTED, ruled)
    assert told['expected to fail: ±36 mm'] == sorted(by_torque_without(of.GAINS))
    assert 'tare' in told['Needs an F/T sensor']


Judge = Callable[[Action, Mapping[str, Any]], str]
"""Returns the expected verdict of a step with the parameters that are assumed."""


class Guide(calibrate.Guide):
    """A guide whose previews are judged by a function."""

    def __init__(self, answers: Answers, judge: Judge, values: PayloadParameters) -> None:
        self.answers, self.judge = copy(answers), judge
        self._ruled, self._previewed, self._again, self._assumed = {}, {}, set(), set()
        self._near: dict[Action, str] = {}
        self._gain_std = 0.005
        self._running, self._efforts = {'payload_identification'}, True
        self._values = values
        self._graph = SimpleNamespace(wrenches={}, name=lambda name: f'/{name}')
        self._robot = SimpleNamespace(joint_names=('joint_5', 'joint_6'))
        self.stored: dict[str, CalibrationResult] = {}
        self._store = SimpleNamespace(load=self.stored.get, path=lambda kind: Path(__file__))
        self._before = Path(mkdtemp()) / 'before'
        self.restored: list[Mapping[str, Any]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.after_gains: list[str] = []

    def _of(self, step: Action) -> Any:
        return SimpleNamespace(parameters=lambda names: dict.fromkeys(names, 0.1),
                               set_parameters=self.restored.append)

    def _prepare(self, step: Action, assumed: Mapping[str, Any] | None = None) -> Any:
        def call(service: str, show: Any) -> Any:
            if service != step.preview:
                assert service == 'preview_after_gains'
                self.after_gains.append(step.title)
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
    # Payloads after gains are previewed with those that are expected, and their links.
    assert guide.after_gains == [title for title, _ in guide.asked if (
        'with calibrated drive gains' in title or title.startswith('reference run'))]
    assert len(guide.after_gains) > 1


def test_the_bare_arm_is_previewed_with_gains_as_well_known_as_their_own_preview_expects() -> None:
    guide = Guide(WEIGHED, uncalibrated, PayloadParameters())
    guide._ruled |= {step: 'Verdict fail.' for step in guide._steps
                     if step.title == 'arm with the weighed tool'}
    assert guide.titles()[:3] == [
        'drive gains by the weighed tool', 'take the tool off', 'arm without load']
    assumed = next(own for _, own in guide.asked if set(own) == {'gain_std'})
    assert assumed['gain_std'] == pytest.approx(0.02, rel=1e-3)


def test_evidence_that_a_preview_assumes_is_not_missing() -> None:
    """Without a result of the arm nothing shows that its model holds, which the plan provides."""
    def judge(step: Action, assumed: Mapping[str, Any]) -> str:
        verdict = uncalibrated(step, assumed)
        return 'not_evaluated' if verdict == 'pass' and step.procedure == 'payload' else verdict

    assert Guide(WEIGHED, judge, PayloadParameters()).titles()[:4] == CHAIN
    # As measured, it is.
    guide = Guide(WEIGHED, lambda step, _: 'not_evaluated', PayloadParameters(gain_std=0.002))
    assert 'payload by joint torques at constant speed' not in guide.titles()


def test_what_was_assumed_is_previewed_again_once_it_is_measured() -> None:
    guide = Guide(WEIGHED, uncalibrated, PayloadParameters())
    last = guide._planned()[-1]
    asked = len(guide.asked)
    guide.answers.done = [*calibration_plan.KNOWLEDGE, calibration_plan.ARM_BARE]
    guide.judge = lambda *_: 'fail'
    assert last.title not in guide.titles()
    assert guide.asked[asked] == (last.title, {})


@pytest.mark.parametrize(('answer', 'seconds'), [('pass', 77.0), ('fail', 1000.0)])
def test_friction_is_previewed_before_the_payload_is_known(answer: str, seconds: float) -> None:
    """For its time. Without a payload, a preview that fails says nothing of the step."""
    guide = Guide(
        Answers('gripper', mass=2.0, mass_std=0.005, purposes=['friction']),
        lambda step, _: answer if step.procedure == 'friction' else 'pass',
        PayloadParameters(gain_std=0.002))
    guide._running.add('friction_identification')
    last = guide._planned()[-1]
    assert (last.title, last.seconds) == ('friction', seconds)
    assert last in guide._assumed
    guide.answers.done = [calibration_plan.PAYLOAD]
    assert (guide.titles()[-1:] == ['friction']) == (answer == 'pass')


def test_to_ask_nobody_and_to_ask_before_motion_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / 'answers.yaml')
    assert main(['calibrate', '--yes', file, '--answers', file]) == 2
    assert '--yes asks nobody, and --answers asks before the arm moves' in capsys.readouterr().err


def test_after_a_verdict_the_plan_goes_on_and_after_a_stop_it_does_not() -> None:
    guide = Guide(WEIGHED, lambda *_: 'pass', PayloadParameters())
    guide._options = SimpleNamespace(yes=None, answers=None)
    (step,) = guide._planned()
    for message, stops in (('Verdict fail: too wide.', False), ('Protective stop.', True)):
        guide._prepare = lambda step, answer=message: SimpleNamespace(
            call=lambda service, show: SimpleNamespace(success=False, message=answer))
        assert bool(guide._carried_out(step)) is stops
        assert guide._ruled[step] == message


def test_a_motion_that_failed_is_not_repeated_for_another_use() -> None:
    """Without load, the arm may be identified with gains or without."""
    guide = Guide(WEIGHED, uncalibrated, PayloadParameters())
    guide._options = SimpleNamespace(yes=None, answers=None)
    guide._prepare = lambda step: SimpleNamespace(
        call=lambda service, show: SimpleNamespace(success=False, message='Verdict fail: so.'))
    bare = [step for step in guide._steps if step.title == 'arm without load']
    assert len(bare) == 2
    guide._carried_out(bare[0])
    assert set(bare) <= set(guide._ruled)


def test_what_failed_is_not_repeated_as_if_more_were_known() -> None:
    """Drive gains that are stated are known before and after: the motion would be the same."""
    guide = Guide(WEIGHED, lambda *_: 'pass', PayloadParameters(gain_std=0.002))
    guide._options = SimpleNamespace(yes=None, answers=None)
    (step,) = guide._planned()
    prepare, guide._prepare = guide._prepare, lambda step: SimpleNamespace(
        call=lambda service, show: SimpleNamespace(success=False, message='Verdict fail: so.'))
    guide._carried_out(step)
    guide._prepare = prepare
    failed = {step.title for step, why in guide._ruled.items() if why.startswith('Verdict')}
    assert failed == {step.title, f'{step.title} with calibrated drive gains'}
    assert guide.titles() == ['payload by joint torques in a fast motion']


def test_good_efforts_need_no_chain() -> None:
    guide = Guide(WEIGHED, lambda *_: 'pass', PayloadParameters(gain_std=0.002))
    assert guide.titles() == ['payload by joint torques at constant speed']


def test_where_nothing_helps_there_is_no_plan_and_a_reason() -> None:
    guide = Guide(WEIGHED, lambda step, _: 'fail' if step.procedure == 'payload' else 'pass',
                  PayloadParameters())
    assert guide._planned() is None
    told = calibration_plan.left_out(guide._steps, (), guide._facts(), guide._ruled)
    assert any('Expected verdict fail: It takes 77 s' in why for why in told)


def test_what_is_expected_to_fail_narrowly_is_tried_where_nothing_else_is_left() -> None:
    def judge(step: Action, assumed: Mapping[str, Any]) -> str:
        verdict = uncalibrated(step, assumed)
        return 'fail, narrowly' if step.title in near and verdict == 'pass' else verdict

    # The chain of the two planes is cheaper, and the fast motion is expected to pass.
    near = {title for title in by_torque_without('') if 'constant speed' in title}
    guide = Guide(WEIGHED, judge, PayloadParameters())
    assert 'fast motion' in guide.titles()[-1]
    near = by_torque_without('')
    guide = Guide(WEIGHED, judge, PayloadParameters())
    assert guide.titles()[:4] == CHAIN
    last = guide._planned()[-1]
    assert guide._near[last].startswith('Expected verdict fail, narrowly: ')
    # After a run that does fail, nothing is left.
    guide._ruled[last] = 'Verdict fail.'
    assert last.title not in guide.titles()


class Client:
    """A node by its parameters."""

    def __init__(self, **has: Any) -> None:
        self.has = has

    def parameters(self, names: Collection[str]) -> dict[str, Any]:
        return {name: self.has[name] for name in names if name in self.has}

    def make_active(self, changed: Mapping[str, Any], timeout: float) -> None:
        self.has.update(changed)


@pytest.mark.parametrize('used', [True, False])
def test_friction_of_before_the_arm_was_identified_is_left_out(
    used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would make fail what is estimated with it, and the plan may not need it."""
    guide, client = Guide(WEIGHED, lambda *_: 'pass', PayloadParameters()), Client(
        use_friction=used)
    (step,) = guide._planned()[-1:]
    monkeypatch.setattr(guide, '_of', lambda step: client)
    guide._options, guide._had = SimpleNamespace(timeout=1.0, dry_run=False), {}
    guide._sensor = {}
    guide.stored |= {
        'arm': friction_result('joint_5'),
        'friction': replace(friction_result('joint_6'), inputs=(Input('arm', 'none', ''),))}
    calibrate.Guide._prepare(guide, step)
    assert not client.has['use_friction']
    del guide.stored['friction']
    calibrate.Guide._prepare(guide, step)
    assert client.has['use_friction'] == used


@pytest.mark.parametrize('dry_run', [True, False])
def test_a_dry_run_leaves_the_nodes_as_they_were(
    dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong floor would protect nothing in the next run."""
    answers = structs.replace(WEIGHED, floor=-5.0)
    guide = Guide(answers, lambda *_: 'pass', PayloadParameters())
    client = Client(floor=0.0, tool='', method='excitation')
    (step,) = guide._planned()[-1:]
    monkeypatch.setattr(guide, '_of', lambda step: client)
    guide._options, guide._had = SimpleNamespace(timeout=1.0, dry_run=dry_run), {}
    guide._sensor = {}
    calibrate.Guide._prepare(guide, step)
    assert client.has == {'floor': -5.0, 'tool': 'gripper', 'method': 'two_plane'}
    guide.leave()
    kept = {'floor': 0.0, 'tool': ''} if dry_run else {'floor': -5.0, 'tool': 'gripper'}
    assert client.has == {**kept, 'method': 'excitation'}


def test_friction_that_links_hide_is_measured_again_once_the_arm_is_identified() -> None:
    guide = Guide(
        structs.replace(WEIGHED, purposes=['friction']), lambda *_: 'pass', PayloadParameters())
    guide._running.add('friction_identification')
    assert guide.titles()[-1] == 'friction'
    for step in guide._steps:
        if step.procedure == 'friction' and not step.needs >= of.KNOWLEDGE:
            guide._ruled[step] = 'Verdict fail: gravity that the model lacks.'
    titles = guide.titles()
    assert {'arm without load', 'arm with the weighed tool'} <= set(titles)
    assert any(title.startswith('friction') and 'own links' in title for title in titles)


def test_a_node_that_is_not_running_is_named() -> None:
    answers = Answers('gripper', mass=2.0, purposes=['friction'])
    guide = Guide(answers, lambda *_: 'pass', PayloadParameters())
    assert guide._planned() is None
    assert 'node friction_identification is not running' in guide._ruled.values()


def test_friction_that_a_joint_lacks_is_not_known() -> None:
    guide = Guide(Answers(purposes=['friction']), lambda *_: 'pass', PayloadParameters())
    one, other = friction_result('joint_6'), friction_result('joint_5')
    guide.stored['friction'] = one
    assert of.FRICTION not in guide._facts()
    guide.stored['friction'] = replace(one, parameters=one.parameters + other.parameters)
    assert of.FRICTION in guide._facts()


@pytest.mark.parametrize(('tool', 'mounted', 'fact'), [
    ('gripper', True, calibration_plan.TOOL), ('gripper', False, calibration_plan.BARE),
    ('', True, calibration_plan.BARE)])
def test_what_is_mounted(tool: str, mounted: bool, fact: str) -> None:
    guide = Guide(Answers(tool, mounted), lambda *_: 'pass', PayloadParameters())
    assert guide._facts() & calibration_plan.MOUNTS == {fact}


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what types lines at the terminal."""
    def typing(text: str) -> None:
        monkeypatch.setattr('sys.stdin', io.StringIO(text))
        monkeypatch.setattr(sys.stdin, 'isatty', lambda: True, raising=False)

    return typing


def test_a_weighed_tool(typing: Callable[[str], None], capsys) -> None:
    typing('gripper\ny\n2,0\n2.0\n0.005\nmaybe\ny\ngravity, sailing\ngravity contact\n50\n'
           '-0.02\n0.1 0.1 0.2\n')
    found = asked('base_link', ())
    assert found == Answers('gripper', True, 2.0, 0.005, True, ['gravity', 'contact'], 0.5, -0.02,
                            [0.1, 0.1, 0.2])
    told = capsys.readouterr().out
    assert "Purpose 'sailing' is not known" in told
    assert "Height of floor or table in 'base_link'" in told
    # At most five questions, one of which may have parts.
    assert [mark for mark in '123456' if f'{mark}. ' in told] == list('12345')


def test_an_answer_that_cannot_be_is_asked_for_again(
    typing: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not refused after the last question, with which all answers were lost."""
    typing('gripper\n\ny\n2 kg\n-2\n2\n0\ny\nslow\n0.3\n30 %\n-20\nnan\n-0.02\n0.1\n100 100 200\n'
           '0.1 0.1 0.2\n')
    found = asked('base_link', ['gravity'])
    assert found == Answers('gripper', True, 2.0, speed=0.3, floor=-0.02, tool_box=[0.1, 0.1, 0.2])
    told = capsys.readouterr().out
    for words in ("'' is neither y nor n", "'2 kg' is no number; expected one such as 0.5",
                  'mass is -2.0; expected 0 to 1000 kg', "'slow' is no number",
                  'speed is 0.003; expected a share of full speed from 0.01 to 1',
                  'floor is -20.0; expected -10 to 10 m', 'floor is nan',
                  'tool_box is [0.1]; expected three sizes of 0 to 5 m', 'tool_box is [100.0'):
        assert words in told


def test_an_arm_without_a_tool(typing: Callable[[str], None]) -> None:
    typing('\n100\n\n\n')
    found = asked('world', ['friction'])
    assert (found.tool, found.mounted, found.floor) == ('', False, -1000.0)
    assert found.purposes == ['friction']


def test_a_tool_that_is_to_be_measured_has_a_name(
    typing: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without one, the plan had it mounted by hand and then missed it."""
    typing('\n \ngripper\nn\n0\ny\n\n\n\n')
    assert asked('world', ['gravity']).tool == 'gripper'
    assert capsys.readouterr().out.count('gravity needs a tool to measure') == 2
    # Here, the purpose is asked for after the tool.
    typing('\ncontact\nfriction\n\n\n\n')
    assert asked('world', ()).purposes == ['friction']
    assert 'contact needs a tool to measure' in capsys.readouterr().out


def test_a_file_of_answers_comes_back(tmp_path: Path) -> None:
    answers = Answers('gripper', False, 1.5, done=['a reference run'])
    answers.write(tmp_path / 'answers.yaml')
    assert 'In kg and m' in (tmp_path / 'answers.yaml').read_text()
    assert Answers.read(tmp_path / 'answers.yaml') == answers


@pytest.mark.parametrize(('text', 'error', 'words'), [
    ('speed: 2.0', ConfigurationError, 'speed is 2.0'),
    ('purposes: [swim]', ConfigurationError, "Purpose 'swim' is not known"),
    ('mass: heavy', FileFormatError, 'mass'), ('tool_box: [1.0]', ConfigurationError, 'tool_box'),
    ('colour: red', FileFormatError, 'colour'),
])
def test_answers_that_cannot_be_used(
    tmp_path: Path, text: str, error: type[Exception], words: str
) -> None:
    (tmp_path / 'answers.yaml').write_text(text)
    with pytest.raises(error, match=words):
        Answers.read(tmp_path / 'answers.yaml')


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.stdin', io.StringIO('y\n'))
    with pytest.raises(ConfigurationError, match='--yes FILE'):
        confirmed('Begin?')


def test_the_end_of_input_interrupts(typing: Callable[[str], None]) -> None:
    typing('')
    with pytest.raises(KeyboardInterrupt):
        confirmed('Begin?')


def test_what_was_not_answered_leaves_the_protection_of_the_nodes() -> None:
    assert as_parameters(Answers('gripper')) == {'tool': 'gripper'}
    assert as_parameters(Answers(speed=0.3, floor=-0.1, tool_box=[0.1, 0.1, 0.2])) == {
        'tool': '', 'speed_scale': 0.3, 'floor': -0.1, 'tool_box': [0.1, 0.1, 0.2]}
