# SPDX-License-Identifier: Apache-2.0
"""Trajectories against their formulas, and the limits that they must keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from robocal_ros.errors import ConfigurationError, MotionError
from robocal_ros.robot import Lspb, MotionLimits, Trajectory, quintic_path

ANGLES = st.floats(-3.0, 3.0)


def segment(start: float, goal: float, share: float, duration: float) -> Lspb:
    """Return a segment whose speed is ``share`` of the way from the slowest to the fastest."""
    slowest = abs(goal - start) / duration
    return Lspb(start, goal, slowest * (1.0 + share), duration)


@st.composite
def segments(draw) -> Lspb:
    start, goal = draw(ANGLES), draw(ANGLES)
    assume(abs(goal - start) > 0.01)
    return segment(start, goal, draw(st.floats(0.01, 1.0)), draw(st.floats(0.2, 20.0)))


def formula(t, q0, qf, v, tf):
    """The piecewise formula of friction identification, for qf > q0."""
    tb = (q0 - qf + v * tf) / v
    a = v / tb
    if t <= tb:
        return q0 + 0.5 * a * t**2, a * t, a
    if t <= tf - tb:
        return q0 + v * (t - tb / 2.0), v, 0.0
    return qf - 0.5 * a * (tf - t)**2, a * (tf - t), -a


# ------------------------------------------------------------------------------- LSPB


@given(segments(), st.integers(0, 2), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_a_segments_knots_are_the_segment_itself_in_every_phase(s, joint, shares):
    posture = np.array([0.1, 0.2, 0.3])
    trajectory = s.trajectory(posture, joint)
    sign = np.sign(s.goal - s.start)
    for share in (*shares, 0.0, 1.0):
        t = share * s.duration
        # Mirrored when it runs backwards.
        q, v, _ = formula(t, 0.0, abs(s.goal - s.start), s.speed, s.duration)
        position, velocity, _ = trajectory.sample(t)
        scale = max(1.0, s.speed)
        assert position[joint] == pytest.approx(s.start + sign * q, abs=1e-9 * scale)
        assert velocity[joint] == pytest.approx(sign * v, abs=1e-7 * scale)
        others = [i for i in range(3) if i != joint]
        np.testing.assert_allclose(position[others], posture[others], atol=1e-12)
        np.testing.assert_allclose(velocity[others], 0.0, atol=1e-12)


def test_textbook_numbers_of_a_segment():
    # Spong, Hutchinson, Vidyasagar, sec. 5.5: q0 = 0, qf = 40, v = 60 in tf = 1
    # accelerate for tb = (0 - 40 + 60) / 60 = 1/3 with a = 180.
    s = Lspb(0.0, 40.0, 60.0, 1.0)
    assert s.blend == pytest.approx(1.0 / 3.0)
    assert s.speed / s.blend == pytest.approx(180.0)
    assert (s.blend, s.duration - s.blend) == pytest.approx((1.0 / 3.0, 2.0 / 3.0))
    trajectory = s.trajectory(np.zeros(1), 0)
    position, velocity, acceleration = trajectory.sample(np.array([0.2, 0.5, 0.9]))
    np.testing.assert_allclose(position[:, 0], [3.6, 20.0, 39.1])
    np.testing.assert_allclose(velocity[:, 0], [36.0, 60.0, 18.0])
    np.testing.assert_allclose(acceleration[:, 0], [180.0, 0.0, -180.0], atol=1e-9)


@given(ANGLES, ANGLES, st.floats(0.2, 10.0), st.floats(-0.5, 1.5))
def test_the_rule_of_validity_in_both_directions(start, goal, duration, share):
    assume(abs(goal - start) > 0.01)
    assume(min(abs(share), abs(share - 1.0)) > 1e-6)
    slowest = abs(goal - start) / duration
    speed = slowest * (1.0 + share)
    if 0.0 < share < 1.0:
        assert Lspb(start, goal, speed, duration).blend <= duration / 2.0
    else:
        with pytest.raises(MotionError, match=r'does not fit .* above .* and at most'):
            Lspb(start, goal, speed, duration)


@pytest.mark.parametrize('goal', [1.0, -1.0])
def test_the_ends_of_the_rule(goal):
    with pytest.raises(MotionError, match='above 0.5 and at most 1 rad/s'):
        Lspb(0.0, goal, 0.5, 2.0)
    triangle = Lspb(0.0, goal, 1.0, 2.0)
    assert triangle.blend == pytest.approx(1.0)
    assert len(triangle.trajectory(np.zeros(1), 0).time) == 3
    with pytest.raises(MotionError, match='does not fit'):
        Lspb(0.0, goal, -0.75, 2.0)


@pytest.mark.parametrize('numbers', [(1.0, 1.0, 0.5, 2.0), (0.0, 1.0, 0.5, 0.0),
                                     (np.nan, 1.0, 0.7, 2.0), (0.0, 1.0, 0.7, np.nan),
                                     (0.0, np.inf, 0.7, 2.0), (0.0, 1.0, np.nan, 2.0)])
def test_a_segment_without_way_or_time_is_refused(numbers):
    with pytest.raises(MotionError, match='rad'):
        Lspb(*numbers)


@given(ANGLES, ANGLES, st.floats(0.01, 3.0), st.floats(0.1, 10.0))
def test_a_segment_by_its_acceleration_has_it(start, goal, speed, acceleration):
    span = abs(goal - start)
    assume(span > 1e-3)
    assume(abs(span * acceleration / speed**2 - 1.0) > 1e-9)
    if span >= speed**2 / acceleration:
        s = Lspb.with_acceleration(start, goal, speed, acceleration)
        assert s.speed / s.blend == pytest.approx(acceleration, rel=1e-6)
        assert s.speed == speed
    else:
        with pytest.raises(MotionError, match='does not fit'):
            Lspb.with_acceleration(start, goal, speed, acceleration)


@pytest.mark.parametrize('bad', [0.0, -1.0, np.nan])
def test_speed_and_acceleration_must_be_positive(bad):
    with pytest.raises(MotionError, match='must be positive, got'):
        Lspb.with_acceleration(0.0, 1.0, bad, 1.0)
    with pytest.raises(MotionError, match='must be positive, got'):
        Lspb.with_acceleration(0.0, 1.0, 1.0, bad)


# ---------------------------------------------------------------------------- quintics


@st.composite
def moves(draw):
    n = draw(st.integers(1, 4))
    vector = st.lists(ANGLES, min_size=n, max_size=n).map(np.array)
    limit = st.lists(st.floats(0.05, 5.0), min_size=n, max_size=n).map(np.array)
    return draw(vector), draw(vector), draw(limit), draw(limit)


@given(moves())
def test_a_move_keeps_to_its_limits_and_reaches_one_of_them(move):
    start, goal, speed, acceleration = move
    trajectory = quintic_path(np.stack((start, goal)), speed, acceleration)
    position, v, a = trajectory.sample(np.linspace(0.0, trajectory.duration, 2001))
    np.testing.assert_allclose(position[0], start, atol=1e-12)
    np.testing.assert_allclose(position[-1], goal, atol=1e-9)
    np.testing.assert_allclose(np.concatenate((v[[0, -1]], a[[0, -1]])), 0.0, atol=1e-7)
    use = max((np.abs(v) / speed).max(), (np.abs(a) / acceleration).max())
    assert use <= 1.0 + 1e-9
    if trajectory.duration > 0.2:
        assert use > 1.0 - 1e-4


def test_a_path_rests_in_every_posture():
    postures = np.array([[0.0, 0.0], [1.0, 0.2], [0.5, -1.0]])
    path = quintic_path(postures, np.ones(2), np.full(2, 2.0))
    position, velocity, acceleration = path.sample(path.time)
    np.testing.assert_allclose(position, postures, atol=1e-12)
    np.testing.assert_allclose(velocity, 0.0, atol=1e-9)
    np.testing.assert_allclose(acceleration, 0.0, atol=1e-9)
    MotionLimits(('a', 'b'), np.full(2, -2.0), np.full(2, 2.0), np.ones(2),
                 np.full(2, 2.0)).check(path)


# -------------------------------------------------------------------------- trajectories


@given(scale=st.floats(0.05, 1.0), accelerations=st.booleans())
def test_slowing_keeps_the_path_and_scales_its_derivatives(scale, accelerations):
    generator = np.random.default_rng(1)
    knots = generator.normal(size=(3, 4, 2))
    trajectory = Trajectory(np.array([0.0, 0.5, 1.2, 2.0]), knots[0], knots[1],
                            knots[2] if accelerations else None)
    slow = trajectory.slowed(scale)
    assert slow.duration == pytest.approx(2.0 / scale)
    t = np.linspace(0.01, 1.99, 77)
    for power, (a, b) in enumerate(zip(trajectory.sample(t), slow.sample(t / scale), strict=True)):
        np.testing.assert_allclose(b, a * scale**power, atol=1e-9)


@pytest.mark.parametrize('scale', [0.0, -0.5, 1.01, np.nan])
def test_a_speed_scale_outside_its_range_is_refused(scale):
    move = quintic_path(np.stack((np.zeros(1), np.ones(1))), np.ones(1), np.ones(1))
    with pytest.raises(ConfigurationError, match='speed_scale must be above 0 and at most 1'):
        move.slowed(scale)


def test_a_trajectory_is_held_before_and_after():
    move = quintic_path(np.stack((np.zeros(2), np.ones(2))), np.ones(2), np.ones(2))
    position, velocity, _ = move.sample(np.array([-1.0, 99.0]))
    np.testing.assert_allclose(position, [[0.0, 0.0], [1.0, 1.0]], atol=1e-12)
    np.testing.assert_allclose(velocity, 0.0, atol=1e-9)


def test_dense_times_hold_the_knots_and_leave_no_wide_gap():
    s = Lspb(0.0, 1.0, 0.6, 2.0).trajectory(np.zeros(1), 0)
    times = s.dense(0.02)
    assert np.isin(s.time, times).all()
    assert np.diff(times).max() <= 0.02 + 1e-12
    assert (np.diff(times) > 0.0).all()


@pytest.mark.parametrize(('time', 'arrays', 'says'), [
    ([0.0, 1.0, 1.0], [np.zeros((3, 2))] * 2, 'start at 0 and increase'),
    ([0.1, 1.0, 2.0], [np.zeros((3, 2))] * 2, 'start at 0'),
    ([0.0], [np.zeros((1, 2))] * 2, 'start at 0 and increase'),
    ([0.0, np.nan, 2.0], [np.zeros((3, 2))] * 2, 'not finite'),
    ([0.0, 1.0], [np.array([[0.0, np.inf], [0.0, 0.0]]), np.zeros((2, 2))], 'nothing was sent'),
    ([0.0, 1.0], [np.zeros((2, 2)), np.array([[0.0, np.inf], [0.0, 0.0]])], 'nothing was sent'),
    ([0.0, 1.0, 2.0], [np.zeros((2, 2))] * 2, 'one position, velocity'),
    ([0.0, 1.0], [np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 3))], 'one position, veloc')])
def test_knots_that_are_none_are_refused(time, arrays, says):
    with pytest.raises(MotionError, match=says):
        Trajectory(np.array(time), *arrays)


# -------------------------------------------------------------------------------- limits


def limits(**changes) -> MotionLimits:
    numbers = {'lower': -np.ones(2), 'upper': np.ones(2), 'velocity': np.full(2, 2.0),
               'acceleration': np.full(2, 50.0), **changes}
    return MotionLimits(('left', 'right'), **numbers)


def hermite(velocity: float, duration: float = 1.0) -> Trajectory:
    """A cubic from 0 back to 0 that bulges in between: peak 4/27 of velocity x duration."""
    v = np.array([[0.0, velocity], [0.0, 0.0]])
    return Trajectory(np.array([0.0, duration]), np.zeros((2, 2)), v)


def test_a_bulge_between_knots_is_seen():
    # h10 = t (1 - t)^2 peaks at t = 1/3 with 4/27.
    fast = limits(velocity=np.full(2, 99.0))
    fast.check(hermite(6.7))
    for speed, words in ((6.8, 'up to 1.007 rad .*limit is 1'),
                         (-6.8, 'down to -1.007 rad .*limit is -1')):
        with pytest.raises(MotionError, match=f"'right' goes {words} rad"):
            fast.check(hermite(speed))


def test_a_speed_between_knots_is_seen():
    # Rest to rest over 1 rad in 1 s by a cubic: peak 1.5 rad/s in the middle.
    way = Trajectory(np.array([0.0, 1.0]), np.array([[0.0, 0.0], [1.0, 0.0]]), np.zeros((2, 2)))
    limits(velocity=np.array([1.5, 1.0])).check(way)
    with pytest.raises(MotionError, match=r"'left' moves at 1.5 rad/s .*limit is 1.4 rad/s"):
        limits(velocity=np.array([1.4, 1.0])).check(way)


@pytest.mark.parametrize('first', [True, False])
def test_an_acceleration_on_either_side_of_a_knot_is_seen(first):
    # Rest - 0.001 rad in 5 ms - rest, beside a slow segment: the peak lies at the knot itself.
    durations = (0.005, 1.0) if first else (1.0, 0.005)
    time = np.array([0.0, durations[0], sum(durations)])
    position = np.array([[0.0, 0.0], [0.001 if first else 0.0, 0.0], [0.001, 0.0]])
    way = Trajectory(time, position, np.zeros((3, 2)))
    peak = 6.0 * 0.001 / 0.005**2
    limits(acceleration=np.full(2, peak * 1.001)).check(way)
    with pytest.raises(MotionError, match=r"'left' accelerates at 2"):
        limits(acceleration=np.full(2, peak * 0.999)).check(way)


@given(rise=st.floats(0.002, 0.009))
def test_the_last_instant_before_a_knot_counts(rise):
    # A cubic of zero acceleration at its start and the largest at its end, 6 q / t^2.
    goal = 1e-4
    speed = 3.0 * goal / rise
    way = Trajectory(np.array([0.0, rise, rise + 1.0]),
                     np.array([[0.0, 0.0], [goal, 0.0], [goal + 0.5 * speed, 0.0]]),
                     np.array([[0.0, 0.0], [speed, 0.0], [0.0, 0.0]]))
    peak = 6.0 * goal / rise**2
    with pytest.raises(MotionError, match=r"'left' accelerates at"):
        limits(acceleration=np.full(2, 0.99 * peak), velocity=np.full(2, 1e3)).check(way)
