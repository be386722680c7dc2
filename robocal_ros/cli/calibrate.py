# SPDX-License-Identifier: Apache-2.0
"""`robocal calibrate`: from a new arm to the numbers for its driver, by a computed plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from time import monotonic, time
from typing import Any, TypeVar

import msgspec
import yaml

from robocal_ros import registry
from robocal_ros.cli import calibration_plan as plan, report
from robocal_ros.cli.calibration_plan import Action, Facts
from robocal_ros.cli.console import OUT, Grade, ProgressView, print_line, show_findings
from robocal_ros.cli.doctor_robot import Graph, graph_findings
from robocal_ros.cli.node_client import NodeClient, RosSession, full_name
from robocal_ros.cli.show import stored_files
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.files import Section, read_as, write_output
from robocal_ros.payload import (
    MAX_GAIN_STD,
    NARROWLY,
    PayloadParameters,
    duration_in,
    gain_std_in,
    objection_in,
    verdict_in,
)
from robocal_ros.results import stale_inputs
from robocal_ros.robot import friction_by_joint, make_robot, make_store

T = TypeVar('T')

_JOURNAL, _REPORT = 'calibrate.answers', 'calibrate.html'
# The parameters in place of which a preview assumes others.
_BEFORE = 'calibrate.before'
# What a preview assumes of links, and of drive gains that are identified with them, as shares: the
# order of what an identification with a weighed load states.
_IDENTIFIED = 0.005
# What steps may need that is measured first; without a payload, previews show motions and time.
_LATER = plan.KNOWLEDGE | {plan.PAYLOAD}
_NEEDED_NODE = 'payload_identification'
# Parameters of the nodes by the names of answers.
_PARAMETERS = {'speed': 'speed_scale', 'floor': 'floor', 'tool_box': 'tool_box',
               'test_load': 'load_mass'}
_UNITS = """# In kg and m; speed is a share of full speed.
# Speed 0, floor -1000 and a tool_box of zeros: as the nodes have it.
"""
_YES, _NO = ('y', 'yes'), ('n', 'no')

QUESTION = '[y/n]'
"""End of a question that is answered by y or n."""


def run(options: argparse.Namespace) -> int:
    """Look, ask, plan, and carry out the plan.

    Returns:
        0 if everything asked for is known, 1 if it is not, or a hand is needed that nobody lends.

    Raises:
        RobocalError: If nodes or answers are missing.
        KeyboardInterrupt: After what was running was cancelled.

    """
    purposes = check_purposes(options.purposes.split(',')) if options.purposes else []
    if options.yes and options.answers:
        raise ConfigurationError('--yes asks nobody, and --answers asks before the arm moves: '
                                 'give one of them.')
    with RosSession('robocal_calibrate') as session:
        graph = Graph(session, options.namespace)
        with OUT.status('Looking at the robot'):
            graph.collect(options.joint_states, options.duration)
        findings = list(graph_findings(graph, options))
        show_findings(findings)
        wrong = {item.what for item in findings if item.grade is Grade.BAD}
        if wrong - {'efforts'}:
            print_line('Remedy what is marked ✗ first.', 'red')
            return 1
        guide = Guide(session, graph, options, efforts=not wrong)
        guide.answers = guide.answered(purposes)
        try:
            return guide.carry_out()
        finally:
            guide.leave()


class Guide:
    """The plan of one calibration, its nodes, and what is known."""

    answers: Answers

    def __init__(
        self, session: RosSession, graph: Graph, options: argparse.Namespace, *, efforts: bool
    ) -> None:
        """Find the nodes and the robot's results; raises as ``NodeClient.wait_until_there``."""
        self._session, self._graph, self._options = session, graph, options
        self._clients: dict[str, NodeClient] = {}
        self._efforts = efforts
        # Why steps are expected to fail; of the second ones, that is not sure.
        self._ruled: dict[Action, str] = {}
        self._near: dict[Action, str] = {}
        self._previewed: dict[Action, float] = {}
        self._assumed: set[Action] = set()
        self._gain_std = _IDENTIFIED
        self._again = {*options.again}
        # What nodes had before in place of what only steps need, which goes on after the last one.
        self._had: dict[NodeClient, dict[str, Any]] = {}
        self._running = {name.rpartition('/')[2] for name in session.other_nodes(0.0)}
        client = self._client(_NEEDED_NODE)
        known = client.parameters([item.name for item in fields(PayloadParameters)])
        self._values = PayloadParameters(**known)
        self._robot = make_robot(graph.description, self._values)
        self._store = make_store(self._robot, self._values)
        self._before = self._store.directory / _BEFORE
        if self._before.exists():
            # An earlier start was killed during a preview.
            self._restore(client, read_as(self._before, 'file', dict[str, Any]))
            self._values = PayloadParameters(**client.parameters(known))

    def answered(self, purposes: list[str]) -> Answers:
        """Return the answers: of the file, of an unfinished plan, or from the terminal."""
        journal = self._store.directory / _JOURNAL
        file = self._options.yes or self._options.answers
        if file is not None:
            answers = Answers.read(file)
            if journal.exists():
                answers.done = Answers.read(journal).done
        elif self._options.dry_run and not sys.stdin.isatty():
            answers = Answers(mounted=False)
            print_line('No terminal to ask at: planned for an arm without a tool.', 'yellow')
        elif journal.exists() and confirmed(
                f'Go on with the answers of an earlier start ({journal})?'):
            answers = Answers.read(journal)
        else:
            answers = asked(self._robot.root_frame, purposes)
        if purposes:
            answers.purposes = purposes
        if not self._options.dry_run:
            check_tool(answers)
        return answers

    # -------------------------------------------------------------------------- nodes

    def _client(self, node: str) -> NodeClient:
        if node not in self._clients:
            client = NodeClient(self._session, full_name(node, self._options.namespace))
            client.wait_until_there(self._options.timeout)
            self._clients[node] = client
        return self._clients[node]

    def _of(self, step: Action) -> NodeClient:
        return self._client(registry.procedures()[step.procedure].node)

    def _prepare(self, step: Action, assumed: Mapping[str, Any] | None = None) -> NodeClient:
        """Activate the node of a step with its parameters; those that it has are left alone."""
        client = self._of(step)
        mounted = bool(self.answers.mounted and self.answers.tool)
        mounting = {'use_payload': mounted, 'payload_is': 'tool' if mounted else 'unused'}
        own = {**mounting, **step.parameters}
        had, friction = self._had.setdefault(client, {}), self._store.load('friction')
        # The friction of an arm before it was identified, or of the joints that passed then.
        if friction and stale_inputs(friction, self._store.load):
            own['use_friction'] = False
        elif 'use_friction' in had:
            own['use_friction'] = had['use_friction']
        wanted = {**as_parameters(self.answers), **self._sensor, **own, **(assumed or {})}
        has = client.parameters(wanted)
        # A dry run leaves nothing behind.
        had.update((name, has[name]) for name in (wanted if self._options.dry_run else own)
                   if name in has and name not in had)
        changed = {name: value for name, value in wanted.items()
                   if name in has and has[name] != value}
        client.make_active(changed, self._options.timeout)
        return client

    @cached_property
    def _sensor(self) -> dict[str, str]:
        """Topic and frame of the only F/T sensor, where the node has another one.

        The frame is that of the messages. One that the URDF lacks may be a turned one.
        """
        found = {topic: readings[-1].header.frame_id
                 for topic, readings in self._graph.wrenches.items() if readings}
        if len(found) != 1 or self._graph.name(self._values.sensor_topic) in found:
            return {}
        ((topic, frame),) = found.items()
        return ({'sensor_topic': topic, 'sensor_frame': frame}
                if self._robot.model.existFrame(frame) else {})

    # -------------------------------------------------------------------------- facts

    def _facts(self) -> Facts:
        """Return what is there and what is known."""
        answers, values = self.answers, self._values
        topic = self._graph.name(self._sensor.get('sensor_topic', values.sensor_topic))
        found = {fact for fact, holds in (
            (plan.TOOL, answers.mounted and answers.tool),
            (plan.BARE, not (answers.mounted and answers.tool)),
            (plan.SENSOR, self._graph.wrenches.get(topic)), (plan.EFFORTS, self._efforts),
            (plan.MASS, answers.mass > 0.0), (plan.REMOVABLE, answers.removable),
            (plan.GAINS, values.effort_source != 'unknown'
             and values.gain_std <= MAX_GAIN_STD),
            (plan.TRACKER, self._tracked), (plan.TEST_LOAD, answers.test_load > 0.0)) if holds}
        return frozenset(found | {*answers.done} | set(self._stored()))

    @cached_property
    def _tracked(self) -> bool:
        if 'compliance_calibration' not in self._running:
            return False
        given = self._client('compliance_calibration').parameters(
            ['tracker_topic', 'tracker_message'])
        topic = given['tracker_topic'] or f'tracker/{given["tracker_message"]}'
        return self._graph.name(topic) in self._session.published()

    def _stored(self) -> dict[str, str]:
        """Return what current results yield, with their ages in words."""
        found = {}
        for kind in (*plan.STORED, 'arm'):
            result = self._store.load(kind)
            if result is None or kind in self._again or stale_inputs(result, self._store.load):
                continue
            if kind == 'payload' and result.settings.get('tool', '') != self.answers.tool:
                continue
            # Joints that failed are not in the friction result.
            if kind == 'friction' and not friction_by_joint(result).keys() >= {
                    *self._robot.joint_names}:
                continue
            age = (time() - self._store.path(kind).stat().st_mtime) / 3600.0
            text = f'{kind.replace("_", " ")} of {age:.1f} hours ago ({result.method})'
            if kind == 'arm':
                found[plan.ARM_BARE] = text
                if result.method == 'loaded' or self._values.gain_std <= MAX_GAIN_STD:
                    found |= dict.fromkeys(plan.KNOWLEDGE, text)
            else:
                found[plan.STORED[kind]] = text
        return found

    def _wanted(self, facts: Facts) -> Facts:
        left = plan.TOOL if self.answers.tool else plan.BARE
        return plan.goals(self.answers.purposes, facts) | {left}

    # --------------------------------------------------------------------------- plan

    @cached_property
    def _steps(self) -> tuple[Action, ...]:
        return tuple(plan.actions(self.answers.mass, self.answers.mass_std))

    def _planned(self) -> tuple[Action, ...] | None:
        """Return the cheapest plan of which all previews that are possible now succeed.

        If there is none, steps that are expected to fail narrowly may be tried.
        """
        for step in self._steps:
            node = '' if step.by_hand else registry.procedures()[step.procedure].node
            if node and node not in self._running:
                self._ruled.setdefault(step, f'node {node} is not running')
        while True:
            facts = self._facts()
            possible = [replace(step, seconds=self._previewed.get(step, step.seconds))
                        for step in self._steps if step not in self._ruled]
            found = plan.cheapest([step for step in possible if step not in self._near],
                                  facts, self._wanted(facts))
            if found is None:
                found = plan.cheapest(possible, facts, self._wanted(facts))
            there = facts | plan.MOUNTS
            # What was previewed with assumptions is previewed again with what was measured.
            new = [step for step in found or () if step.preview and (
                step.needs <= there if step in self._assumed else
                step not in self._previewed and step.needs <= there | _LATER)]
            if not new:
                return found
            self._preview(new[0], facts)

    def _preview(self, step: Action, facts: Facts) -> None:
        """Call the preview of a step; rule the step out if it is expected to fail."""
        # By these parameters it assumes what later steps are to measure.
        missing, verb, assumed = step.needs & _LATER - facts, step.preview, dict[str, float]()
        if plan.LINKS in missing:
            assumed = dict.fromkeys(('gain_std', 'arm_model_std'), _IDENTIFIED)
        elif plan.GAINS in missing and step.procedure == 'payload':
            verb = 'preview_after_gains'
        elif plan.GAINS in missing:
            assumed = {'gain_std': self._gain_std}
        client = self._of(step)
        before = client.parameters(assumed)
        if before:
            write_output(self._before, yaml.safe_dump(before), 'file of parameters')
        try:
            with ProgressView(f'preview of {step.title}') as view:
                answer = self._prepare(step, assumed).call(verb, view.update)
        finally:
            self._restore(client, before)
        (self._assumed.add if missing else self._assumed.discard)(step)
        # What is assumed is no evidence that the arm's model holds; its measurement will be.
        hopeful = ('', 'pass', 'not_evaluated') if missing else ('', 'pass')
        verdict, seconds = verdict_in(answer.message), duration_in(answer.message) or step.seconds
        self._near.pop(step, None)
        if answer.success and verdict in hopeful:
            self._gain_std = gain_std_in(answer.message) or self._gain_std
            self._previewed[step] = seconds
            print_line(f'  {step.title}: {answer.message}', 'dim')
        elif plan.PAYLOAD in missing:
            self._previewed[step] = step.seconds
        elif answer.success and verdict == NARROWLY:
            self._previewed[step], self._near[step] = seconds, objection_in(answer.message)
        else:
            self._ruled[step] = objection_in(answer.message)

    def _restore(self, client: NodeClient, before: Mapping[str, Any]) -> None:
        """Set the parameters that a preview changed; with them a run would state too much."""
        client.set_parameters(before)
        self._before.unlink(missing_ok=True)

    def leave(self) -> None:
        """Set what steps needed to what it was: the payload, say, may be mounted again."""
        for client, before in self._had.items():
            try:
                now = client.parameters(before)
                client.make_active({name: value for name, value in before.items()
                                    if now[name] != value}, self._options.timeout)
            except RobocalError as error:
                print_line(f'{error} Then set {before} again.', 'yellow')

    def _show(self, found: tuple[Action, ...]) -> None:
        facts = self._facts()
        for text in dict.fromkeys(self._stored().values()):
            print_line(f'Used: {text}')
        for number, step in enumerate(found, 1):
            hand = ' (by hand)' if step.by_hand else ''
            print_line(f'{number}. {step.title}{hand}, {step.seconds:.0f} s', 'bold')
            print_line(f'   {plan.reason(step, found[number:], self._wanted(facts))}')
            if step in self._near:
                print_line(f'   {self._near[step]}. Nothing else reaches it.', 'yellow')
        print_line(f'In all {sum(step.seconds for step in found) / 60.0:.0f} min, '
                   f'{sum(step.by_hand for step in found)} steps by hand. Left out:' if found else
                   'Nothing is left to measure; --again measures a result anew. Left out:')
        self._show_left_out(found, facts)

    def _show_left_out(self, found: tuple[Action, ...], facts: Facts) -> None:
        for why, titles in plan.left_out(
                self._steps, found, facts, self._near | self._ruled).items():
            print_line(f'   {why}: {"; ".join(titles)}', 'dim')

    # ---------------------------------------------------------------------- execution

    def carry_out(self) -> int:
        """Show the plan and carry it out; return the exit code."""
        options, journal = self._options, self._store.directory / _JOURNAL
        if not options.dry_run:
            self._keep()
        found = self._planned()
        if found is not None:
            self._show(found)
        if options.dry_run:
            print_line('Nothing was moved. These answers as a file for --yes:')
            print_line(self.answers.text())
            return 0 if found is not None else self._end(None)
        if found and options.yes is None and not confirmed('Clear the cell. Begin?'):
            print_line('Nothing was moved. Start again to go on with these answers.', 'yellow')
            return 1
        while found:
            stopped = self._carried_out(found[0])
            self._keep()
            if stopped:
                return self._end(None, stopped)
            later = self._planned()
            if later and later != found[1:]:
                self._show(later)
                if options.yes is None and not confirmed('The plan has changed. Go on?'):
                    return self._end(None, 'Stopped.')
            found = later
        if found is not None:
            journal.unlink(missing_ok=True)
        return self._end(found)

    def _keep(self) -> None:
        """Write the answers and what was done, from where an interrupted plan goes on."""
        for path in filter(None, (self._store.directory / _JOURNAL, self._options.answers)):
            self.answers.write(path)

    def _carried_out(self, step: Action) -> str:
        """Carry out a step; return why the plan must not go on, empty if it may.

        It may after a verdict: other steps may reach more. It must not after any other failure,
        such as a protective stop.
        """
        answers = self.answers
        if step.by_hand:
            if self._options.yes is not None or not confirmed(
                    f'{step.title.capitalize()}, then answer. Done?'):
                return f'By hand: {step.title}.'
            if plan.EXTRA not in step.ends | step.yields:
                answers.mounted = plan.TOOL in step.yields
        else:
            began, client = monotonic(), self._prepare(step)
            with ProgressView(step.title) as view:
                answer = client.call(
                    step.verb or registry.procedures()[step.procedure].verb, view.update)
            print_line(f'{step.title}: {answer.message}', 'green' if answer.success else 'red')
            print_line(f'  Took {monotonic() - began:.0f} s, planned {step.seconds:.0f} s.', 'dim')
            if not answer.success:
                # What is the same motion would fail again, whatever it is used for, and so would
                # what needs more that is known already.
                facts = self._facts()
                self._ruled |= {other: answer.message for other in self._steps
                                if other.title == step.title or (
                                    other.needs <= facts
                                    and (other.procedure, other.verb, other.parameters) == (
                                        step.procedure, step.verb, step.parameters))}
                return '' if answer.message.startswith('Verdict ') else answer.message
            self._again.discard(registry.procedures()[step.procedure].kind)
        answers.done = sorted(plan.KEPT & (({*answers.done} - step.ends) | step.yields))
        if not step.yields <= self._facts():
            self._ruled[step] = 'it did not yield what it should; robocal show has the reasons'
        return ''

    def _end(self, found: tuple[Action, ...] | None, stopped: str = '') -> int:
        """Show what is known, and what to do with it; return the exit code."""
        facts = self._facts()
        missing = sorted(self._wanted(facts) - facts - plan.MOUNTS)
        if stopped:
            print_line(f'{stopped} Start again when that is done; it goes on from there. What is '
                       'mounted then is an answer, too.', 'yellow')
        elif found is None:
            print_line(f'Not reached: {", ".join(missing)}.', 'red')
            self._show_left_out((), facts)
        else:
            purposes = ', '.join(plan.PURPOSES[name] for name in self.answers.purposes)
            print_line(f'Fit for: {purposes}.', 'green')
        folder: Path = self._store.directory
        if list(folder.glob('*.y*ml')):
            urdf = folder / f'{self._robot.name}.urdf'
            write_output(urdf, self._graph.description, 'URDF')
            report.write_report(stored_files(folder), urdf, folder / _REPORT,
                                f'Calibration of {self._robot.name}')
        return 0 if found is not None else 1


# -------------------------------------------------------------------------- answers


class Answers(Section):
    """What only the user knows, and what was done so far.

    Attributes:
        tool: Name of the tool; empty for an arm without one.
        mounted: Whether the tool is mounted now.
        mass: Its mass from a scale, 0 if it was not weighed [kg].
        mass_std: Standard deviation of that mass [kg].
        removable: Whether it can be taken off for a while.
        purposes: What the calibration is for.
        speed: Share of full speed at which the arm may move; 0 for that of the nodes.
        floor: Height of floor or table in the root frame; -1000 for that of the nodes [m].
        tool_box: Size of a box around the tool along x, y, z of the tool frame; zeros for that of
            the nodes [m].
        test_load: Mass of the load for compliance, 0 for none [kg].
        done: Further facts, which an interrupted plan goes on from.

    """

    tool: str = ''
    mounted: bool = True
    mass: float = 0.0
    mass_std: float = 0.0
    removable: bool = True
    purposes: list[str] = msgspec.field(default_factory=lambda: ['gravity'])
    speed: float = 0.0
    floor: float = -1000.0
    tool_box: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0, 0.0])
    test_load: float = 0.0
    done: list[str] = msgspec.field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Answers:
        """Return the answers in a file.

        Raises:
            FileFormatError: If it is no such file.
            ConfigurationError: If a value is out of range.

        """
        found = read_as(path, 'file of answers', cls)
        found.check()
        return found

    def check(self) -> None:
        """Raise a ConfigurationError for a value out of range."""
        check_purposes(self.purposes)
        for name, good, expected in (
                ('speed', self.speed == 0.0 or 0.01 <= self.speed <= 1.0,
                 'a share of full speed from 0.01 to 1 (1 % to 100 %)'),
                ('floor', self.floor == Answers().floor or abs(self.floor) <= 10.0, '-10 to 10 m'),
                ('tool_box', len(self.tool_box) == 3
                 and all(0.0 <= size <= 5.0 for size in self.tool_box), 'three sizes of 0 to 5 m'),
                *((name, 0.0 <= getattr(self, name) <= 1000.0, '0 to 1000 kg')
                  for name in ('mass', 'mass_std', 'test_load'))):
            if not good:
                raise ConfigurationError(f'{name} is {getattr(self, name)}; expected {expected}.')

    def write(self, path: Path) -> None:
        """Write them, completely or not at all; raises ConfigurationError."""
        write_output(path, self.text(), 'file of answers')

    def text(self) -> str:
        """Return them as YAML."""
        return _UNITS + yaml.safe_dump(
            msgspec.structs.asdict(self), sort_keys=False, allow_unicode=True)


def check_purposes(names: Sequence[str]) -> list[str]:
    """Return the names of purposes; raises ConfigurationError for an unknown one, or for none."""
    wrong = [name for name in names if name not in plan.PURPOSES]
    if wrong or not names:
        raise ConfigurationError(
            f"Purpose '{', '.join(wrong)}' is not known; expected one or more of "
            f'{", ".join(plan.PURPOSES)}.')
    return list(names)


def check_tool(answers: Answers) -> None:
    """Raise a ConfigurationError if a tool is to be measured and none is named."""
    if not answers.tool and plan.PAYLOAD in plan.goals(answers.purposes, frozenset()):
        raise ConfigurationError(
            f'{" and ".join(answers.purposes)} needs a tool to measure: give it a name of your '
            'choice, even if it is mounted later.')


def asked(root: str, purposes: Sequence[str]) -> Answers:
    """Return the answers to the questions on the terminal.

    Args:
        root: Root frame of the arm.
        purposes: What the calibration is for, if it is known.

    Raises:
        ConfigurationError: If there is no terminal.

    """
    # A purpose that is not known yet needs no tool.
    found = Answers(mounted=False, purposes=list(purposes) or ['friction'])

    def ask(name: str, question: str, read: Callable[[str], Any] = number) -> None:
        def answer(text: str) -> None:
            setattr(found, name, read(text))
            found.check()
            check_tool(found)

        _ask(question, answer)

    ask('tool', '1. Which tool is mounted, or will be? A name of your choice; empty for none:',
        str)
    if found.tool:
        ask('mounted', f'   Is it mounted now? {QUESTION}', _flag)
        ask('mass', '   Its mass from a scale in kg; 0 if you have not weighed it:')
        if found.mass:
            ask('mass_std', '   The error of that scale in kg:')
        ask('removable', f'2. Can it be taken off for a while? {QUESTION}', _flag)
    if not purposes:
        ask('purposes', '3. What is it for? '
            + '; '.join(f'{key}: {text}' for key, text in plan.PURPOSES.items())
            + '. One or more:', lambda text: check_purposes(text.replace(',', ' ').split()))
    if 'accuracy' in found.purposes:
        ask('test_load', '   Mass of a test load in kg that can be mounted in addition:')
    ask('speed', '4. How fast may the arm move, in percent of its full speed? Empty for the '
        "nodes' speed_scale:", lambda text: 0.01 * number(text.rstrip(' %') or '0'))
    ask('floor', f"5. Height of floor or table in '{root}' in m, negative below it; empty for "
        'that of the nodes:', lambda text: number(text) if text else Answers().floor)
    ask('tool_box', '   Size of a box around the tool along x, y, z of its frame in m; empty for '
        'that of the nodes:', lambda text: [
            number(part) for part in text.replace(',', ' ').split()] or Answers().tool_box)
    return found


def number(text: str) -> float:
    """Return the number that was typed; raises ConfigurationError if it is none."""
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"'{text}' is no number; expected one such as 0.5, with a point "
                                 'and without a unit.') from None


def confirmed(question: str) -> bool:
    """Ask a question of yes or no."""
    return _ask(f'{question} {QUESTION}', _flag)


def _flag(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ConfigurationError(f"'{text}' is neither y nor n.")
    return text.lower() in _YES


def _ask(question: str, read: Callable[[str], T]) -> T:
    """Ask until an answer can be read; raises ConfigurationError if nobody can answer."""
    if not sys.stdin.isatty():
        raise ConfigurationError('There is no terminal to ask at. Give the answers with --yes '
                                 'FILE; --dry-run prints such a file.')
    while True:
        print_line(question, 'bold')
        try:
            return read(input('   ').strip())
        except ConfigurationError as error:
            print_line(f'   {error}', 'red')
        except EOFError:
            raise KeyboardInterrupt from None


def as_parameters(answers: Answers) -> dict[str, Any]:
    """Return the answers that are parameters of nodes that move the arm.

    What was not answered stays as the nodes have it: their speed scale, floor and box protect.
    """
    unknown = Answers()
    return {'tool': answers.tool, **{
        name: getattr(answers, own) for own, name in _PARAMETERS.items()
        if getattr(answers, own) != getattr(unknown, own)}}
