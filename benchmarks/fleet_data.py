# SPDX-License-Identifier: Apache-2.0
"""Simulated fleet: wear, temperature, tool changes, sensor drift, and faulty recordings.

`python -m benchmarks.fleet_data FOLDER --arms 3 --weeks 4` writes bags of the simulated arm below
FOLDER/bags/<robot>, and the parameters to estimate from them: `robocal fleet estimate FOLDER/bags
-o FOLDER --robot-from folder --params-file FOLDER/parameters.yaml`. With ``--rows`` it writes a
catalogue of estimates without bags, of any number of arms in seconds. Both write what happened to
FOLDER/truth.json. The fleet shares no mathematics with the estimators: temperature acts by
an exponential law, wear accelerates, and scatter has outliers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.offline_bag import (
    DESCRIPTION,
    JOINT_STATES,
    STORE,
    WRENCH,
    Record,
    header,
    joint_states,
    text_message,
    wrenches,
)
from benchmarks.reference import recorded
from benchmarks.second_cell import Load
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT
from robocal_ros.cli.main import run
from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet.catalogue import RESULTS, Catalogue, utc
from robocal_ros.messages.bag_writer import BagWriter, TopicQos
from robocal_sim.truth import HiddenTruth

TEMPERATURE = '/joint_6/temperature'
"""Topic of the temperature in the bags."""

_PARAMETERS = f"""\
/**/friction_identification:
  ros__parameters: {{temperature_topic: {TEMPERATURE}, use_payload: false}}
/**/payload_identification:
  ros__parameters: {{method: static_poses, sensor_frame: ft_wrist}}
"""
_FAULTS = ('truncated', 'no_topic', 'corrupted', 'missing')
_WEEK = 7.0 * 86400.0
# Monday, 6 January 2025, 06:00 UTC.
_BEGIN = datetime(2025, 1, 6, 6, tzinfo=timezone.utc).timestamp()
_JOINTS = tuple(f'joint_{i}' for i in range(1, 7))
_REFERENCE = 24.0


@dataclass(frozen=True)
class Event:
    """Something that happens to an arm.

    Attributes:
        kind: ``wear`` (accelerating rise of friction), ``damage`` (step of friction), ``tool``
            (another tool from then on), ``wrong_tool`` (another tool in one recording),
            ``sensor`` (drift of a force/torque sensor), ``stiff`` (friction that differs from
            that of the siblings from the start).
        part: Joint or sensor; empty for the tool.
        week: First week.
        size: Relative change of friction (per year for wear), mass of the other tool over that of
            the first, or drift [N/year].

    """

    kind: str
    part: str
    week: int
    size: float


@dataclass(frozen=True)
class SimulatedArm:
    """One arm of the fleet.

    Attributes:
        name: Name.
        seed: Seed of all that is random about it.
        events: What happens to it.
        temperatures: Temperature in each week [°C].
        faults: Fault of the recording of a week, by week: ``truncated``, ``no_topic``,
            ``corrupted`` or ``missing``.

    """

    name: str
    seed: int
    events: tuple[Event, ...]
    temperatures: tuple[float, ...]
    faults: Mapping[int, str] = field(default_factory=dict)

    def friction(self, joint: str, week: int) -> float:
        """Return the factor on a joint's Coulomb friction, apart from temperature."""
        factor = 1.0
        for event in self.events:
            years = (week - event.week) / 52.0
            if event.part != joint or years < 0.0:
                continue
            if event.kind in ('damage', 'stiff'):
                factor *= 1.0 + event.size
            elif event.kind == 'wear':
                factor *= 1.0 + event.size * (np.exp(years) - 1.0) / (np.e - 1.0)
        return factor

    def tool(self, week: int) -> float:
        """Return the mass of the mounted tool over that of the first."""
        factor = 1.0
        for event in self.events:
            if (event.kind == 'tool' and week >= event.week) or (
                    event.kind == 'wrong_tool' and week == event.week):
                factor = event.size
        return factor

    def drift(self, sensor: str, week: int) -> float:
        """Return the drift of a sensor's bias [N]."""
        return sum(event.size * max(week - event.week, 0) / 52.0 for event in self.events
                   if event.kind == 'sensor' and event.part == sensor)


def fleet(
    arms: int, weeks: int, seed: int = 1, *, incidents: float = 0.3, faults: float = 0.03
) -> list[SimulatedArm]:
    """Draw a fleet.

    Args:
        arms: Number of arms.
        weeks: Number of weekly recordings.
        seed: Seed.
        incidents: Mean number of events per arm and year, for each kind.
        faults: Share of faulty recordings.

    """
    return [_arm(i, weeks, np.random.default_rng([seed, i]), incidents, faults)
            for i in range(arms)]


def _arm(
    number: int, weeks: int, draw: np.random.Generator, incidents: float, share: float
) -> SimulatedArm:
    events = []
    sizes = {'wear': (0.2, 0.6), 'damage': (0.1, 0.4), 'tool': (1.3, 3.0),
             'wrong_tool': (1.5, 3.0), 'sensor': (5.0, 20.0), 'stiff': (0.5, 1.0)}
    for kind, (low, high) in sizes.items():
        if draw.uniform() < incidents * min(weeks / 52.0, 1.0):
            part = {'tool': '', 'wrong_tool': '', 'sensor': 'ft_wrist'}.get(
                kind, str(draw.choice(_JOINTS)))
            week = 0 if kind == 'stiff' else int(draw.integers(min(8, weeks - 1), weeks))
            events.append(Event(kind, part, week, float(draw.uniform(low, high))))
    hall = draw.normal(_REFERENCE, 2.0)
    season = 5.0 * np.sin(2.0 * np.pi * (np.arange(weeks) - 16.0) / 52.0)
    temperatures = hall + season + draw.normal(0.0, 3.0, weeks)
    faults = {week: str(draw.choice(_FAULTS)) for week in range(weeks) if draw.uniform() < share}
    return SimulatedArm(f'arm_{number + 1:03d}', int(draw.integers(2**31)), tuple(events),
                        tuple(temperatures.tolist()), faults)


def write_truth(folder: Path, arms: Sequence[SimulatedArm]) -> None:
    """Write what happens to the arms."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'truth.json').write_text(
        json.dumps([asdict(arm) for arm in arms], indent=1) + '\n', encoding='utf-8')


# ------------------------------------------------------------------------------ estimates


@dataclass(frozen=True)
class _Quantity:
    """One estimated parameter of the simulated catalogue.

    Attributes:
        kind: Kind of the result.
        method: Method.
        name: Name.
        part: Joint; empty for none.
        unit: Unit.
        level: Mean over the arms.
        spread: Relative or absolute standard deviation between arms.
        std: Stated standard deviation.
        scatter: Standard deviation between recordings beyond it.
        warmth: Relative change per kelvin; of sensors absolute.

    """

    kind: str
    method: str
    name: str
    part: str
    unit: str
    level: float
    spread: float
    std: float
    scatter: float
    warmth: float = 0.0


def _quantities() -> list[_Quantity]:
    truth = default_cell.hidden_truth()
    found = []
    for joint in _JOINTS:
        law = truth.joints[joint].friction
        for name, values, unit, warmth in (('coulomb', law.coulomb, 'N·m', -0.008),
                                           ('viscous', law.viscous, 'N·m·s/rad', -0.02)):
            found += [
                _Quantity('friction', 'coulomb_viscous', f'{joint}.{name}_{direction}', joint,
                          unit, value, 0.1 * value, 0.015 * value, 0.01 * value, warmth)
                for direction, value in zip(('forward', 'backward'), values, strict=True)]
        found.append(_Quantity('drive_gains', 'known_mass', f'{joint}.effort_scale', joint, '1',
                               1.0, 0.02, 0.004, 0.003))
    tool = truth.tool
    if tool is None:
        raise ConfigurationError('The hidden truth has no tool; the fleet needs one.')
    found.append(_Quantity('payload', 'static_poses', 'mass', '', 'kg', tool.mass, 0.0,
                           0.004, 0.004))
    found += [_Quantity('payload', 'static_poses', f'com_{axis}', '', 'm', value, 0.0, 4e-4, 3e-4)
              for axis, value in zip('xyz', tool.centre_of_mass, strict=True)]
    found += [_Quantity('tare', 'rest', f'ft_wrist.force_{axis}', '', 'N', 0.0, 5.0, 0.02, 0.3,
                        0.1) for axis in 'xyz']
    return found


def estimates(arms: Sequence[SimulatedArm], *, temperature: bool = True) -> Iterator[pa.Table]:
    """Yield one table of catalogue rows per arm.

    Args:
        arms: The fleet.
        temperature: Whether the temperature was recorded.

    """
    quantities = _quantities()
    for arm in arms:
        yield _rows(arm, quantities, temperature)


def _rows(arm: SimulatedArm, quantities: Sequence[_Quantity], known: bool) -> pa.Table:
    draw = np.random.default_rng(arm.seed)
    weeks = np.array([week for week in range(len(arm.temperatures))
                      if week not in arm.faults], dtype=int)
    warm = np.array(arm.temperatures)[weeks] - _REFERENCE
    times = _BEGIN + _WEEK * weeks + draw.uniform(0.0, 86400.0, len(weeks))
    tool = np.array([arm.tool(week) for week in weeks])
    blocks = [_block(item, arm, weeks, warm, tool, draw) for item in quantities]
    count, total = len(weeks), len(weeks) * len(quantities)

    def told(values: Iterator[str]) -> list[str]:
        return [value for value in values for _ in range(count)]

    digest = hashlib.sha256(arm.name.encode()).hexdigest()
    bags = [f'bags/{arm.name}/week_{week + 1:03d}' for week in weeks] * len(quantities)
    return pa.table({
        'robot': [arm.name] * total, 'kind': told(item.kind for item in quantities),
        'method': told(item.method for item in quantities), 'verdict': ['pass'] * total,
        'parameter': told(item.name for item in quantities),
        'joint': told(item.part for item in quantities),
        'quantity': told(item.name.rpartition('.')[2] if item.part else item.name
                         for item in quantities),
        'unit': told(item.unit for item in quantities),
        'value': np.concatenate([block[0] for block in blocks]),
        'std': np.concatenate([block[1] for block in blocks]),
        'freedom': np.full(total, 20.0), 'state': ['identified'] * total,
        'time': [utc(time) for time in times] * len(quantities),
        'temperature': np.tile(warm + _REFERENCE, len(quantities)) if known else [None] * total,
        'bag': bags, 'bag_sha256': bags, 'urdf_sha256': ['simulated'] * total,
        'settings_sha256': ['default'] * total, 'inputs_sha256': [digest] * total,
        'result': [f'{bag}-{kind}' for bag, kind in zip(
            bags, told(item.kind for item in quantities), strict=True)],
        'version': ['simulated'] * total}, schema=RESULTS)


def _block(
    item: _Quantity, arm: SimulatedArm, weeks: Array, warm: Array, tool: Array,
    draw: np.random.Generator,
) -> tuple[Array, Array]:
    """Return estimates and stated standard deviations of one parameter."""
    level = item.level + item.spread * draw.standard_normal()
    std = item.std * draw.uniform(0.8, 1.25, len(weeks))
    warmth = item.warmth * draw.uniform(0.7, 1.3)
    if item.kind == 'friction':
        worn = np.array([arm.friction(item.part, week) for week in weeks])
        course = level * worn * np.exp(warmth * warm)
    elif item.kind == 'tare':
        drift = np.array([arm.drift('ft_wrist', week) for week in weeks])
        course = level + warmth * warm + drift * (item.name.endswith('z'))
    elif item.kind == 'payload':
        course = level * (tool if item.name == 'mass' else 1.0 + 0.3 * (tool - 1.0))
    else:
        course = np.full(len(weeks), level)
    error = std * draw.standard_t(20.0, len(weeks))
    error += item.scatter * draw.standard_normal(len(weeks))
    return course + error, std


# ----------------------------------------------------------------------------------- bags


def truth_of(arm: SimulatedArm, week: int) -> HiddenTruth:
    """Return the hidden truth of an arm in a week."""
    truth = default_cell.hidden_truth()
    warm = arm.temperatures[week] - _REFERENCE
    joints = {}
    for name, joint in truth.joints.items():
        law, worn = joint.friction, arm.friction(name, week)
        coulomb, viscous = worn * np.exp(-0.008 * warm), np.exp(-0.02 * warm)
        joints[name] = replace(joint, friction=replace(
            law, coulomb=_scaled(law.coulomb, coulomb),
            breakaway=_scaled(law.breakaway, coulomb), viscous=_scaled(law.viscous, viscous)))
    return replace(truth, joints=joints)


def load_of(arm: SimulatedArm, week: int) -> Load:
    """Return the tool of an arm in a week."""
    tool = default_cell.hidden_truth().tool
    if tool is None:
        raise ConfigurationError('The hidden truth has no tool; the fleet needs one.')
    body, factor = default_cell.rigid_body(tool), arm.tool(week)
    return Load(factor * body.mass, np.asarray(body.com), factor * np.asarray(body.inertia))


def _scaled(pair: tuple[float, float], factor: float) -> tuple[float, float]:
    return pair[0] * factor, pair[1] * factor


def write_bags(folder: Path, arms: Sequence[SimulatedArm]) -> Iterator[Path]:
    """Write bags of friction runs without, and of static postures with the tool, for each week.

    Args:
        folder: Folder for the folders of the arms.
        arms: The fleet.

    Yields:
        The bags, as they are written.

    """
    for arm in arms:
        for week in range(len(arm.temperatures)):
            fault = arm.faults.get(week, '')
            if fault == 'missing':
                continue
            cell: dict[str, Any] = {'truth': truth_of(arm, week),
                                    'seed': arm.seed % 100_000 + week}
            begin = _BEGIN + _WEEK * week
            for name, node, service, record in (
                ('friction', 'friction_identification', 'run',
                 recorded('friction', speed_count=8, min_speed=0.03, max_speed=0.6,
                          measure_joints=('joint_6',), **cell)),
                ('payload', 'payload_identification', 'run',
                 recorded('static_poses', load=load_of(arm, week), poses=8, **cell)),
            ):
                path = folder / arm.name / f'week_{week + 1:03d}_{name}'
                write_bag(path, shifted(record, begin), node, service, arm.temperatures[week],
                          fault)
                yield path
                begin += 3600.0


def shifted(record: Record, begin: float) -> Record:
    """Return a recording that begins at an instant [s]."""
    offset = begin - float(record.joints.time[0])
    return replace(record, joints=replace(record.joints, time=record.joints.time + offset),
                   wrench=replace(record.wrench, time=record.wrench.time + offset))


def write_bag(
    path: Path, record: Record, node: str, service: str, temperature: float, fault: str
) -> None:
    """Write one recording with the marks of the node, with a fault or none.

    Args:
        path: Folder of the bag; must not exist.
        record: The recording.
        node: Name of the node.
        service: Its service that ran.
        temperature: Temperature of the joint [°C].
        fault: ``no_topic`` leaves the joint states out, ``corrupted`` overwrites every third one,
            ``truncated`` cuts the file.

    """
    marks = f'/{node}/marks'
    first, last = (float(record.joints.time[i]) for i in (0, -1))
    messages = [
        (int(first * 1e9), DESCRIPTION, text_message(record.urdf)),
        (int(first * 1e9), TEMPERATURE, _temperature(first, temperature)),
        (int(first * 1e9), marks, _mark('begin', service, first - 1e-3)),
        (int(last * 1e9) + 1, marks, _mark('end', service, last))]
    if fault != 'no_topic':
        joints = record.joints
        if fault == 'corrupted':
            broken = np.arange(len(joints.time)) % 3 == 0
            joints = replace(joints, position=np.where(broken[:, None], 253.0, joints.position),
                             effort=np.where(broken[:, None], 0.0, joints.effort))
        messages += joint_states(joints)
    messages += wrenches(record.wrench)
    path.parent.mkdir(parents=True, exist_ok=True)
    with BagWriter(path) as bag:
        bag.add(DESCRIPTION, 'std_msgs/msg/String', TopicQos(latched=True, depth=1))
        bag.add(JOINT_STATES, 'sensor_msgs/msg/JointState')
        bag.add(WRENCH, 'geometry_msgs/msg/WrenchStamped')
        bag.add(TEMPERATURE, 'sensor_msgs/msg/Temperature')
        bag.add(marks, 'diagnostic_msgs/msg/DiagnosticArray')
        for stamp, topic, raw in sorted(messages, key=lambda item: item[0]):
            bag.write(topic, stamp, raw)
    if fault == 'truncated':
        file, = path.glob('*.mcap')
        file.write_bytes(file.read_bytes()[:file.stat().st_size // 3])


def _temperature(stamp: float, value: float) -> bytes:
    kind = 'sensor_msgs/msg/Temperature'
    return bytes(STORE.serialize_cdr(STORE.types[kind](header(stamp), value, 0.25), kind))


def _mark(name: str, service: str, stamp: float) -> bytes:
    types: Any
    types, kind = STORE.types, 'diagnostic_msgs/msg/DiagnosticArray'
    pair = types['diagnostic_msgs/msg/KeyValue']('joint_states', f'{stamp:.9f}')
    status = types['diagnostic_msgs/msg/DiagnosticStatus'](0, name, service, 'simulated', [pair])
    return bytes(STORE.serialize_cdr(types[kind](header(stamp), [status]), kind))


# ------------------------------------------------------------------------------- commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a fleet; exit codes as in `robocal_ros.cli.main`."""
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.fleet_data', description='Write a simulated fleet.')
    parser.add_argument('folder', type=Path, help='folder to write to')
    parser.add_argument('--arms', type=int, default=3,
                        help='number of arms (default: %(default)s)')
    parser.add_argument('--weeks', type=int, default=4,
                        help='number of weekly recordings (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=1, help='seed (default: %(default)s)')
    parser.add_argument('--incidents', type=float, default=0.3,
                        help='mean number of events of each kind per arm and year '
                             '(default: %(default)s)')
    parser.add_argument('--faults', type=float, default=0.03, metavar='SHARE',
                        help='share of faulty recordings (default: %(default)s)')
    parser.add_argument('--rows', action='store_true',
                        help='write a catalogue of estimates instead of bags')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    if min(options.arms, options.weeks) < 1:
        raise ConfigurationError(
            f'--arms and --weeks must be at least 1, got {options.arms} and {options.weeks}.')
    arms = fleet(options.arms, options.weeks, options.seed, incidents=options.incidents,
                 faults=options.faults)
    write_truth(options.folder, arms)
    if options.rows:
        catalogue, count = Catalogue(str(options.folder)), 0
        for rows in estimates(arms):
            catalogue.add(rows)
            count += rows.num_rows
        catalogue.compact()
        OUT.print(f'{count} estimates of {len(arms)} arms: {options.folder}', soft_wrap=True)
        return 0
    (options.folder / 'parameters.yaml').write_text(_PARAMETERS, encoding='utf-8')
    for path in write_bags(options.folder / 'bags', arms):
        OUT.print(str(path), soft_wrap=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
