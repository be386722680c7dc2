# SPDX-License-Identifier: Apache-2.0
"""The second world obeys physics, shares nothing with product and simulator, and is scored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from support.imports import ROOT, imports_in

from benchmarks import second_campaign, second_world
from benchmarks.offline_bag import write_record
from benchmarks.second_bound import bounds
from benchmarks.second_campaign import (
    METHODS,
    Case,
    Value,
    against_peers,
    blame,
    campaign,
    comparison,
    figures,
    report,
    run_cell,
    summary,
    value_of,
)
from benchmarks.second_cell import Cell, Load, record_of
from benchmarks.second_world import ARMS, EFFECTS, World, moments, read_arm
from robocal_ros.errors import ConfigurationError
from robocal_ros.estimators import estimator
from robocal_ros.messages import Bag, Selection
from robocal_ros.offline import OfflineEstimation
from robocal_ros.results import Verdict
from robocal_ros.robot import effort_scales

DOWN = np.array([0.0, 0.0, -second_world.GRAVITY])
LOAD = Load(1.5, np.array([0.02, -0.03, 0.08]), np.diag([4e-3, 5e-3, 3e-3]))


def _pinocchio(name: str) -> tuple[pin.Model, list[int]]:
    # Without the two coordinates by which Pinocchio describes an angle without limits.
    model = pin.buildModelFromXML(second_world.urdf_of(name).replace('continuous', 'revolute'))
    return model, [model.idx_vs[model.getJointId(joint)] for joint in read_arm(name).joints]


def _motion(n: int, count: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, v, a = np.random.default_rng(1).uniform(-1.0, 1.0, (3, count, n))
    return q, 2.0 * v, 5.0 * a


@pytest.mark.parametrize('name', ARMS)
def test_torques_are_those_of_pinocchio(name: str) -> None:
    arm, (model, columns) = read_arm(name), _pinocchio(name)
    q, v, a = _motion(len(arm.joints))
    about, _ = moments(arm, World(arm, 1, {}).links, q, v, a, DOWN)
    full = np.zeros((3, len(q), model.nv))
    full[:, :, columns] = q, v, a
    data = model.createData()
    expected = np.array([pin.rnea(model, data, *row) for row in zip(*full, strict=True)])
    found = np.einsum('kni,ni->kn', about, arm.axis)
    np.testing.assert_allclose(found, expected[:, columns], atol=1e-9)


def test_wrenches_are_newtons_and_eulers_of_the_load() -> None:
    """The reading is the opposite of the force that Pinocchio's last joint needs for the load."""
    arm, (model, _) = read_arm('UR10'), _pinocchio('UR10')
    for index in range(1, model.njoints):
        model.inertias[index] = pin.Inertia.Zero()
    frame = model.getFrameId(ARMS['UR10'].tool)
    model.inertias[-1] = model.frames[frame].placement.act(
        pin.Inertia(LOAD.mass, LOAD.centre, LOAD.inertia))
    q, v, a = _motion(model.nv)
    beyond = arm.tool @ LOAD.matrix @ arm.tool.T
    _, wrench = moments(arm, np.zeros((6, 4, 4)), q, v, a, DOWN, beyond=beyond)
    data = model.createData()
    for row, reading in zip(zip(q, v, a, strict=True), wrench, strict=True):
        pin.rnea(model, data, *row)
        expected = -model.frames[frame].placement.actInv(data.f[model.njoints - 1]).vector
        np.testing.assert_allclose(reading, expected, atol=1e-9)


def test_joints_yield_towards_the_load() -> None:
    arm = read_arm('UR10')
    q = np.tile(np.array(ARMS['UR10'].home), (3000, 1))
    stiff, soft = (World(arm, 3, effects) for effects in ({}, {'sag': 2e-3}))
    for world in (stiff, soft):
        world.run(q, 1e-3, 100.0)
    change = soft.carried[-1] - stiff.carried[-1]
    still = np.zeros((2, 6))
    slope = []
    for joint in range(6):
        moved = q[:2] + np.outer([-1e-4, 1e-4], np.eye(6)[joint])
        about, _ = moments(arm, stiff.links, moved, still, still, DOWN)
        slope.append(np.diff(np.einsum('kni,ni->kn', about, arm.axis), axis=0)[0] / 2e-4)
    sag = -np.einsum('ni,ni->n', soft.compliance, arm.axis) * stiff.carried[-1]
    np.testing.assert_allclose(change, sag @ np.array(slope), atol=2e-3 * np.abs(change).max())


def test_a_sliding_joint_reports_its_friction() -> None:
    arm = read_arm('UR10')
    world = World(arm, 5, {})
    q = np.tile(np.array(ARMS['UR10'].home), (6000, 1))
    q[1000:5000, 5] += 0.2e-3 * np.arange(4000)
    q[5000:, 5] = q[4999, 5]
    found = world.run(q, 1e-3, 500.0)
    steady = (found.time > found.time[0] + 2.0) & (found.time < found.time[0] + 4.5)
    about, _ = moments(arm, world.links, found.position[steady], *np.zeros((2, steady.sum(), 6)),
                       DOWN)
    friction = found.effort[steady, 5] - about[:, 5] @ arm.axis[5]
    assert friction.mean() == pytest.approx(float(world.friction(5, np.array([0.2]))[0]), rel=0.01)
    assert friction.mean() == pytest.approx(
        world.coulomb[0, 5] + 0.2 * world.viscous[0, 5], rel=0.01)


OWN = {
    'links off': {'links', 'beyond', 'excess'},
    'links off together': {'links', 'beyond', 'excess'},
    'tilt': {'gravity'}, 'large tilt': {'gravity'}, 'sag': {'compliance'},
    'bending': {'compliance'}, 'zeros': {'zeros'}, 'rotor': {'rotor'}, 'gains': {'gain'},
    'small gains': {'gain'}, 'offsets': {'offset'}, 'offset drift': {'drift'},
    'current': {'constant'}, 'Stribeck': {'breakaway', 'bend_speed'},
    'load friction': {'load'},
    'driven friction': {'driven'}, 'sublinear': {'exponent'}, 'warming': {'warming'},
    'pause': {'pause'}, 'cold start': {'cold'}, 'ripple': {'ripple'}, 'presliding': {'slide'},
    'F/T gain': {'calibration'}, 'F/T rotation': {'calibration'},
    'F/T cross-talk': {'calibration'}}
"""Attributes that each effect changes; the others act on recordings."""


@pytest.mark.parametrize('name', EFFECTS)
def test_an_effect_that_is_switched_off_leaves_the_others(name: str) -> None:
    every = {effect: high for effect, (_, high, _) in EFFECTS.items()}
    if name in ('tilt', 'large tilt'):
        # The larger one counts.
        every = {effect: high for effect, high in every.items() if 'tilt' not in effect}
        every[name] = EFFECTS[name][1]
    worlds = [World(read_arm('Panda'), 11, effects) for effects in (
        every, {effect: high for effect, high in every.items() if effect != name})]
    different = {part for part, value in vars(worlds[0]).items() if isinstance(value, np.ndarray)
                 and not np.array_equal(value, getattr(worlds[1], part))} - {'slope'}
    assert different == OWN.get(name, set())


def test_friction_is_higher_after_an_hour_and_falls_in_motion() -> None:
    arm = read_arm('UR10')
    world = World(arm, 5, {'cold start': 0.25})
    phase = np.linspace(0.0, 40.0 * np.pi, 60000)[:, None]
    q = np.array(ARMS['UR10'].home) + 0.1 * (1.0 - np.cos(phase))
    world.run(q, 1e-3, 100.0, pause=3600.0)
    # Of an hour's 1 − 1/e² of the rise, as much as warms up in a minute is gone.
    begin = 0.865 * world.cold
    np.testing.assert_allclose(world.factor[0], 1.0 + begin, rtol=1e-3)
    np.testing.assert_allclose(
        world.factor[-1], 1.0 + begin * np.exp(-60.0 / world.warm_time), rtol=0.01)
    world.run(q, 1e-3, 100.0)
    assert np.all(world.factor[0] < 1.0 + begin)


def test_offsets_of_efforts_drift_as_the_drives_warm_up() -> None:
    arm = read_arm('UR10')
    phase = np.linspace(0.0, 40.0 * np.pi, 60000)[:, None]
    q = np.array(ARMS['UR10'].home) + 0.1 * (1.0 - np.cos(phase))
    found = []
    for effects in ({}, {'offset drift': 0.01}):
        world = World(arm, 5, effects)
        found.append(world.run(q, 1e-3, 100.0).effort)
    drift = world.drift * (1.0 - np.exp(-60.0 / world.warm_time))
    np.testing.assert_allclose((found[1] - found[0])[[0, -1]], [np.zeros(6), drift],
                               rtol=0.05, atol=1e-3 * np.abs(drift).max())


def test_the_world_imports_neither_product_nor_simulator() -> None:
    path = ROOT / 'benchmarks' / 'second_world.py'
    assert {item.top for item in imports_in(path)} <= {
        '__future__', 'collections', 'dataclasses', 'functools', 'pathlib', 'typing', 'xml',
        'zlib', 'numpy', 'pinocchio', 'scipy'}


def test_a_bag_holds_what_was_recorded(tmp_path: Path) -> None:
    world = World(read_arm('UR10'), 5, {})
    found = world.run(np.tile(np.array(ARMS['UR10'].home), (1000, 1)), 1e-3, 50.0)
    write_record(record_of('UR10', found), tmp_path / 'bag')
    chosen = estimator('drive_gains')
    with Bag(tmp_path / 'bag') as bag:
        estimation = OfflineEstimation(chosen, bag, chosen.table(
            results_dir=str(tmp_path)), second_world.urdf_of('UR10'), Selection())
        bag.read({topic: intake.take for topic, (_, intake) in estimation._intakes.items()})
        samples = estimation._joints.bag_samples()
    np.testing.assert_allclose(samples.time, found.time, atol=1e-9)
    for name in ('position', 'velocity', 'effort'):
        np.testing.assert_array_equal(getattr(samples, name), getattr(found, name))


@pytest.mark.parametrize('group', ['static_poses', 'differential'])
def test_a_quiet_cell_is_within_its_intervals(group: str) -> None:
    cases = run_cell(3, group=group, only={})
    assert all(0.2 * value.bound < value.std for case in cases for value in case.values)
    assert [case.method for case in cases] == list(METHODS[group][1])
    for case in cases:
        assert case.values
        assert not case.wrong
        assert case.usable


def test_gains_that_take_many_steps_converge(tmp_path: Path) -> None:
    """Steps that grow on their way through a flat region are not those of an oscillation."""
    cell = Cell(85091, second_world.drawn_effects(85091), tmp_path)
    result = cell.estimate('drive_gains', cell.record('torque', cell.weighed),
                           known_mass=cell.weighed.mass)
    true = dict(zip(cell.robot.joint_names, cell.world.moving_gain.tolist(), strict=True))
    assert result.verdict is Verdict.PASS, result.reasons
    for joint, scale in effort_scales(result).items():
        std = result.parameter(f'{joint}.effort_scale').std
        assert std is not None
        assert abs(scale - true[joint]) < 3.3 * std


# ------------------------------------------------------------------------------- scores


def _case(seed: int, z: float, verdict: str = 'pass', limit: float = 1.0) -> Case:
    return Case(seed, 'wrist', 'UR10', {}, verdict, '', (
        Value('mass', 1.0, 0.1 * z, 0.1, z, limit),), {}, 1.0)


def test_a_summary_counts_passes() -> None:
    found = summary([_case(0, 1.0), _case(1, -2.5), _case(2, 4.0, limit=0.3),
                     _case(3, 5.0, 'fail')])
    assert (found['pass'], found['wrong passes'], found['within limits']) == (3, 1, 3)
    assert found['inside 95 %'] == pytest.approx(100.0 / 3.0)
    assert found['inside 99.9 %'] == pytest.approx(200.0 / 3.0)
    assert found['pass of these'] == pytest.approx(200.0 / 3.0)
    assert found['RMS z'] == pytest.approx(np.sqrt((1.0 + 6.25 + 16.0) / 3.0))
    assert '| wrist | 2 | UR10 |' in report([_case(0, 1.0), _case(2, 4.0)])


def test_the_bound_follows_from_what_the_sensor_sees(tmp_path: Path) -> None:
    cell = Cell(2, {}, tmp_path)
    motion = np.array(ARMS[cell.name].home) + 0.2 * (1.0 - np.cos(
        np.linspace(0.0, 4.0 * np.pi, 6000)[:, None] * np.arange(1, cell.robot.n + 1)))
    cell.motions = [(motion, cell.load, 100.0)]
    found = bounds(cell, 'wrist', ())
    q, v, a = cell.world._tracked(motion, 1e-3)
    rows = slice(None, None, round(1000.0 / cell.world.wrench_rate))
    tool = cell.world.arm.tool
    scale = cell.world.wrench_noise
    exact = moments(cell.world.arm, cell.world.links, q[rows], v[rows], a[rows], DOWN,
                    beyond=tool @ cell.load.matrix @ tool.T)[1] / scale
    heavier = replace(cell.load, mass=1.01 * cell.load.mass)
    other = moments(cell.world.arm, cell.world.links, q[rows], v[rows], a[rows], DOWN,
                    beyond=tool @ heavier.matrix @ tool.T)[1] / scale
    # With all else known, a mass is at least as well known as with all else unknown.
    slope = ((other - exact) / (0.01 * cell.load.mass)).ravel()
    assert found['mass'] > 0.9 / np.linalg.norm(slope)
    assert found['mass'] < 30.0 / np.linalg.norm(slope)
    cell.motions = [(np.concatenate((motion, motion)), cell.load, 100.0)]
    assert bounds(cell, 'wrist', ())['mass'] == pytest.approx(found['mass'] / 2**0.5, rel=0.1)


def test_an_interrupted_campaign_is_resumed(tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def serial(function: Any, seeds: Any, jobs: int, title: str, keep: Any) -> None:
        for seed in seeds:
            ran.append(seed)
            keep(seed, [_case(seed, 1.0)])

    monkeypatch.setattr(second_campaign, 'in_parallel', serial)
    path = tmp_path / 'a.jsonl'
    assert [case.seed for case in campaign(range(2), 1, path, only=None)] == [0, 1]
    assert [case.seed for case in campaign(range(1, 4), 1, path, only=None)] == [1, 2, 3]
    assert ran == [0, 1, 2, 3]
    with pytest.raises(ConfigurationError, match='other options'):
        campaign(range(4), 1, path, only={})


def test_medians_are_compared_with_the_best_peer() -> None:
    cases = [replace(_case(seed, 1.0), notes={
        'mass: robocal': 1.0 + seed, 'mass: one': 4.0, 'mass: two': 3.0}) for seed in range(8)]
    assert against_peers(cases) == {'mass': pytest.approx(4.5 / 3.0)}
    ratio = next(item for item in figures(cases) if 'best peer' in item.what)
    assert ratio.met is False
    assert ratio.band is not None
    assert ratio.band[0] < 1.5 < ratio.band[1]


def test_versions_are_compared_by_seed() -> None:
    old = [_case(seed, 1.0 + 0.1 * seed) for seed in range(20)]
    assert 'differs' not in comparison(old, old)
    new = [replace(case, verdict='fail') for case in old]
    line = next(text for text in comparison(old, new).splitlines() if '| pass |' in text)
    assert line.split(' | ')[2:7] == ['20', '20', '0', '-20 … -20', 'differs |']


def test_the_blame_falls_on_the_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    result = SimpleNamespace(verdict=SimpleNamespace(value='pass'), reasons=[])

    def method(cell: Cell) -> Iterator[tuple[Any, list[Value], dict[str, float]]]:
        z = 5.0 if {'jitter', 'approach'} <= set(cell.world.effects) else 1.0
        yield result, [value_of('mass', 1.0, 1.0 + 0.1 * z, 0.1)], {}

    monkeypatch.setitem(METHODS, 'wrist', (method, ('wrist',)))
    cases = run_cell(3, group='wrist', only={'jitter': 1e-4, 'approach': 1.0, 'sag': 1e-3,
                                             'ripple': 0.1})
    assert [case.wrong for case in cases] == [True]
    # Ripple is in the efforts, which this method does not read.
    assert blame(0, cases) == pytest.approx({'jitter': 1.0, 'approach': 1.0, 'sag': 5.0})
