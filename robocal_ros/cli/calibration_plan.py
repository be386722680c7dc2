# SPDX-License-Identifier: Apache-2.0
"""Plan of `robocal calibrate`: the cheapest steps from what is there to what is asked for.

Every step declares what it needs and yields. What a preview says a step cannot reach is ruled out,
and the plan is searched anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count

Facts = frozenset[str]

# What is mounted; one of them, with the tool, at a time.
BARE, TOOL, EXTRA = 'the bare arm', 'the mounted tool', 'the mounted test load'
MOUNTS = frozenset((BARE, TOOL, EXTRA))
# What is there, or is allowed.
SENSOR, EFFORTS, TRACKER = 'an F/T sensor', 'joint efforts', 'a tracker'
MASS, REMOVABLE = 'the mass of the tool from a scale', 'a tool that can be taken off'
TEST_LOAD = 'a test load of known mass'
# What is measured.
ARM_BARE, LINKS, GAINS = 'the bare arm in motion', "the arm's own links", 'calibrated drive gains'
REFERENCE, PAYLOAD, FRICTION = 'a reference run', 'the payload', 'joint friction'
TARE, COMPLIANCE = 'the tare of the F/T sensor', 'joint compliance'
GEOMETRY = 'the frames of all joints'
UNLOADED, LOADED = 'the unloaded set of postures', 'the loaded set of postures'

KEPT = frozenset((REFERENCE, UNLOADED, LOADED, EXTRA))
"""What is in no stored result."""

KNOWLEDGE = frozenset((GAINS, LINKS))
"""What a preview may assume before it is measured."""

STORED = {'drive_gains': GAINS, 'payload': PAYLOAD, 'friction': FRICTION, 'tare': TARE,
          'compliance': COMPLIANCE, 'geometry': GEOMETRY}
"""What a stored result of a kind yields."""

PURPOSES = {
    'gravity': "the tool's weight in the driver",
    'contact': 'contacts and external forces',
    'friction': 'compensated friction',
    'accuracy': 'absolute accuracy',
}
"""What a calibration can be for."""


@dataclass(frozen=True)
class Action:
    """One step.

    Attributes:
        title: What it does.
        needs: Facts without which it cannot be carried out.
        yields: Facts after it.
        seconds: Usual duration; a preview states that of this arm [s].
        ends: Facts that no longer hold after it.
        risk: What it is avoided for, as time [s]: a hand, fast motions.
        procedure: Name in the registry; empty for a step by hand.
        verb: Service, by default that of the procedure.
        preview: Service that shows it without moving, empty for none.
        parameters: Parameters of the node.

    """

    title: str
    needs: Facts
    yields: Facts
    seconds: float = field(compare=False)
    ends: Facts = frozenset()
    risk: float = 0.0
    procedure: str = ''
    verb: str = ''
    preview: str = ''
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False, compare=False)

    @property
    def by_hand(self) -> bool:
        """Whether a person carries it out."""
        return not self.procedure


def _of(*facts: str) -> Facts:
    return frozenset(facts)


def _with(known: Facts) -> str:
    """Return the end of the title of a step that needs some knowledge."""
    return f' with {" and ".join(sorted(known, reverse=True))}' if known else ''


# Time for which a hand, a fast motion, and drive gains that rely on the URDF's links are avoided.
_HAND, _FAST, _DOUBTFUL = 300.0, 120.0, 60.0


def actions(mass: float = 0.0, mass_std: float = 0.0) -> Iterator[Action]:
    """Yield all steps.

    Args:
        mass: Mass of the tool from a scale, 0 if it is not known [kg].
        mass_std: Its standard deviation [kg].

    """
    weighed = {'known_mass': mass, 'known_mass_std': mass_std}
    yield Action('take the tool off', _of(TOOL, REMOVABLE), _of(BARE), 60.0, _of(TOOL), _HAND)
    yield Action('mount the tool', _of(BARE), _of(TOOL), 60.0, _of(BARE), _HAND)
    # Links and drive gains, which friction is in the unit of.
    bare = Action('arm without load', _of(BARE, EFFORTS), _of(ARM_BARE), 60.0, _of(FRICTION),
                  _FAST, 'arm', '', 'preview_identify_arm', {'arm_load': 0.0})
    yield bare
    yield replace(bare, needs=bare.needs | {GAINS}, yields=bare.yields | {LINKS})
    yield Action('arm with the weighed tool', _of(TOOL, MASS, EFFORTS, ARM_BARE),
                 KNOWLEDGE, 60.0, _of(FRICTION), _FAST, 'arm', '', 'preview_identify_arm',
                 {'arm_load': mass, 'arm_load_std': mass_std})
    yield Action('drive gains by the weighed tool', _of(TOOL, MASS, EFFORTS), _of(GAINS),
                 60.0, _of(ARM_BARE, LINKS, FRICTION), _FAST + _DOUBTFUL, 'drive_gains', '',
                 'preview_calibrate_gains', weighed)
    payload = partial(Action, yields=_of(PAYLOAD), procedure='payload', preview='preview')
    yield payload('payload by the F/T sensor at rest', _of(TOOL, SENSOR), seconds=120.0,
                  parameters={'method': 'static_poses', **weighed})
    # From efforts: as they are, with known gains, and with known links too.
    fast = {'method': 'excitation', 'excitation_source': 'torque', **weighed}
    excited = partial(payload, seconds=40.0, risk=_FAST)
    for known in (_of(), _of(GAINS), KNOWLEDGE):
        suffix = _with(known)
        yield payload(f'payload by joint torques at constant speed{suffix}',
                      _of(TOOL, MASS, EFFORTS) | known, seconds=120.0,
                      parameters={'method': 'two_plane', **weighed})
        yield excited(f'payload by joint torques in a fast motion{suffix}',
                      _of(TOOL, EFFORTS) | known, parameters={**fast, 'reference_run': 'off'})
    yield excited('reference run without the tool', _of(BARE, EFFORTS, GAINS),
                  yields=_of(REFERENCE), parameters={**fast, 'reference_run': 'record'})
    yield excited('payload by the difference to the reference run',
                  _of(TOOL, EFFORTS, GAINS, REFERENCE),
                  parameters={**fast, 'reference_run': 'subtract'})
    for known in (_of(), KNOWLEDGE):
        for what, carried in (' of the bare arm', _of(BARE)), ('', _of(TOOL, PAYLOAD)):
            yield Action(f'friction{what}{_with(known)}', carried | {EFFORTS} | known,
                         _of(FRICTION), 1000.0, procedure='friction', preview='preview')
    yield Action('tare', _of(TOOL, PAYLOAD, SENSOR), _of(TARE), 10.0, procedure='wrench')
    # Compliance with a load that is mounted by hand.
    loads = {'method': 'loaded_unloaded'}
    for what, mount in (('', _of(BARE)), (' with the tool', _of(TOOL, PAYLOAD))):
        yield Action(f'frames of the joints{what}', mount | {TRACKER}, _of(GEOMETRY), 300.0,
                     _of(UNLOADED, LOADED), procedure='geometry', verb='run', preview='preview',
                     parameters={'method': 'geometry', 'load_mass': 0.0})
        yield Action(f'postures without the test load{what}', mount | {TRACKER, TEST_LOAD},
                     _of(UNLOADED), 300.0, procedure='compliance', verb='measure_unloaded',
                     preview='preview', parameters=loads)
    yield Action('mount the test load', _of(UNLOADED), _of(EXTRA), 60.0, risk=_HAND)
    yield Action('postures with the test load', _of(UNLOADED, EXTRA), _of(LOADED), 300.0,
                 procedure='compliance', verb='measure_loaded', parameters=loads)
    yield Action('take the test load off', _of(LOADED, EXTRA), frozenset(), 60.0, _of(EXTRA),
                 _HAND)
    yield Action('estimate of the compliance', _of(UNLOADED, LOADED), _of(COMPLIANCE), 10.0,
                 procedure='compliance', verb='estimate', parameters=loads)


def goals(purposes: Iterable[str], facts: Facts) -> Facts:
    """Return what purposes need."""
    wanted = {'gravity': _of(PAYLOAD), 'friction': _of(FRICTION),
              'accuracy': _of(GEOMETRY, *({COMPLIANCE} if TEST_LOAD in facts else ())),
              'contact': _of(PAYLOAD, TARE if SENSOR in facts else FRICTION)}
    return frozenset().union(*(wanted[purpose] for purpose in purposes))


def cheapest(steps: Collection[Action], facts: Facts, wanted: Facts) -> tuple[Action, ...] | None:
    """Return the steps of least time and risk that lead to all wanted facts; None for none.

    Uniform-cost search over sets of facts.
    """
    numbers = count()
    queue: list[tuple[float, int, Facts, tuple[Action, ...]]] = [(0.0, next(numbers), facts, ())]
    seen: set[Facts] = set()
    while queue:
        cost, _, state, path = heappop(queue)
        if wanted <= state and EXTRA not in state:
            return path
        if state in seen:
            continue
        seen.add(state)
        for step in steps:
            after = (state - step.ends) | step.yields
            if step.needs <= state and after not in seen:
                heappush(queue, (cost + step.seconds + step.risk, next(numbers), after,
                                 (*path, step)))
    return None


def reason(step: Action, later: Iterable[Action], wanted: Facts) -> str:
    """Return why a step is in a plan: what needs it."""
    users = [other.title for other in later if step.yields & other.needs]
    asked = sorted(step.yields & wanted)
    return (f'asked for: {", ".join(asked)}' if asked else
            f'"{users[0]}" needs {", ".join(sorted(step.yields))}' if users else
            'the arm is left as it was found')


def left_out(
    steps: Iterable[Action], plan: Collection[Action], facts: Facts, ruled: Mapping[Action, str]
) -> dict[str, list[str]]:
    """Return the titles of steps that are not in a plan, by the reason."""
    steps, reachable = list(steps), facts
    for _ in steps:
        reachable = reachable.union(*(step.yields for step in steps
                                      if step.needs <= reachable and step not in ruled))
    planned = {step.title for step in plan}
    found: dict[str, list[str]] = {}
    for step in steps:
        if step.title not in planned and not step.by_hand:
            missing = sorted(step.needs - reachable)
            why = ruled.get(step) or (
                f'Needs {", ".join(missing)}' if missing else
                'Known already' if step.yields <= facts else 'Not needed')
            if step.title not in found.setdefault(why, []):
                found[why].append(step.title)
    return found
