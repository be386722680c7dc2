# SPDX-License-Identifier: Apache-2.0
"""From a wrench to a contact point: line of action, surfaces, gates."""

from __future__ import annotations

import math

import coal
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.arms import arm

from robocal_ros.wrench.contact import (
    Contact,
    ContactJudge,
    Mesh,
    Place,
    Shape,
    Surface,
    line_of_action,
    shape_of,
)
from robocal_ros.wrench.model import SensedArm, SensorMount


def unit(generator: np.random.Generator) -> np.ndarray:
    vector = generator.normal(size=3)
    return vector / np.linalg.norm(vector)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_a_pure_force_has_its_line_and_no_pitch(seed: int) -> None:
    generator = np.random.default_rng(seed)
    point, force = generator.normal(size=3), 20.0 * unit(generator)
    near, pitch = line_of_action(tuple(force), tuple(np.cross(point, force)))
    assert pitch == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(np.cross(point - near, force), 0.0, atol=1e-10)
    assert np.dot(near, force) == pytest.approx(0.0, abs=1e-10)


def test_shortest_vector_and_pitch_in_numbers() -> None:
    """F = 10 N along x; M = 2 N·m along z and 3 N·m along F: distance |F × M| / |F|²."""
    near, pitch = line_of_action((10.0, 0.0, 0.0), (3.0, 0.0, 2.0))
    assert near == pytest.approx((0.0, -0.2, 0.0))
    assert pitch == pytest.approx(0.3)


def box_mesh(x: float, y: float, z: float) -> Mesh:
    corners = np.array([(a, b, c) for a in (-x, x) for b in (-y, y) for c in (-z, z)])
    triangles = [(0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1),
                 (2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3)]
    return Mesh(corners, np.array(triangles))


SHAPES = [(box_mesh(0.05, 0.1, 0.2), coal.Box(0.1, 0.2, 0.4)), *(
    (shape_of(solid), solid) for solid in (
        coal.Sphere(0.1), coal.Box(0.1, 0.2, 0.4), coal.Cylinder(0.06, 0.4),
        coal.Capsule(0.06, 0.4)))]


@pytest.mark.parametrize(('shape', 'solid'), SHAPES, ids=lambda item: type(item).__name__)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_entries_are_on_the_surface(shape: Shape, solid: object, seed: int) -> None:
    """Coal, another implementation, says how far the entry, and what is before it, are off."""
    generator = np.random.default_rng(seed)
    point, direction = generator.uniform(-0.1, 0.1, 3), unit(generator)
    found = shape.entry(point.tolist(), direction.tolist())
    for along in np.linspace(-0.6, min(found - 1e-3, 0.6), 61):
        assert distance(solid, point + along * direction) > -1e-4
    if found < np.inf:
        assert distance(solid, point + (found - 1e-3) * direction) > 0.0
        assert distance(solid, point + (found + 1e-6) * direction) < 1e-4


def distance(solid: object, point: np.ndarray) -> float:
    probe = coal.Sphere(1e-9)
    place = coal.Transform3s()
    place.setTranslation(point)
    result = coal.DistanceResult()
    return float(coal.distance(solid, coal.Transform3s(), probe, place, coal.DistanceRequest(),
                               result))


def test_parallel_to_walls() -> None:
    solid = shape_of(coal.Cylinder(0.1, 0.6))
    assert solid.entry((0.05, 0.0, 0.0), (0.0, 0.0, 1.0)) == -0.3
    assert solid.entry((0.2, 0.0, 0.0), (0.0, 0.0, 1.0)) == np.inf
    assert solid.entry((0.0, 0.0, 0.4), (1.0, 0.0, 0.0)) == np.inf
    assert shape_of(coal.Box(0.2, 0.2, 0.2)).entry((0.2, 0.0, 0.0), (0.0, 1.0, 0.0)) == np.inf


@pytest.fixture(scope='module')
def cut() -> SensedArm:
    return SensedArm(arm('robocal').robot(), [
        SensorMount(frame) for frame in ('ft_link_2_proximal', 'ft_link_2_distal', 'ft_wrist')])


@pytest.fixture(scope='module')
def surface(cut: SensedArm) -> Surface:
    return Surface(cut)


class Pushed:
    """A sub-chain that is pushed for some samples."""

    def __init__(self, surface: Surface, chain: int = 0) -> None:
        self.judge = ContactJudge(chain, 5.0, 0.02, surface)
        self.stamp = 0.0

    def __call__(
        self, point: object, force: object, moment: object = (0.0, 0.0, 0.0),
        strongest: float = 0.0, consistency: float = 1.0, excess: float = math.inf,
    ) -> Contact | None:
        self.stamp += 0.002
        force = np.array(force, dtype=float)
        wrench = np.concatenate((force, np.cross(point, force) + moment))
        self.judge.force = float(np.linalg.norm(force))
        return self.judge.update(
            self.stamp, wrench, max(self.judge.force, strongest), lambda: consistency,
            lambda begun: excess)


@pytest.fixture
def pushed(surface: Surface) -> Pushed:
    return Pushed(surface)


def test_the_point_is_where_the_force_pushes_inwards(pushed: Pushed) -> None:
    contact = pushed((0.055, 0.0, 0.2), (-20.0, 0.0, 0.0))
    assert contact.place is Place.SURFACE
    np.testing.assert_allclose(contact.point, [0.055, 0.0, 0.2], atol=1e-9)
    # The same line, pulled: it enters on the other side.
    pushed.judge.clear()
    contact = pushed((0.055, 0.0, 0.2), (20.0, 0.0, 0.0))
    np.testing.assert_allclose(contact.point, [-0.055, 0.0, 0.2], atol=1e-9)


def test_small_moments_mean_the_reference_point(cut: SensedArm, pushed: Pushed) -> None:
    centre = cut.chains[0].reference
    contact = pushed(centre + [0.0, 0.0, 0.001], (0.0, -20.0, 0.0))
    assert contact.place is Place.REFERENCE
    np.testing.assert_allclose(contact.line_point, centre)
    assert contact.point[2] == pytest.approx(centre[2])


def test_a_line_that_misses_the_link_says_so(cut: SensedArm, pushed: Pushed) -> None:
    contact = pushed((0.3, 0.0, 0.1), (0.0, 20.0, 0.0))
    assert contact.place is Place.OUTSIDE
    assert contact.point is None
    assert np.linalg.norm(contact.line_point - cut.chains[0].reference) == pytest.approx(
        0.3, abs=0.01)


def test_a_moment_along_the_force_means_more_than_one_contact(pushed: Pushed) -> None:
    contact = pushed((0.055, 0.0, 0.2), (-20.0, 0.0, 0.0), (-1.0, 0.0, 0.0))
    assert contact.place is Place.MOMENT
    assert contact.pitch == pytest.approx(0.05)
    assert contact.point is None


def test_hysteresis(pushed: Pushed) -> None:
    told = [pushed((0.055, 0.0, 0.2), (-size, 0.0, 0.0)) is not None
            for size in (4.9, 5.1, 4.0, 3.1, 2.9, 4.9, 5.1)]
    assert told == [False, True, True, True, False, False, True]
    assert 0.0 < pushed.judge.level < 0.1


def test_a_heavy_push_elsewhere_raises_the_threshold(pushed: Pushed) -> None:
    assert pushed((0.055, 0.0, 0.2), (-6.0, 0.0, 0.0), strongest=60.0) is None
    assert pushed((0.055, 0.0, 0.2), (-9.5, 0.0, 0.0), strongest=60.0) is not None


def test_a_vibration_is_no_contact(pushed: Pushed) -> None:
    assert pushed((0.055, 0.0, 0.2), (-10.0, 0.0, 0.0), consistency=0.5) is None
    assert pushed((0.055, 0.0, 0.2), (-10.0, 0.0, 0.0), consistency=0.9) is not None
    # Who is in contact already stays in it.
    assert pushed((0.055, 0.0, 0.2), (-10.0, 0.0, 0.0), consistency=0.5) is not None


def test_what_model_errors_explain_is_no_contact(pushed: Pushed) -> None:
    told = [pushed((0.055, 0.0, 0.2), (-50.0, 0.0, 0.0), excess=excess) is not None
            for excess in (0.9, 1.1, 0.7, 0.5, 0.9)]
    assert told == [False, True, True, False, False]


def test_the_line_of_a_lasting_contact_is_averaged(pushed: Pushed) -> None:
    generator = np.random.default_rng(0)
    noisy = [pushed((0.055, 0.0, 0.2 + generator.normal(scale=5e-3)), (-20.0, 0.0, 0.0)).point[2]
             for _ in range(2000)]
    scatter = np.std(noisy[100:])
    assert scatter < 5e-3 / math.sqrt(10)
    assert np.mean(noisy[100:]) == pytest.approx(0.2, abs=5e-4)


def test_jointed_sub_chains_place_the_point_in_the_posture_of_the_moment(
    cut: SensedArm, surface: Surface
) -> None:
    q, rest = np.array([0.3, -0.4, 0.9, 0.2, 0.5, 0.1]), np.zeros(6)
    cut.held(q, rest, rest)
    robot = cut.robot
    to_chain = robot.transform_frame_to_root(q, 'ft_link_2_distal').actInv(
        robot.transform_frame_to_root(q, 'ft_link_3_proximal'))
    cut.held(q, rest, rest)
    point = to_chain.act(np.array([0.08, 0.046, 0.0]))
    force = to_chain.rotation @ np.array([0.0, -25.0, 0.0])
    contact = Pushed(surface, chain=1)(point, force)
    np.testing.assert_allclose(contact.point, point, atol=1e-9)


def test_meshes_and_what_is_missing(cut: SensedArm) -> None:
    panda = arm('panda')
    sensed = SensedArm(panda.robot(), [SensorMount('panda_link5'), SensorMount('panda_link7')])
    surface = Surface(sensed, panda.package_dirs)
    rest = np.zeros(7)
    sensed.held(rest, rest, rest)
    entry = surface.entry(sensed.chains[0], (0.0, 0.0, -0.1), (0.0, -1.0, 0.0))
    assert entry[1] > 0.0
    without = Surface(sensed)
    assert 'panda_link5' in without.missing_meshes
    assert without.entry(sensed.chains[0], (0.0, 0.0, -0.1), (0.0, -1.0, 0.0)) is None


def test_a_box_around_the_tool(cut: SensedArm) -> None:
    surface = Surface(cut)
    tool = cut.chain_of_frame('tool0')
    surface.add_box('tool0', (0.1, 0.1, 0.2))
    # The tool frame stands 25 mm beyond the sensor's.
    entry = surface.entry(tool, (0.0, 0.0, 0.15), (-1.0, 0.0, 0.0))
    np.testing.assert_allclose(entry, [0.05, 0.0, 0.15])
