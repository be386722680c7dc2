# SPDX-License-Identifier: Apache-2.0
"""Simulated fleet: wear, temperature, tool changes, sensor drift, and lost recordings.

`python -m benchmarks.fleet_data FOLDER --arms 100 --weeks 52` writes a catalogue of its estimates,
and what happened to FOLDER/truth.json. The fleet shares no mathematics with the estimators:
temperature acts by an exponential law, wear accelerates, and scatter has outliers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa

from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT
from robocal_ros.cli.main import positive, run
from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet import Catalogue
from robocal_ros.fleet.catalogue import RESULTS, utc

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
        lost: Weeks whose recordings were lost.

    """

    name: str
    seed: int
    events: tuple[Event, ...]
    temperatures: tuple[float, ...]
    lost: frozenset[int] = frozenset()

    def friction(self, joint: str, week: Array) -> Array:
        """Return the factors on a joint's Coulomb friction, apart from temperature, by weeks."""
        factor = np.ones(np.shape(week))
        for event in self.events:
            if event.part == joint:
                years = (week - event.week) / 52.0
                course = np.expm1(years) / np.expm1(1.0) if event.kind == 'wear' else 1.0
                factor *= np.where(years < 0.0, 1.0, 1.0 + event.size * course)
        return factor

    def tool(self, week: Array) -> Array:
        """Return the mass of the mounted tool over that of the first, by weeks."""
        factor = np.ones(np.shape(week))
        for event in self.events:
            mounted = {'tool': week >= event.week, 'wrong_tool': week == event.week}
            factor = np.where(mounted.get(event.kind, False), event.size, factor)
        return factor

    def drift(self, sensor: str, week: Array) -> Array:
        """Return the drift of a sensor's bias [N], by weeks."""
        return sum((event.size * np.maximum(week - event.week, 0) / 52.0 for event in self.events
                    if event.part == sensor), np.zeros(np.shape(week)))


def fleet(
    arms: int, weeks: int, seed: int = 1, *, incidents: float = 0.3, lost: float = 0.03
) -> list[SimulatedArm]:
    """Draw a fleet.

    Args:
        arms: Number of arms.
        weeks: Number of weekly recordings.
        seed: Seed.
        incidents: Mean number of events per arm and year, for each kind.
        lost: Share of lost recordings.

    """
    return [_arm(i, weeks, np.random.default_rng([seed, i]), incidents, lost) for i in range(arms)]


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
    lost = frozenset(week for week in range(weeks) if draw.uniform() < share)
    return SimulatedArm(f'arm_{number + 1:03d}', int(draw.integers(2**31)), tuple(events),
                        tuple(temperatures.tolist()), lost)


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


def estimates(arms: Sequence[SimulatedArm]) -> Iterator[pa.Table]:
    """Yield one table of catalogue rows per arm."""
    quantities = _quantities()
    for arm in arms:
        yield _rows(arm, quantities)


def catalogue_of(arms: Sequence[SimulatedArm], folder: Path) -> tuple[Catalogue, int]:
    """Write the estimates of a fleet to a folder; return their catalogue and their number."""
    catalogue, count = Catalogue(str(folder)), 0
    for rows in estimates(arms):
        catalogue.add(rows)
        count += rows.num_rows
    return catalogue, count


def _rows(arm: SimulatedArm, quantities: Sequence[_Quantity]) -> pa.Table:
    draw = np.random.default_rng(arm.seed)
    weeks = np.array([week for week in range(len(arm.temperatures))
                      if week not in arm.lost], dtype=int)
    warm = np.array(arm.temperatures)[weeks] - _REFERENCE
    times = _BEGIN + _WEEK * weeks + draw.uniform(0.0, 86400.0, len(weeks))
    common = {
        'robot': arm.name, 'verdict': 'pass', 'freedom': 20.0, 'state': 'identified',
        'urdf_sha256': 'simulated', 'settings_sha256': 'default', 'version': 'simulated',
        'inputs_sha256': hashlib.sha256(arm.name.encode()).hexdigest()}
    rows = []
    for item in quantities:
        own = {**common, 'kind': item.kind, 'method': item.method, 'parameter': item.name,
               'joint': item.part, 'unit': item.unit,
               'quantity': item.name.rpartition('.')[2] if item.part else item.name}
        values, deviations = _block(item, arm, weeks, warm, draw)
        for week, time, degrees, value, std in zip(
                weeks, times, warm + _REFERENCE, values, deviations, strict=True):
            bag = f'bags/{arm.name}/week_{week + 1:03d}'
            rows.append({
                **own, 'value': value, 'std': std, 'time': utc(time), 'bag': bag,
                'temperature': degrees, 'bag_sha256': bag, 'result': f'{bag}-{item.kind}'})
    return pa.Table.from_pylist(rows, RESULTS)


def _block(
    item: _Quantity, arm: SimulatedArm, weeks: Array, warm: Array, draw: np.random.Generator
) -> tuple[Array, Array]:
    """Return estimates and stated standard deviations of one parameter."""
    level = item.level + item.spread * draw.standard_normal()
    std = item.std * draw.uniform(0.8, 1.25, len(weeks))
    warmth = item.warmth * draw.uniform(0.7, 1.3)
    if item.kind == 'friction':
        course = level * arm.friction(item.part, weeks) * np.exp(warmth * warm)
    elif item.kind == 'tare':
        drift = arm.drift('ft_wrist', weeks) * item.name.endswith('z')
        course = level + warmth * warm + drift
    elif item.kind == 'payload':
        tool = arm.tool(weeks)
        course = level * (tool if item.name == 'mass' else 1.0 + 0.3 * (tool - 1.0))
    else:
        course = np.full(len(weeks), level)
    error = std * draw.standard_t(20.0, len(weeks))
    error += item.scatter * draw.standard_normal(len(weeks))
    return course + error, std


# ------------------------------------------------------------------------------- commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a catalogue; exit codes as in `robocal_ros.cli.main`."""
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.fleet_data',
        description='Write the catalogue of a simulated fleet.')
    parser.add_argument('folder', type=Path, help='folder to write to')
    parser.add_argument('--arms', type=positive, default=3,
                        help='number of arms (default: %(default)s)')
    parser.add_argument('--weeks', type=positive, default=4,
                        help='number of weekly recordings (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=1, help='seed (default: %(default)s)')
    parser.add_argument('--lost', type=float, default=0.03, metavar='SHARE',
                        help='share of recordings that are lost (default: %(default)s)')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    arms = fleet(options.arms, options.weeks, options.seed, lost=options.lost)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / 'truth.json').write_text(
        json.dumps([asdict(arm) for arm in arms], indent=1, default=sorted) + '\n',
        encoding='utf-8')
    catalogue, count = catalogue_of(arms, options.folder)
    catalogue.compact()
    OUT.print(f'{count} estimates of {len(arms)} arms: {options.folder}', soft_wrap=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
