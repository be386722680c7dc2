# SPDX-License-Identifier: Apache-2.0
"""The compliance procedure on an arm that sags: both sets, lost sight, and going on."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.compliance_cell import COMPLIANCE, SEEN, TARGET, Cell, assert_true, postures
from support.fake_arm import HOME, FakeArm, FakeReport, fake_arm

from robocal_ros.arm import MotionFailedError, MotionStatus
from robocal_ros.arm.protocols import MotionOutcome
from robocal_ros.compliance import procedure
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.compliance.measurement import LOADED, REGISTRATION, UNLOADED, EndPosition
from robocal_ros.compliance.model import Load, Mounted, given_load
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.compliance.procedure import ComplianceProcedure, KeptSets, StationaryReader
from robocal_ros.errors import DataError, MotionError
from robocal_ros.messages import JointSamples, StationaryInterval, StreamCounts, TrackerSamples
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import CollisionChecker, EffortLimits, RigidBodyInertia

GIVEN = postures(10, seed=6)
VALUES = ComplianceParameters(
    target_frame='tool0', target_xyz=TARGET.tolist(), reference_every=4, settle=0.5, dwell=1.0)


@pytest.fixture(autouse=True)
def _without_previews(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no estimate on the way, which takes longest: the live node has to show one."""
    def refuse(*_: Any, **__: Any) -> CalibrationResult:
        raise DataError('It is left out.')

    monkeypatch.setattr(procedure, 'estimate_sets', refuse)


@dataclass
class SeenRest:
    """What is seen wherever the arm is; nothing on the visits that are hidden."""

    arm: FakeArm
    cell: Cell = field(default_factory=Cell)
    loaded: bool = False
    hidden: Callable[[np.ndarray], bool] = lambda posture: False
    trouble: str = ''
    clock: float = 0.0

    async def wait(self) -> None:
        """The tracker is there."""

    def fault(self) -> str:
        return self.trouble

    def silence(self) -> str:
        return ''

    async def read(self) -> EndPosition | None:
        self.clock += 5.0
        if self.hidden(self.arm.at):
            return None
        generator = np.random.default_rng(int(self.clock))
        seen = self.cell.see(self.arm.at, self.loaded, generator, self.clock)
        return replace(seen, begin=self.clock, end=self.clock + 1.0)


@dataclass
class Notes:
    """What the record is told to count."""

    rest: SeenRest
    rests: list[StationaryInterval] = field(default_factory=list)
    discarded: list[tuple[float, float]] = field(default_factory=list)

    @property
    def newest(self) -> float:
        return self.rest.clock + 2.0

    def mark_stationary(self, rest: StationaryInterval) -> None:
        self.rests.append(rest)

    def mark_discarded(self, span: tuple[float, float]) -> None:
        self.discarded.append(span)


@dataclass
class Service:
    """Mounts the load or takes it off."""

    log: list[str]
    name: str
    rest: SeenRest
    refusal: str = ''

    async def call(self) -> str:
        self.log.append(self.name)
        if self.refusal:
            raise DataError(self.refusal)
        self.rest.loaded = self.name == 'attach'
        return 'Done.'


class Rig:
    """A procedure, and all that it works on."""

    def __init__(self, given: np.ndarray | None = GIVEN, **values: Any) -> None:
        self.values = ComplianceParameters(**{**vars(VALUES), **values})
        self.tool: Load | None = None
        self.arm = fake_arm()
        self.rest, self.report = SeenRest(self.arm), FakeReport()
        self.notes = Notes(self.rest)
        self.placed: list[np.ndarray] = []
        self.log: list[str] = []
        self.attach, self.detach = (Service(self.log, name, self.rest)
                                    for name in ('attach', 'detach'))
        self.procedure = ComplianceProcedure(
            self.arm, self.notes, self.report, self.rest, lambda: self.values,
            lambda: Mounted(self.rest.cell.known_load(), self.tool), dict,
            lambda turn, origin: self.placed.append(origin), given, self._keep)
        self.kept: list[tuple[KeptSets, str]] = []

    async def _keep(self, state: KeptSets, parts: str) -> None:
        self.kept.append((copy.deepcopy(state), parts))

    @property
    def state(self) -> KeptSets:
        return self.procedure.state

    def visits(self, which: str) -> list[int]:
        return [number for number, _ in self.state.sets[which].visits]

    def estimated(self) -> CalibrationResult:
        return estimate_sets(
            self.arm.robot, *(self.state.sets[name].positions for name in (UNLOADED, LOADED)),
            self.rest.cell.mounted(), self.values)

    def run(self) -> None:
        asyncio.run(self.procedure.run(self.attach, self.detach))

    def measure(self, which: str) -> None:
        self.rest.loaded = which == LOADED
        asyncio.run(self.procedure.measure(which, (0.0, 100.0)))


def is_at(*numbers: int) -> Callable[[np.ndarray], bool]:
    return lambda posture: any(np.array_equal(posture, GIVEN[number]) for number in numbers)


def test_both_sets_are_measured_with_the_reference_now_and_then() -> None:
    rig = Rig()
    rig.run()
    assert rig.log == ['detach', 'attach', 'detach']
    for name in (UNLOADED, LOADED):
        assert rig.procedure.complete(name)
        assert rig.visits(name) == [0, 1, 2, 3, 4, 0, 5, 6, 7, 8, 0, 9, 0]
    assert [rest.purpose for rest in rig.notes.rests] == [UNLOADED] * 13 + [LOADED] * 13
    np.testing.assert_array_equal(rig.arm.at, HOME)
    assert rig.placed == []
    assert_true(rig.estimated(), np.where(np.arange(6) == 2, COMPLIANCE, np.nan))
    assert rig.report.notes['loaded'] == '10 of 10'


def test_the_geometry_needs_no_load() -> None:
    """Nor a tracker that the URDF's kinematics fits."""
    rig = Rig(method='geometry', max_registration_residual=1e-6)
    rig.procedure.mounted = lambda: Mounted(None)
    asyncio.run(rig.procedure.run(None, None))
    assert rig.log == []
    assert rig.visits(UNLOADED) == [0, 1, 2, 3, 4, 0, 5, 6, 7, 8, 0, 9, 0]
    assert rig.state.sets[LOADED].visits == []
    np.testing.assert_array_equal(rig.arm.at, HOME)
    assert asyncio.run(rig.procedure.rehearse()) == ' 10 postures:'


def test_a_load_that_cannot_be_taken_off_at_first_is_taken_for_none() -> None:
    rig = Rig()
    rig.detach.refusal = 'There is no load.'
    with pytest.raises(DataError, match=r'not removed: There is no load\. Both sets are measured: '
                                        'call estimate'):
        rig.run()
    # In the end it must come off.
    assert rig.log == ['detach', 'attach', 'detach']
    assert rig.procedure.complete(LOADED)
    # The answer of the run ends with this.
    assert rig.state.lost == [
        'The load was not removed at the beginning, so none was assumed to be mounted: There is '
        'no load.']


def test_an_arm_that_swings_on_under_its_new_load_ends_it() -> None:
    rig = Rig()

    async def swinging() -> None:
        raise DataError('The arm is moving.')

    rig.arm.await_rest = swinging
    with pytest.raises(MotionError, match='does not come to rest after its load has changed'):
        rig.run()
    assert rig.state.sets[UNLOADED].visits == []


@pytest.mark.parametrize('values', [
    {'registration': 'three_point'}, {'find_target': True, 'target_xyz': [0.0, 0.0, 0.0]},
    {'find_target': True, 'target_xyz': [0.0, 0.0, 0.0], 'registration_postures': 11}])
def test_the_tracker_is_placed_first_where_the_set_does_not_serve(values: dict[str, Any]) -> None:
    rig = Rig(**values)
    rig.run()
    (origin,) = rig.placed
    np.testing.assert_allclose(origin, rig.rest.cell.tracker[1], atol=5e-3)
    count = 3 if 'registration' in values else values.get('registration_postures', 8)
    assert [rest.purpose for rest in rig.notes.rests[:count + 1]] == [
        *[REGISTRATION] * count, UNLOADED]


def test_a_target_that_the_tracker_cannot_see_does_not_place_it() -> None:
    rig = Rig(registration='three_point')
    rig.rest.hidden = lambda posture: True
    with pytest.raises(DataError, match='saw the target in 0 of 5 postures; 3 are needed'):
        asyncio.run(rig.procedure.register_tracker((0.0, 100.0)))
    np.testing.assert_array_equal(rig.arm.at, HOME)


def test_lost_sight_ends_it_after_three_postures_and_it_goes_on() -> None:
    rig = Rig()
    rig.rest.hidden = is_at(2, 3, 4)
    with pytest.raises(DataError, match=r'in 3 postures in a row.* was in posture 5 of 10 of the '
                                        r'unloaded set; 2 postures are measured and kept, 6 are'):
        rig.measure(UNLOADED)
    rig.rest.hidden = is_at()
    rig.measure(UNLOADED)
    # After the break the reference is looked at first.
    assert rig.visits(UNLOADED)[:4] == [0, 1, 0, 2]
    assert rig.procedure.complete(UNLOADED)


def test_another_start_of_the_node_goes_on_in_the_loaded_set() -> None:
    first, second = Rig(registration='three_point'), Rig(registration='three_point')
    first.run()
    assert first.kept[0][1] == 'the registration'
    kept, parts = first.kept[1 + 13 + 2]
    assert parts == '10 of 10 postures unloaded and 3 of 10 postures loaded'
    second.arm.at = HOME + 0.1
    second.rest.clock = 500.0
    second.procedure.resume(kept)
    second.run()
    assert second.log == ['attach', 'detach']
    assert second.visits(UNLOADED) == first.visits(UNLOADED)
    # The reference is looked at first.
    assert second.visits(LOADED)[:6] == [0, 1, 2, 0, 3, 4]
    assert second.state.registration is kept.registration
    np.testing.assert_array_equal(second.arm.at, HOME)


def test_postures_that_a_drift_has_cost_are_not_kept() -> None:
    rig = Rig()
    rig.measure(UNLOADED)
    rig.rest.cell = replace(rig.rest.cell, tracker=(
        rig.rest.cell.tracker[0], rig.rest.cell.tracker[1] + 0.01))
    done = rig.state.sets[UNLOADED]
    done.visits = done.visits[:4]
    with pytest.raises(DataError, match='3 postures since the last good reference are discarded'):
        rig.measure(UNLOADED)
    assert [number for number, _ in rig.kept[-1][0].sets[UNLOADED].visits] == [0]
    # From the end of the last good reference, which was the first visit.
    assert rig.notes.discarded == [(6.0, rig.notes.newest)]
    rig.rest.cell = Cell()
    rig.measure(UNLOADED)
    assert rig.visits(UNLOADED)[:3] == [0, 0, 1]
    assert len(rig.notes.discarded) == 1


def test_a_faulty_tracker_ends_it_at_once() -> None:
    rig = Rig()
    rig.rest.hidden, rig.rest.trouble = is_at(1), 'The tracker is on fire.'
    with pytest.raises(DataError, match=r'The tracker is on fire\. This was in posture 2'):
        rig.measure(UNLOADED)


def test_a_posture_out_of_sight_is_tried_twice_and_left_out() -> None:
    rig = Rig()
    rig.rest.hidden = is_at(3)
    rig.measure(UNLOADED)
    assert rig.state.left_out == {3}
    assert rig.state.lost == [
        'Posture 4 of 10 (unloaded) cannot be used: the tracker did not see the target there. It '
        'is measured again at the end.',
        'Posture 4 is left out: the tracker did not see the target there. To measure it again by '
        'itself, set measure_posture to 4.']
    assert rig.report.notes['lost'] == ' '.join(rig.state.lost)
    rig.rest.hidden = is_at(5)
    rig.measure(LOADED)
    assert rig.state.left_out == {3, 5}
    assert len(rig.estimated().parameters) == 6


def test_too_many_out_of_sight_are_refused() -> None:
    rig = Rig(GIVEN[:5])
    rig.rest.hidden = is_at(1, 3)
    with pytest.raises(DataError, match=r'5 postures .* posture 2 \(.*; posture 4 .* most 20 %'):
        rig.measure(UNLOADED)


def test_a_posture_without_a_way_is_one_out_of_sight() -> None:
    rig = Rig()
    go_to = rig.arm.go_to

    async def blocked(posture: np.ndarray, **shown: Any) -> None:
        if is_at(3)(posture):
            raise MotionError('There is no way.')
        await go_to(posture, **shown)

    rig.arm.go_to = blocked
    rig.measure(UNLOADED)
    assert rig.state.left_out == {3}
    assert 'moving there was not possible: There is no way' in rig.state.lost[0]


class TestStickyJoints:
    """Joints that stop elsewhere under load."""

    STICKING = np.array([0.0, 2e-3, -3e-3, 1e-3, 0.0, 2e-3])

    def sticking(self, gap: np.ndarray, *numbers: int) -> Rig:
        """Return a rig whose joints stand off in some postures with the load."""
        rig = Rig()
        go_to = rig.arm.go_to

        async def stop_short(posture: np.ndarray, **shown: Any) -> None:
            await go_to(posture, **shown)
            if rig.rest.loaded and is_at(*numbers)(posture):
                rig.arm.at = posture + gap

        rig.arm.go_to = stop_short
        return rig

    def test_milliradians_are_compensated(self) -> None:
        rig = self.sticking(self.STICKING, *range(0, 10, 2))
        rig.run()
        assert rig.state.lost == []
        found = rig.estimated()
        assert found.settings['largest_encoder_difference'] == pytest.approx(3e-3)
        assert_true(found, SEEN)

    def test_more_is_named_while_the_arm_stands_there_and_measured_again_by_itself(self) -> None:
        rig = self.sticking(4.0 * self.STICKING, 4)
        rig.measure(UNLOADED)
        stood = []
        update = rig.report.update

        def shown(phase: str, message: str, **values: Any) -> None:
            update(phase, message, **values)
            if 'cannot be used' in message:
                stood.append((message, rig.arm.at.copy()))

        rig.report.update = shown
        rig.measure(LOADED)
        (message, where), = stood
        assert message.startswith(
            "Posture 5 of 10 (loaded) cannot be used: joint 'joint_3' differs by 1.20e-02 rad")
        np.testing.assert_array_equal(where, GIVEN[4] + 4.0 * self.STICKING)
        assert rig.state.left_out == {4}
        assert rig.procedure.complete(LOADED)
        # The joint is freed by hand, and that posture alone is measured.
        rig.arm.go_to = FakeArm.go_to.__get__(rig.arm)
        before = len(rig.notes.rests)
        rig.values = replace(rig.values, measure_posture=5)
        rig.measure(LOADED)
        assert [rest.posture for rest in rig.notes.rests[before:]] == [4]
        assert rig.state.left_out == set()
        assert rig.estimated().counts['postures_of_both_sets'] == 10

    def test_a_posture_measured_again_replaces_its_first_measurement(self) -> None:
        rig = Rig()
        rig.measure(UNLOADED)
        visits = rig.state.sets[UNLOADED].visits
        old = next(item for number, item in visits if number == 2)
        rig.values = replace(rig.values, measure_posture=3)
        rig.measure(UNLOADED)
        new, = (item for number, item in rig.state.sets[UNLOADED].visits if number == 2)
        assert new is not old
        assert len(rig.notes.discarded) == 1
        rig.values = replace(rig.values, measure_posture=11)
        with pytest.raises(DataError, match='measure_posture is 11, but only 10 postures'):
            rig.measure(UNLOADED)


class TestWeakJoints:
    """Joints that the load nearly overcomes."""

    def test_given_postures_that_cannot_be_held_are_named_before_the_arm_moves(self) -> None:
        rig = Rig()
        held = rig.arm.robot.with_payload(RigidBodyInertia(
            10.0, rig.rest.cell.load.com, np.zeros((3, 3))), 'tool0')
        torque = np.abs(held.gravity_torques(GIVEN)[:, 1])
        worst = int(np.argmax(torque))
        rig.arm.robot.effort_limit = np.where(
            np.arange(6) == 1, np.sort(torque)[-2:].mean() / rig.values.effort_share, np.inf)
        rig.measure(UNLOADED)
        assert len(rig.state.postures) == 9
        assert rig.state.lost[0].startswith(
            f"Posture {worst + 1} of posture_file is not used: joint 'joint_2' needs "
            f'{torque[worst]:.3g} N·m')

    def test_a_start_in_which_the_load_cannot_be_held_is_refused(self) -> None:
        rig = Rig()
        rig.arm.robot.effort_limit = np.full(6, 60.0)
        with pytest.raises(MotionError, match=r"With a load of 10 kg.* in the present posture.* "
                                              r"'joint_2' needs .* Move the arm to another"):
            rig.measure(UNLOADED)

    def test_the_tool_counts_in_both_sets_and_the_loads_box_in_one(self) -> None:
        rig, masses = Rig(), []
        rig.tool = given_load(1.1, [0.0, 0.0, 0.1], 'tool0')
        go_to = rig.arm.go_to

        async def noted(posture: np.ndarray, *, effort: EffortLimits, **shown: Any) -> None:
            carried = sum(inertia.mass for inertia in effort.robot.model.inertias)
            masses.append((rig.rest.loaded, rig.arm.checker.loaded, round(
                carried - sum(inertia.mass for inertia in rig.arm.robot.model.inertias), 6)))
            await go_to(posture, **shown)

        rig.arm.go_to = noted
        rig.run()
        assert set(masses) == {(False, False, 1.1), (True, True, 11.1)}

    def test_a_load_without_room_at_the_start_is_refused_before_it_is_mounted(self) -> None:
        rig = Rig()
        rig.arm.checker = CollisionChecker(rig.arm.robot.copy(), load_box=(3.0, 3.0, 0.1))
        with pytest.raises(MotionError, match="With the load .* touches 'load_box'.*load_box or"):
            rig.run()
        assert rig.log == []

    def test_tool_and_load_beyond_a_limit_are_refused_before_the_load_is_mounted(self) -> None:
        """The load alone and the tool alone are held; together they are not."""
        rig = Rig()
        rig.measure(UNLOADED)
        rig.state.sets[UNLOADED].visits.clear()
        rig.tool = given_load(5.0, [0.0, 0.0, 0.1], 'tool0')

        def torque(*bodies: Load) -> np.ndarray:
            arm = rig.arm.robot
            for body in bodies:
                arm = body.on(arm)
            return np.abs(arm.gravity_torques(GIVEN)).max(axis=0)

        both = torque(rig.tool, rig.rest.cell.known_load())
        apart = np.maximum(torque(rig.tool), torque(rig.rest.cell.known_load()))
        limit = 0.5 * (both + apart)[1] / rig.values.effort_share
        rig.arm.robot.effort_limit = np.where(np.arange(6) == 1, limit, np.inf)
        words = (r'With a tool of 5 kg.* and a load of 10 kg on tool0 .* planned postures, joint '
                 rf"'joint_2' needs {both[1]:.3g} N·m.* limit of {limit:.3g} N·m")
        with pytest.raises(MotionError, match=words):
            rig.run()
        assert rig.log == []
        with pytest.raises(MotionError, match=words):
            asyncio.run(rig.procedure.rehearse())
        rig.tool = None
        rig.run()
        assert rig.procedure.complete(LOADED)

    @pytest.mark.parametrize(('held', 'raised'), [(True, False), (False, True)])
    def test_a_motion_that_the_controller_ends_costs_its_posture(self, held, raised) -> None:
        rig = Rig()
        go_to = rig.arm.go_to

        async def weak(posture: np.ndarray, **shown: Any) -> None:
            if is_at(3)(posture):
                raise MotionFailedError('The path tolerance was violated.', MotionOutcome(
                    MotionStatus.ABORTED, '', held))
            await go_to(posture, **shown)

        rig.arm.go_to = weak
        if raised:
            with pytest.raises(MotionFailedError):
                rig.measure(UNLOADED)
            return
        rig.measure(UNLOADED)
        assert rig.state.left_out == {3}
        assert rig.state.lost[0] == (
            'Posture 4 of 10 (unloaded) cannot be used: the arm did not get there: The path '
            'tolerance was violated. It is measured again at the end.')


def test_an_arm_that_is_elsewhere_than_the_tracker_says_is_noticed_at_once() -> None:
    rig = Rig()
    asyncio.run(rig.procedure.register_tracker((0.0, 100.0)))
    rig.rest.cell = Cell(target=TARGET + [0.02, 0.0, 0.0])
    with pytest.raises(DataError, match='whether the tracker or the target was moved'):
        rig.measure(UNLOADED)


class TestStationaryReader:
    """Rests are prolonged where the target is seen now and then, and no longer than that."""

    @dataclass
    class Stationary:
        """Joint states of an arm at rest, and the tracker's readings of them."""

        seen: Callable[[np.ndarray], np.ndarray]
        duration: float = 0.0
        forgotten: int = 0
        sends: bool = True
        shift: float = 0.0

        @property
        def time(self) -> np.ndarray:
            return 100.0 + np.arange(0.0, self.duration, 0.01)

        def joints(self) -> Any:
            def samples() -> JointSamples:
                still = np.zeros((len(self.time), 2))
                return JointSamples(('a', 'b'), self.time, still, still, still)

            def forget_after(time: float) -> None:
                self.forgotten += 1

            return SimpleNamespace(newest=100.0 + self.duration,
                                   samples=samples, forget_after=forget_after)

        def tracker(self) -> Any:
            def samples(begin: float) -> TrackerSamples:
                time = self.time[::10]
                time = time[(time >= begin) & self.seen(time - 100.0)]
                return TrackerSamples('tracker', time, np.ones((len(time), 3)))

            return SimpleNamespace(
                topic='/tracker/point', newest=100.0 + self.duration + self.shift,
                counts=StreamCounts(received=len(self.time)), samples=samples,
                age=lambda: 0.0 if self.sends else np.inf, problem=lambda: '')

    def reader(self, rest: StationaryInterval) -> StationaryReader:
        async def dwell(duration: float) -> None:
            """Let time pass."""
            rest.duration += duration
            made._joints, made._tracker = rest.joints(), rest.tracker()

        async def until(condition: Callable[[], bool], timeout: float) -> bool:
            return condition()

        async def await_readings(watch: Callable[[], str]) -> None:
            if watch():
                raise DataError(watch())

        arm = SimpleNamespace(dwell=dwell, await_readings=await_readings)
        made = StationaryReader(arm, rest.joints(), rest.tracker(), lambda: VALUES, until,
                                lambda: rest.sends)
        return made

    @pytest.mark.parametrize(('seen', 'duration', 'found'), [
        (lambda t: t >= 0.0, 1.6, True),
        (lambda t: t < 0.0, 1.6, False),
        (lambda t: t > 1.3, 2.6, True),
        (lambda t: (t % 1.0) > 0.85, 4.6, False),
    ])
    def test_it_waits_as_long_as_it_helps(self, seen, duration, found) -> None:
        rest = self.Stationary(seen)
        position = asyncio.run(self.reader(rest).read())
        assert rest.duration == pytest.approx(duration)
        assert (position is not None) == found
        assert rest.forgotten == 1

    def test_nobody_who_sends_is_named(self) -> None:
        with pytest.raises(DataError, match="Topic '/tracker/point' has no publisher"):
            asyncio.run(self.reader(self.Stationary(lambda t: t >= 0.0, sends=False)).wait())

    def test_another_clock_is_a_fault(self) -> None:
        assert self.reader(self.Stationary(lambda t: t >= 0.0, 1.0)).fault() == ''
        told = self.reader(self.Stationary(lambda t: t >= 0.0, 1.0, shift=7.0)).fault()
        assert 'newest tracker stamp differs by 7.0 s from the joint states' in told
