# SPDX-License-Identifier: Apache-2.0
"""Friction that drifts is followed while the arm works; a change of the load is not friction."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm
from support.friction_results import friction_result

from robocal_ros.friction.track import FrictionChange, FrictionTracker, tracked_result
from robocal_ros.robot.friction_law import SteadyFriction, friction_by_joint
from robocal_ros.robot.model import RigidBodyInertia, Robot

RATE = 100.0
LAWS = {
    f'joint_{i + 1}': SteadyFriction(
        np.array([c, 0.9 * c]), np.array([1.4 * c, 1.3 * c]), np.array([0.03, 0.03]),
        np.array([b, 1.1 * b]), std=0.01 * c)
    for i, (c, b) in enumerate(((8.0, 10.0), (8.5, 11.0), (5.0, 6.0), (1.5, 2.0), (1.2, 1.5),
                                (0.7, 0.6)))}
PAYLOAD = RigidBodyInertia(2.0, np.array([0.02, -0.01, 0.08]), 0.004 * np.eye(3))


def wrong(robot: Robot, share: float) -> Robot:
    """Return an arm whose link masses are off, some up, some down."""
    made = robot.copy()
    for i in range(1, made.model.njoints):
        made.model.inertias[i].mass *= 1.0 + share * (-1.0) ** i
    return made.copy()


def work(seed: int, seconds: float) -> tuple[np.ndarray, ...]:
    """Return time, angles, speeds and accelerations of an arm that moves between postures."""
    generator = np.random.default_rng(seed)
    time = np.arange(int(seconds * RATE)) / RATE
    phase = generator.uniform(0.0, 2.0 * np.pi, size=(2, 6))
    pulsation = generator.uniform(0.6, 1.3, size=(2, 6))
    size = np.array([[0.5], [0.3]]) * generator.uniform(0.7, 1.3, size=(2, 6))
    angle = time[:, None, None] * pulsation + phase
    home = np.array([0.2, 0.4, -0.6, 0.3, 0.5, 0.0])
    return (time, home + (size * np.sin(angle)).sum(axis=1),
            (size * pulsation * np.cos(angle)).sum(axis=1),
            -(size * pulsation**2 * np.sin(angle)).sum(axis=1))


def followed(
    seed: int, seconds: float, scale: object, *, payload_from: float = np.inf,
    model_error: float = 0.03, temperature: object = None, coefficient: float = 0.0,
    ripple: float = 0.0, rotor: float = 0.0, tilt: float = 0.0, pause: float = 0.0,
    delay: int = 0,
) -> tuple[FrictionTracker, list[tuple[float, dict]]]:
    """Let a tracker follow an arm; return it, and the changes every 10 s."""
    robot = arm('robocal').robot()
    tracker = FrictionTracker(wrong(robot, model_error), LAWS, drift=0.25, model_std=0.05,
                              tilt_std=0.005, since=-pause,
                              temperature=20.0 if temperature else np.nan)
    robot.model.gravity.linear = np.array([9.81 * np.sin(tilt), 0.0, -9.81 * np.cos(tilt)])
    heavy = robot.with_payload(PAYLOAD)
    generator = np.random.default_rng(1000 + seed)
    cycles, phase = generator.integers((1, 8, 80), (4, 60, 300), (6, 3)).T, generator.uniform(
        0.0, 2.0 * np.pi, (3, 6))
    waves = ripple * np.outer((0.25, 0.35, 0.5), [law.coulomb[0] for law in LAWS.values()])
    time, q, v, a = work(seed, seconds)
    laws = list(LAWS.values())
    friction = np.column_stack([law.torque(v[:, i]) for i, law in enumerate(laws)])
    noise = 0.02 * np.array([law.coulomb[0] for law in laws])
    warmth = np.full(len(time), np.nan) if temperature is None else temperature(time)
    factor = scale(time) * (1.0 + (coefficient * (warmth - 20.0) if temperature else 0.0))
    measured = np.round(q / 2e-5) * 2e-5
    # Inertia of a rotor is the same in any posture.
    reflected = pin.crba(robot.model, robot.data, np.zeros(6)).diagonal()
    reports, efforts = [], []
    for row, stamp in enumerate(time.tolist()):
        body = heavy if stamp >= payload_from else robot
        torque = pin.rnea(body.model, body.data, q[row], v[row], a[row])
        effort = torque + factor[row] * friction[row] + noise * generator.normal(size=6)
        effort += (waves * np.sin(cycles * q[row] + phase)).sum(axis=0)
        effort += rotor * reflected * a[row]
        efforts.append(effort)
        tracker.add(stamp, measured[row], efforts[max(0, row - delay)], float(warmth[row]))
        if row and row % int(10.0 * RATE) == 0:
            reports.append((stamp, tracker.changes(float(warmth[row]))))
    return tracker, reports


def drifting(time: np.ndarray) -> np.ndarray:
    """Friction that falls by 20 % over 10 min."""
    return 1.0 - 0.2 * np.asarray(time) / 600.0


def test_drifting_friction_is_followed_within_its_interval():
    tracker, reports = followed(0, 600.0, drifting)
    assert tracker.load_changes == 0
    assert inside(reports[3:], drifting) > 0.9
    # The interval tells 20 % from nothing.
    assert np.median([1.96 * change.std for _, changes in reports[3:]
                      for sides in changes.values() for change in sides]) < 0.06
    for sides in reports[-1][1].values():
        assert all(abs(change.scale - 0.8) < 3.3 * change.std for change in sides)


def test_a_change_of_the_payload_is_not_mistaken_for_friction():
    tracker, reports = followed(0, 120.0, np.ones_like, payload_from=60.0)
    assert tracker.load_changes >= 1
    errors = [(change.scale - 1.0) / change.std for _, changes in reports[2:]
              for sides in changes.values() for change in sides]
    assert np.mean(np.abs(errors) < 1.96) > 0.9
    assert np.abs(errors).max() < 4.0
    assert max(abs(change.scale - 1.0) for sides in reports[-1][1].values()
               for change in sides) < 0.08


def inside(reports: list[tuple[float, dict]], scale: object) -> float:
    """Return the share of reported changes within their 95 % intervals."""
    return float(np.mean([abs(change.scale - scale(stamp)) < 1.96 * change.std
                          for stamp, changes in reports for sides in changes.values()
                          for change in sides]))


@pytest.mark.parametrize('what', [
    {'ripple': 0.2}, {'ripple': 0.4}, {'rotor': 0.8}, {'rotor': 2.0}, {'tilt': 0.01},
    {'delay': 3}, {'rotor': 2.0, 'delay': 3}], ids=str)
def test_what_keeps_its_sign_is_neither_friction_nor_a_load(what):
    tracker, reports = followed(0, 120.0, np.ones_like, **what)
    assert tracker.load_changes == 0
    assert inside(reports, np.ones_like) > 0.95
    changes = [change for sides in reports[-1][1].values() for change in sides]
    # The identified law is reported, or as good.
    assert np.sqrt(np.mean([(change.scale - 1.0) ** 2 for change in changes])) < 0.015
    assert np.median([change.std for change in changes]) < 0.04


@pytest.mark.parametrize('what', [{}, {'ripple': 0.3}, {'rotor': 0.8}, {'rotor': 2.0}], ids=str)
def test_friction_that_rose_in_a_pause_is_found(what):
    raised = lambda time: np.full_like(time, 1.25)  # noqa: E731
    tracker, reports = followed(1, 60.0, raised, pause=3600.0, **what)
    assert tracker.load_changes == 0
    assert inside(reports, raised) > 0.95
    for sides in reports[-1][1].values():
        assert all(change.scale == pytest.approx(1.25, abs=0.06) for change in sides)


@pytest.mark.parametrize(('since', 'least', 'most'), [
    (-3600.0, 0.4, 0.5), (-60.0, 0.05, 0.1), (np.nan, 0.49, 0.51), (100.0, 0.49, 0.51)])
def test_the_interval_grows_with_the_time_since_the_identification(since, least, most):
    robot = arm('robocal').robot()
    tracker = FrictionTracker(robot, LAWS, drift=0.25, model_std=0.05, since=since)
    for stamp in 0.01 * np.arange(60):
        tracker.add(stamp, np.zeros(6), np.zeros(6))
    for sides in tracker.changes().values():
        assert all(change.scale == 1.0 and least < change.std < most for change in sides)


def test_a_pause_without_joint_states_widens_the_interval():
    robot = arm('robocal').robot()
    tracker = FrictionTracker(robot, LAWS, drift=0.25, model_std=0.05, since=0.0)
    widths = []
    for begin in (0.0, 3600.0):
        for stamp in begin + 0.01 * np.arange(60):
            tracker.add(stamp, np.zeros(6), np.zeros(6))
        widths.append(tracker.changes()['joint_1'][0].std)
    assert widths[0] < 0.05
    assert widths[1] > 0.4


def test_friction_of_a_warming_arm_is_attributed_to_temperature():
    warm = lambda time: 20.0 + 10.0 * (1.0 - np.cos(2.0 * np.pi * time / 150.0))  # noqa: E731
    tracker, _ = followed(0, 300.0, np.ones_like, temperature=warm, coefficient=-0.01)
    for sides in tracker.changes(30.0).values():
        assert all(abs(change.scale - 0.9) < max(2.6 * change.std, 0.0) for change in sides)


def test_a_gap_in_the_joint_states_is_bridged_without_an_update():
    tracker = FrictionTracker(arm('robocal').robot(), LAWS, drift=0.25, model_std=0.05)
    time, q, _, _ = work(0, 20.0)
    used = [tracker.add(stamp, angles, np.zeros(6)) for stamp, angles in zip(
        0.5 * np.arange(len(time)), q, strict=True)]
    assert not any(used)
    assert all(change.scale == 1.0 for sides in tracker.changes().values() for change in sides)


def test_a_tracked_result_has_the_scaled_law():
    result = friction_result('joint_2')
    changes = {'joint_2': (FrictionChange(1.1, 0.02), FrictionChange(0.9, 0.03))}
    law, tracked = (friction_by_joint(made)['joint_2']
                    for made in (result, tracked_result(result, changes, 200.0)))
    speed = np.array([0.3, -0.5])
    np.testing.assert_allclose(tracked.torque(speed), [1.1, 0.9] * law.torque(speed))
    assert (tracked.deviation(speed) > law.deviation(speed)).all()
    assert str(changes['joint_2'][0]) == '+10.0 ± 3.9 %'
