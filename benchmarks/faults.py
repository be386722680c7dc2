# SPDX-License-Identifier: Apache-2.0
"""`scripts/faults`: inject faults into the running nodes and record how each ends."""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.endurance import fuzz, soak
from benchmarks.fault_cell import (
    CAPABILITIES,
    HANG,
    HOLD_BAR,
    MOVING,
    Capability,
    FaultCell,
    open_cells,
    verb_of,
)
from benchmarks.fault_table import FAULTS, Fault, stall
from benchmarks.page import markdown
from demo.domains import own_domain
from robocal_ros import __version__
from robocal_ros.cli.console import OUT, print_line
from robocal_ros.cli.main import run
from robocal_ros.cli.node_client import RosSession
from robocal_ros.errors import RobocalError
from robocal_ros.results import read_result

_SUMMARY = 'Inject faults into the running nodes on the simulated arm; record how each ends.'
_PAGE = Path(__file__).resolve().parents[1] / 'docs' / 'reliability.md'
_BEGIN, _END = '<!-- campaign: begin -->', '<!-- campaign: end -->'

# A procedure that goes on is watched for so long before it is cancelled [s].
_GOES_ON = 2.0
# Longest procedure that is awaited [s].
_LONG = 300.0
_KILLS = 40


@dataclass(frozen=True)
class Plan:
    """A cell of the product capability x phase x fault."""

    capability: Capability
    phase: str
    fault: Fault

    def __str__(self) -> str:
        return f'{self.capability.name}, {self.phase}, {self.fault.name}'


@dataclass
class Outcome:
    """Outcome of one cell of the campaign; None where a question does not apply."""

    plan: Plan
    survived: bool = False
    held: float | None = None
    cancelled: float | None = None
    intact: bool = False
    named: bool | None = None
    recovered: bool = False
    went_on: bool = False
    remarks: list[str] = field(default_factory=list)

    def fails(self, why: str) -> None:
        """Note why the node has not survived."""
        self.survived = False
        self.remarks.append(why)

    @property
    def within(self) -> bool | None:
        """Whether the arm was held in time, after the fault and after a cancel."""
        times = [time for time in (self.held, self.cancelled) if time is not None]
        return max(times) <= HOLD_BAR if times else None

    @property
    def good(self) -> bool:
        """Whether nothing is to be complained of."""
        return (self.survived and self.within is not False and self.intact
                and self.named is not False and self.recovered)


# ---------------------------------------------------------------------------- campaign


def product() -> list[Plan]:
    """Return all cells, by capability."""
    return [Plan(capability, phase, fault) for capability in CAPABILITIES
            for phase in capability.phases for fault in FAULTS
            if fault.possible and (not fault.trait or fault.trait in capability.traits)
            and (not fault.phases or phase in fault.phases)]


def subset(cells: Sequence[Plan], count: int, seed: int) -> list[Plan]:
    """Return a random part of the cells in which all faults are about equally frequent."""
    chance = random.Random(seed)
    turn: dict[str, int] = {}
    ranked = []
    for index in chance.sample(range(len(cells)), len(cells)):
        name = cells[index].fault.name
        turn[name] = turn.get(name, 0) + 1
        ranked.append((turn[name], chance.random(), index))
    return [cells[index] for index in sorted(item[2] for item in sorted(ranked)[:count])]


def inject(cell: FaultCell, plan: Plan) -> Outcome:
    """Carry out one cell of the campaign.

    Raises:
        RobocalError: If the node does not even reach the phase.

    """
    fault, phase = plan.fault, plan.phase
    outcome = Outcome(plan)
    before = cell.contents()
    verb = verb_of(phase)
    cell.injected = cell.cancelled = 0.0
    future: Any = None
    if fault.before:
        cell.mark()
    else:
        future = cell.to_phase(phase, cell.chance.uniform(0.05, 0.6))
    began = time.monotonic()
    try:
        fault.inject(cell)
        if fault.before and verb:
            future = cell.begin(verb)
        # Some injections take long.
        _await_end(cell, plan, future, time.monotonic(), outcome)
    except RobocalError as error:
        outcome.fails(str(error))
    finally:
        cell.calm()
    ended = future is not None and future.done()
    answer = future.result() if ended else None
    _judge_message(cell, fault, phase, began, answer, outcome)
    if cell.alive('arm') and 'moves' in plan.capability.traits:
        if not cell.at_rest():
            outcome.fails('The arm does not come to rest.')
        if phase in MOVING and fault.held and not fault.harmless and not outcome.went_on \
                and not cell.cancelled and not (answer and answer.success):
            outcome.held = cell.held_after(cell.injected or began)
        if phase in MOVING and cell.cancelled:
            outcome.cancelled = cell.held_after(cell.cancelled)
    outcome.intact = cell.parses() and _kept(before, cell.contents())
    return outcome


def _kept(before: dict[str, str], after: dict[str, str]) -> bool:
    """Return whether all good results are in the history, and the newest ones are among them."""
    history = {path: content for path, content in after.items() if 'history' in Path(path).parts}
    newest = {path: content for path, content in after.items()
              if path not in history and not path.endswith('.failed.yaml')}
    kept = all(path in after and (path in newest or after[path] == content)
               for path, content in before.items() if not path.endswith('.failed.yaml'))
    return kept and set(newest.values()) <= set(history.values())


def _await_end(cell: FaultCell, plan: Plan, future: Any, began: float, outcome: Outcome) -> None:
    """Wait for the end of the procedure, or see that it goes on and cancel it."""
    fault = plan.fault
    if fault.kills in ('node', 'both'):
        outcome.survived = cell.wait(lambda: not cell.alive(fault.kills), HANG)
        code = cell.children('node')[0].process.poll()
        if fault.cause and code != 0:
            outcome.fails(f'The node exited with {code}.')
        return
    if future is None:
        cell.wait(lambda: False, _GOES_ON)
        outcome.survived = bool(cell.client.state(HANG))
        return
    cell.wait(future.done, _GOES_ON if fault.harmless else fault.waits)
    took = time.monotonic() - began
    if future.done():
        outcome.survived = took < max(HANG, fault.waits) + 2.5
        return
    # It goes on, or waits for the end of the fault.
    outcome.went_on = True
    newest = cell.statuses[-1][0] if cell.statuses else 0.0
    progresses = time.monotonic() - newest < 5.0
    cell.in_motion()
    cancel = cell.begin('cancel')
    outcome.survived = cell.wait(lambda: cancel.done() and future.done(), HANG)
    if not progresses:
        outcome.fails('No answer, and no progress for 5 s.')


def _judge_message(
    cell: FaultCell, fault: Fault, phase: str, began: float, answer: Any, outcome: Outcome
) -> None:
    texts = cell.texts(began)
    message = str(answer.message) if answer is not None else ''
    # Also what NumPy warns of.
    defect = re.search(r'.*(Defect|Traceback|RuntimeWarning: (?!failed to send)).*',
                       f'{message}\n{texts}')
    if defect:
        outcome.fails(defect[0])
    if fault.kills in ('node', 'both') and not (fault.cause and phase in MOVING):
        return
    went_on = answer is None or answer.success or outcome.went_on
    told = bool(re.search(fault.cause, f'{message}\n{texts}'))
    if fault.harmless:
        outcome.named = went_on
        if not went_on:
            outcome.remarks.append(f'Ended: {message}')
    elif fault.cause and (told or not went_on or fault.before):
        outcome.named = told
        if not outcome.named:
            outcome.remarks.append(f'Answered: {message}')


def recover(cell: FaultCell, phase: str = 'moving') -> str:
    """Return why the node cannot work again, or an empty string.

    The node is restarted only if its process has ended or it was shut down.

    Args:
        cell: The processes.
        phase: Phase of the fault: after an estimation another one must be possible, after anything
            else a run.

    """
    try:
        if cell.alive('node'):
            state = cell.client.state(HANG)
            if state == 'finalized':
                cell.send('node', signal.SIGTERM)
                cell.wait(lambda: not cell.alive('node'), HANG)
            elif state == 'active':
                cell.wait(cell.begin('cancel').done, HANG)
        generation = cell.generation
        cell.start()
        if (phase == 'estimating' and cell.generation == generation
                and cell.answer('estimate', 3.0 * HANG).success):
            return ''
        # The next run discards the samples.
        cell.prepared = False
        if 'moves' not in cell.capability.traits:
            tare = cell.answer('run', 3.0 * HANG)
            return '' if tare.success else str(tare.message)
        if not cell.at_rest():
            return 'The arm does not rest.'
        run = cell.to_phase('moving')
        cancel = cell.begin('cancel')
        if not cell.wait(lambda: cancel.done() and run.done(), HANG):
            return 'Cancel is not answered.'
        return '' if cell.at_rest() else 'The arm does not rest.'
    except RobocalError as error:
        return str(error)


def campaign(
    plans: Sequence[Plan], output: Path, seed: int, *, prepare: bool = True
) -> Iterator[Outcome]:
    """Carry out cells, grouped by capability, in a ROS domain of their own.

    Args:
        plans: The cells.
        output: Folder for logs, and for the results of all nodes.
        seed: Seed of stalls and delays.
        prepare: Whether results are measured first.

    """
    chance = random.Random(seed)
    with RosSession('fault_campaign', own_domain()) as session:
        for capability in CAPABILITIES:
            own = [plan for plan in plans if plan.capability is capability]
            if own:
                with open_cells(session, (capability,), output, output / 'results') as [cell]:
                    cell.chance = chance
                    yield from _of_capability(cell, own, prepare)


def _of_capability(cell: FaultCell, plans: Sequence[Plan], prepare: bool) -> Iterator[Outcome]:
    begun = False
    # Cells that need samples first: a node that is restarted has none.
    for plan in sorted(plans, key=lambda plan: plan.phase != 'estimating'):
        if prepare and 'stores' in cell.capability.traits and (
                not begun or (plan.phase == 'estimating' and not cell.prepared)):
            answer = cell.answer('run', _LONG)
            if not answer.success:
                print_line(f'{cell.capability.name}: {answer.message}', 'yellow')
            begun = cell.prepared = True
        try:
            outcome = inject(cell, plan)
        except RobocalError as error:
            outcome = Outcome(plan, remarks=[f'Not injected: {error}'])
        # The end of the fault may still be in the queues of the node during the first attempt.
        problem = recover(cell, plan.phase) and recover(cell, plan.phase)
        outcome.recovered = not problem
        if problem:
            outcome.remarks.append(f'Not recovered: {problem}')
            cell.restart()
        yield outcome


_WRITER = """
import sys
from pathlib import Path
from robocal_ros.results.store import ResultStore, read_result
result = read_result(Path(sys.argv[1]))
store = ResultStore(Path(sys.argv[2]), result.robot)
print('ready', flush=True)
while True:
    store.save(result)
"""


def kill_while_writing(source: Path, folder: Path, seed: int, count: int = _KILLS) -> int:
    """Kill a process that writes a result over and over; return how often a file was damaged.

    Args:
        source: A result file.
        folder: Folder to write to.
        seed: Seed of the instants.
        count: Number of kills.

    """
    chance = random.Random(seed)
    damaged = 0
    for _ in range(count):
        with subprocess.Popen([sys.executable, '-c', _WRITER, str(source), str(folder)],
                              stdout=subprocess.PIPE) as writer:
            if writer.stdout is None or not writer.stdout.readline():
                raise RobocalError('The writer did not start.')
            time.sleep(chance.uniform(0.0, 0.05))
            writer.kill()
        try:
            for path in folder.rglob('*.yaml'):
                read_result(path)
        except RobocalError:
            damaged += 1
    return damaged


# ------------------------------------------------------------------------------ stalls

_SIX_JOINTS = Capability(
    'friction of six joints', 'friction_identification', ('idle',),
    {'speeds': [0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5], 'max_cruise': 3.0, 'max_velocity': 2.0,
     'max_acceleration': 6.0, 'max_rounds': 1}, frozenset({'moves', 'effort'}))
# Shortest and longest time between two stalls [s]: ten of them are spread over most of the run.
_CALM = (5.0, 60.0)
_LONGEST_RUN = 3600.0


def stalled_run(count: int, output: Path, seed: int, duration: float = 1.0) -> int:
    """Stall node or arm at random instants of a friction run of all joints; print how it ends.

    Args:
        count: Number of stalls.
        output: Folder for logs and results.
        seed: Seed of the instants, and of what is stalled.
        duration: Duration of a stall [s].

    Returns:
        0 if the run succeeded after all stalls, else 1.

    """
    chance, results, stalls = random.Random(seed), output / 'stalls', list[str]()
    with (
        RosSession('fault_campaign', own_domain()) as session,
        # Friction needs the payload.
        open_cells(session, (CAPABILITIES[0], _SIX_JOINTS), output, results) as (payload, cell),
    ):
        if not payload.answer('run', _LONG).success:
            raise RobocalError('The payload could not be identified.')
        began = time.monotonic()
        run = cell.begin('run')
        while len(stalls) < count and not cell.wait(run.done, chance.uniform(*_CALM)):
            which = chance.choice(('node', 'arm'))
            stalls.append(f'{which} at {time.monotonic() - began:.0f} s ({cell.phase()})')
            stall(which, duration, duration)(cell)
            # Recordings of the campaign, which this run does not need.
            cell.motion, cell.statuses = cell.motion[-5:], cell.statuses[-5:]
        cell.expect(run.done, 'The run is not answered.', _LONGEST_RUN)
        took, answer, log = time.monotonic() - began, run.result(), cell.log()
    kept = results / 'friction.yaml'
    counts = read_result(kept).counts if kept.exists() else {}
    good = bool(answer.success) and len(stalls) == count
    command = f'scripts/faults --stalls {count} --seed {seed}'
    print_line(
        f'{conditions(command)} {len(stalls)} stalls of {duration:g} s: {", ".join(stalls)}. '
        f'{"Succeeded" if answer.success else "Failed"} after {took:.0f} s, '
        f'{log.count("The motion is repeated")} motions repeated (interruptions in the result: '
        f'{counts.get("interruptions", "none stored")}). {answer.message}',
        '' if good else 'red')
    return 0 if good else 1


# ------------------------------------------------------------------------------- table


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the Markdown table, a line per fault and the totals."""
    rows = []
    injected = {item.plan.fault.name for item in outcomes}
    for name in [*(fault.name for fault in FAULTS if fault.name in injected), '']:
        cells = [item for item in outcomes if name in ('', item.plan.fault.name)]
        held, cancelled = ([time for time in times if time is not None] for times in (
            [item.held for item in cells], [item.cancelled for item in cells]))
        rows.append((
            name or '**all**', str(len(cells)), _count(item.survived for item in cells),
            _count(item.within for item in cells),
            *(f'{1e3 * max(times):.0f}' if times else '–' for times in (held, cancelled)),
            *(_count(getattr(item, what) for item in cells)
              for what in ('intact', 'named', 'recovered'))))
    return markdown(('fault', 'cells', 'survived', 'held within 100 ms', 'longest [ms]',
                     'after cancel [ms]', 'results intact', 'cause named', 'recovered'), rows)


def _count(values: Iterator[bool | None]) -> str:
    known = [value for value in values if value is not None]
    return f'{sum(known)} of {len(known)}' if known else '–'


def conditions(command: str) -> str:
    """Return the conditions of a campaign as a sentence."""
    return (f'`{command}`, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, '
            f'Python {platform.python_version()}, robocal_ros {__version__}, simulated arm in '
            'real time.')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; exit code 1 if a cell went wrong."""
    parser = argparse.ArgumentParser(prog='scripts/faults', description=_SUMMARY)
    parser.add_argument('--cells', type=int, default=120,
                        help=f'number of cells of the {len(product())} (default: %(default)s)')
    parser.add_argument('--all', action='store_true', help='all cells; takes hours')
    parser.add_argument('--seed', type=int, default=1,
                        help='seed of the choice, delays and stalls (default: %(default)s)')
    parser.add_argument('--only', default='', metavar='PATTERN',
                        help='only cells whose "capability, phase, fault" matches')
    parser.add_argument('--fuzz', type=int, default=0, metavar='NUMBER',
                        help='only this: send so many random messages to all nodes while they '
                        'move the arm; with --soak, spread over its time')
    parser.add_argument('--soak', type=float, default=0.0, metavar='MINUTES',
                        help='no faults: run observer and procedures for so long')
    parser.add_argument('--stalls', type=int, default=0, metavar='NUMBER',
                        help='only this: stall node or arm so often for 1 s in a friction run of '
                        'six joints')
    parser.add_argument('--page', type=Path, default=None,
                        help='documentation page whose table is replaced')
    parser.add_argument('-o', '--output', type=Path, default=Path('fault_output'),
                        help='output folder (default: %(default)s)')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    if options.fuzz > 0:
        return fuzz(options.fuzz, 60.0 * options.soak, options.output, options.seed)
    if options.soak > 0.0:
        return soak(60.0 * options.soak, options.output)
    if options.stalls > 0:
        return stalled_run(options.stalls, options.output, options.seed)
    plans = [plan for plan in product() if re.search(options.only, str(plan))]
    if not options.all:
        plans = subset(plans, options.cells, options.seed)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for outcome in campaign(plans, options.output, options.seed):
        outcomes.append(outcome)
        held = ''.join(f', held {1e3 * time:.0f} ms after {what}' for what, time in (
            ('the fault', outcome.held), ('cancel', outcome.cancelled)) if time is not None)
        print_line(
            f'{len(outcomes)} of {len(plans)} ({time.monotonic() - began:.0f} s) '
            f'{outcome.plan}: '
            f'{"good" if outcome.good else "BAD"}{held}. {" ".join(outcome.remarks)}',
            '' if outcome.good else 'red')
    stored = sorted(options.output.glob('results/*.yaml'))
    text = table(outcomes)
    if stored:
        damaged = kill_while_writing(stored[0], options.output / 'killed', options.seed)
        text += f'\nKilled while it wrote results: {_KILLS} times; files damaged: {damaged}.\n'
    command = f'scripts/faults --seed {options.seed} ' + (
        '--all' if options.all else f'--cells {options.cells}') + (
        f' --only {options.only!r}' if options.only else '')
    text = f'{conditions(command)}\n\n{text}'
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / 'faults.md').write_text(text, encoding='utf-8')
    OUT.print(text, markup=False, soft_wrap=True)
    if options.page is not None:
        page = options.page.read_text(encoding='utf-8')
        head, _, rest = page.partition(_BEGIN)
        options.page.write_text(
            f'{head}{_BEGIN}\n{text}{_END}{rest.partition(_END)[2]}', encoding='utf-8')
    return 0 if all(item.good for item in outcomes) else 1


if __name__ == '__main__':
    sys.exit(main())
