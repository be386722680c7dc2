# SPDX-License-Identifier: Apache-2.0
"""Identification of arms: the product, FIGAROH, MuJoCo's system identification, textbook methods.

All are given the same joint states, and predict the efforts of a motion that they were not given.
Real arms are those of published recordings; simulated arms have a known truth, without and with
errors of their model.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from benchmarks.adversarial_cell import arm_names, urdf_of
from benchmarks.benchmark import Benchmark, Outcome, Request
from benchmarks.campaign import exciting_motion, static_postures
from benchmarks.figures import Figure
from benchmarks.peers.comparison import (
    COLUMNS,
    NO_VERDICT,
    Z999,
    Row,
    limits,
    tables,
)
from benchmarks.peers.payload import FULL, QUIET, drawn
from benchmarks.peers.process import Run, available, run
from benchmarks.peers.recordings import in_order, joint_states, recording, trajectory
from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.messages import JointSamples
from robocal_ros.payload import PayloadParameters, arm_identification
from robocal_ros.payload.arm_regression import Law
from robocal_ros.results import CalibrationResult, rms
from robocal_ros.robot import (
    Robot,
    Trajectory,
    arm_regressor,
    identified_model,
    parameter_names,
    quintic_path,
)
from robocal_sim.prescribed import Measurement, Motion, measure
from robocal_sim.truth import Cell

OURS, FIGAROH, MUJOCO = 'robocal', 'FIGAROH', 'MuJoCo sysid'
ORDINARY, WEIGHTED = 'ordinary least squares', 'weighted least squares'
SPEED_BAR = 10.0
"""Times that the product is to be faster than FIGAROH."""

REASON = ('With few errors of the model, nuisance parameters and physical consistency cost '
          'accuracy that plain least squares does not spend.')
SLOW = ('Several cutoffs, friction laws and prior widths are tried, and the spectrum of the '
        'residuals and a held-out part are evaluated.')

_CUTOFFS = (1.0, 2.0, 5.0, 10.0)
_RATE = 125.0
_MED7_PERIOD = 0.01
_RANK = 1e-4
_TRANSITION = 0.03
_HELD_OUT = 0.25
_VALIDATION_CUTOFF = 1.0
_VELOCITY, _ACCELERATION = 1.0, 2.0


@dataclass(frozen=True)
class ArmCase:
    """Samples to identify an arm from, and a motion to predict.

    Attributes:
        name: Name of the case.
        urdf: URDF of the moving joints alone.
        tool: Tool frame.
        samples: The samples.
        q: Positions to predict the efforts at, shape (m, n) [rad].
        v: Velocities there [rad/s].
        a: Accelerations there [rad/s²].
        effort: Efforts there, without noise if they are known, shape (m, n) [N·m].
        carried: Joint torques without friction at ``exact``, shape (k, n) [N·m]; None for real
            arms.
        exact: Positions, velocities and accelerations of the links in the samples.

    """

    name: str
    urdf: str
    tool: str
    samples: JointSamples
    q: Array
    v: Array
    a: Array
    effort: Array
    carried: Array | None = None
    exact: tuple[Array, Array, Array] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of every method."""
        return {'urdf': self.urdf, 'joints': self.samples.joint_names,
                'time': self.samples.time, 'position': self.samples.position,
                'effort': self.samples.effort, 'q': self.q, 'v': self.v, 'a': self.a,
                'tool': self.tool}


# ----------------------------------------------------------------------------- methods


def product(
    *, urdf: str, joints: Sequence[str], time: Array, position: Array, effort: Array, q: Array,
    v: Array, a: Array, tool: str,
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the product's estimation, which returns the prediction."""
    robot = Robot(urdf, tool_frame=tool)
    n = len(joints)
    samples = JointSamples(tuple(joints), time, position, np.zeros_like(position), effort)

    def solve() -> Callable[[], dict[str, Any]]:
        values = PayloadParameters()
        result = arm_identification.estimate(
            robot, samples, values, scale=np.ones(n),
            scale_covariance=values.gain_std**2 * np.eye(n))

        def answer() -> dict[str, Any]:
            names = parameter_names(joints)
            return {'torque': predicted(robot, result, q, v, a), 'full': result.values(names),
                    'covariance': np.array(result.covariance), 'verdict': result.verdict.value,
                    'warnings': list(result.reasons)}

        return answer

    return solve


def predicted(robot: Robot, result: CalibrationResult, q: Array, v: Array, a: Array) -> Array:
    """Return the efforts that an identified arm predicts, shape (k, n) [N·m]."""
    model = identified_model(robot, result).robot
    torque = np.array([model.inverse_dynamics(*row) for row in zip(q, v, a, strict=True)])
    for column, joint in enumerate(robot.joint_names):
        transition, *extras = result.settings['laws'][joint]
        law = Law(transition, tuple(extras))
        torque[:, column] += law.columns(v[:, column], torque[:, column]) @ result.values(
            [f'{joint}.{name}' for name in law.names])
    return torque * result.values([f'{joint}.effort_scale' for joint in robot.joint_names])


def textbook(
    *, urdf: str, joints: Sequence[str], time: Array, position: Array, effort: Array, q: Array,
    v: Array, a: Array, tool: str, cutoff: float, weighted: bool,
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return least squares of base parameters and friction, which returns the prediction.

    Khalil, Dombre, Modeling, Identification and Control of Robots, 2002, ch. 12: filtered samples,
    base parameters by a pivoted QR, and for ``weighted`` the residual of each joint as its noise.
    """
    robot = Robot(urdf, tool_frame=tool)
    n = len(joints)
    period = float(np.median(np.diff(time)))

    def rows(q: Array, v: Array, a: Array) -> Array:
        """Return links, rotors, offsets, dry and viscous friction, shape (n, k, 14 n)."""
        every = [arm_regressor(robot, q, v, a).transpose(1, 0, 2)]
        for values in (a, np.ones_like(v), np.tanh(v / _TRANSITION), v):
            every.append(values.T[:, :, None] * np.eye(n)[:, None, :])
        return np.concatenate(every, axis=2)

    def solve() -> Callable[[], dict[str, Any]]:
        smooth = low_passed(position, period, cutoff)
        speed = np.gradient(smooth, period, axis=0)
        edge = max(1, int(1.0 / period))
        used = slice(edge, -edge, max(1, int(0.2 / (cutoff * period))))
        columns = rows(smooth[used], speed[used], np.gradient(speed, period, axis=0)[used])
        chosen = independent(columns.reshape(-1, columns.shape[2]))
        matrix, wanted = columns[:, :, chosen], low_passed(effort, period, cutoff)[used].T
        noise = np.ones(n)
        for _ in range(2 if weighted else 1):
            factor = np.concatenate([part / s for part, s in zip(matrix, noise, strict=True)])
            value = np.linalg.lstsq(factor, (wanted / noise[:, None]).ravel(), rcond=None)[0]
            left = wanted - matrix @ value
            if weighted:
                noise = left.std(axis=1)
        spread = left / noise[:, None]
        covariance = np.linalg.inv(factor.T @ factor) * (
            np.sum(spread**2) / (spread.size - len(value)))

        def answer() -> dict[str, Any]:
            rigid = chosen < 11 * n
            return {'torque': (rows(q, v, a)[:, :, chosen] @ value).T,
                    'columns': chosen[rigid], 'value': value[rigid],
                    'std': np.sqrt(np.diag(covariance))[rigid], 'warnings': []}

        return answer

    return solve


def independent(columns: Array) -> Array:
    """Return the indices of independent columns, by a pivoted QR."""
    norm = np.linalg.norm(columns, axis=0)
    kept = np.flatnonzero(norm > _RANK * norm.max())
    triangle, order = scipy.linalg.qr(columns[:, kept], mode='r', pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.sort(kept[order[:int((size > _RANK * size[0]).sum())]])


# ------------------------------------------------------------------------------- cases


def lean(urdf: str, joints: Sequence[str]) -> str:
    """Return a URDF of the moving joints and bodies alone, which all tools read alike."""
    tree = ElementTree.fromstring(urdf)
    for link in tree.findall('link'):
        for what in ('visual', 'collision'):
            for item in link.findall(what):
                link.remove(item)
    for joint in tree.findall('joint'):
        for what in ('mimic', 'safety_controller', 'calibration', 'dynamics'):
            for item in joint.findall(what):
                joint.remove(item)
        moves = joint.get('name') in joints
        joint.set('type', 'revolute' if moves else 'fixed')
        limit = joint.find('limit')
        if moves and limit is not None and limit.get('upper') is None:
            limit.set('lower', '-1000')
            limit.set('upper', '1000')
    for item in [child for child in tree if child.tag not in ('link', 'joint')]:
        tree.remove(item)
    about = ElementTree.SubElement(tree, 'mujoco')
    ElementTree.SubElement(about, 'compiler', boundmass='1e-4', boundinertia='1e-7',
                           balanceinertia='true', autolimits='true')
    return ElementTree.tostring(tree, encoding='unicode')


def ur10() -> ArmCase | None:
    """Return the UR10 of the recordings, with the validation trajectory of its publishers."""
    bag = recording('ur10_bags/ur10_exciting_trajectory.db3')
    if bag is None or 'UR10' not in arm_names():
        return None
    text = urdf_of('UR10')
    robot = Robot(text, tool_frame='tool0')
    samples = in_order(joint_states(bag), robot.joint_names)
    return ArmCase('UR10', lean(text, robot.joint_names), 'tool0', samples,
                   *trajectory(bag.with_name('validation_trajectory.db3')))


def panda() -> ArmCase | None:
    """Return the Panda of the recordings; the last quarter of its motion is held out."""
    bag = recording('panda_bag/panda_exciting_trajectory.db3')
    if bag is None or 'Panda' not in arm_names():
        return None
    text = urdf_of('Panda').replace('panda_joint', 'fer_joint')
    robot = Robot(text, tool_frame='panda_link8')
    return held_out('Panda', robot, in_order(joint_states(bag), robot.joint_names))


def med7() -> ArmCase | None:
    """Return the Med7 of the recordings, whose motion is too poor and whose URDF has no masses."""
    folder = recording('kuka_med7')
    if folder is None:
        return None
    robot = Robot((folder / 'med7_axes.urdf').read_text(encoding='utf-8'), tool_frame='l7')
    with np.load(folder / 'med7.npz') as data:
        q, effort = data['q'], data['tau']
    time: Array = _MED7_PERIOD * np.arange(len(q), dtype=np.float64)
    return held_out('Med7, motion too poor', robot, JointSamples(
        robot.joint_names, time, q, np.zeros_like(q), effort))


def held_out(name: str, robot: Robot, samples: JointSamples) -> ArmCase:
    """Return a case whose last quarter is to be predicted."""
    period = float(np.median(np.diff(samples.time)))
    q = low_passed(samples.position, period, _VALIDATION_CUTOFF)
    v = np.gradient(q, period, axis=0)
    border, edge = int((1.0 - _HELD_OUT) * len(samples)), int(1.0 / period)
    rows, first = slice(border, -edge), slice(0, border)
    return ArmCase(
        name, lean(robot.urdf, robot.joint_names), robot.tool_frame,
        replace(samples, time=samples.time[first], position=samples.position[first],
                velocity=samples.velocity[first], effort=samples.effort[first]),
        q[rows], v[rows], np.gradient(v, period, axis=0)[rows], samples.effort[rows])


def simulated(seed: int, case: str) -> ArmCase:
    """Return a simulated arm, quiet or with everything on, and a tour of postures to predict."""
    cell = drawn(seed, 'effort', case)
    # The true base parameters are those of an upright base.
    cell = replace(cell, rate=_RATE, truth=replace(cell.truth, base_tilt=(0.0, 0.0)))
    place = cell.arm.name, tuple(cell.home.tolist())
    robot, motion = cell.arm.robot, exciting_motion(*place, False)
    samples, _ = cell.record([motion], tool=False)
    period = 1.0 / 500.0
    truth = replace(cell.truth, tool=None, effort_delay=0.0, force_torque_sensors=())

    def followed(motion: Trajectory) -> tuple[tuple[Array, Array, Array], Measurement]:
        exact = motion.sample(np.arange(0.0, motion.duration, period))
        return exact, measure(cell.arm.description, truth, Cell(), Motion(period, *exact))

    exact, found = followed(motion)
    speed = np.minimum(robot.velocity_limit, _VELOCITY)
    tour, then = followed(quintic_path(
        static_postures(*place), speed, np.full(robot.n, _ACCELERATION)))
    rotor = np.array([truth.joints[name].rotor_in_effort * truth.joints[name].rotor_inertia
                      for name in robot.joint_names])
    rows, kept = slice(None, None, 10), slice(None, None, 5)
    return ArmCase(
        f'{cell.arm.name}, simulated, {case}',
        lean(robot.urdf, robot.joint_names), robot.tool_frame, samples,
        tour[0][rows], tour[1][rows], tour[2][rows], then.effort[rows],
        (found.carried + rotor * exact[2])[kept],
        (exact[0][kept], exact[1][kept], exact[2][kept]))


# ----------------------------------------------------------------------------- scoring


def z_score(case: ArmCase, answer: dict[str, Any]) -> tuple[float, float] | None:
    """Return RMS and maximum of the base parameters' errors over their standard deviations.

    The true values follow from noise-free torques of the same motion, exactly: base parameters are
    a basis of its regressor's columns.
    """
    if case.exact is None or case.carried is None or not (
            'columns' in answer or 'full' in answer):
        return None
    n = len(case.samples.joint_names)
    q, v, a = case.exact
    robot = Robot(case.urdf, tool_frame=case.tool)
    matrix = np.concatenate((arm_regressor(robot, q, v, a), a[:, :, None] * np.eye(n)), axis=2)
    matrix = matrix.reshape(-1, 11 * n)
    if 'full' in answer:
        columns = independent(matrix)
        mix = np.linalg.lstsq(matrix[:, columns], matrix, rcond=None)[0]
        value = mix @ answer['full'][:11 * n]
        covariance = answer['covariance'][:11 * n, :11 * n]
        std = np.sqrt(np.einsum('ij,jk,ik->i', mix, covariance, mix))
    else:
        columns, value, std = answer['columns'], answer['value'], answer['std']
    truth = np.linalg.lstsq(matrix[:, columns], case.carried.ravel(), rcond=None)[0]
    ratio = np.abs(value - truth) / std
    return rms(ratio), float(ratio.max())


def judged(case: ArmCase, method: str, done: Run, note: str = '') -> Row:
    """Return the row of a method.

    It is silently wrong if base parameters are beyond their 99.9 % intervals; recordings have no
    truth to tell.
    """
    if done.answer is None or not np.isfinite(done.answer['torque']).all():
        return Row(case.name, method, reason=done.reason or (
            'no result: the predicted efforts are not finite with the settings used here'),
            verdict='refused' if method == OURS else '')
    answer = done.answer
    errors = np.sqrt(np.mean((answer['torque'] - case.effort)**2, axis=0))
    score = z_score(case, answer)
    verdict = answer.get('verdict', NO_VERDICT)
    wrong = score is not None and score[1] > Z999
    return Row(
        case.name, method, 0,
        {f'J{number} [N·m]': float(error) for number, error in enumerate(errors, start=1)},
        None if score is None else score[0], verdict,
        wrong and verdict in ('pass', NO_VERDICT), done.seconds, done.memory, note=note)


def rows_of(case: ArmCase) -> list[Row]:
    """Return the rows of all methods on a case."""
    rate = 1.0 / float(np.median(np.diff(case.samples.time)))
    cutoffs = [item for item in _CUTOFFS if item < 0.3 * rate]

    def best(method: str, module: str, *, peer: bool, **options: Any) -> Row:
        """Return the row with the cutoff whose prediction is best, an advantage of the method."""
        tried = [judged(case, method, run(module, peer=peer, cutoff=cutoff, **options,
                                          **case.arguments), f'cutoff {cutoff:g} Hz')
                 for cutoff in cutoffs[:1 if peer and not available() else None]]
        return min(tried, key=lambda row: (
            float(np.sum(np.log(list(row.errors.values())))) if row.errors else np.inf))

    found = [judged(case, OURS, run('benchmarks.peers.arm:product', **case.arguments))]
    for name, weighted in ((ORDINARY, False), (WEIGHTED, True)):
        found.append(best(name, 'benchmarks.peers.arm:textbook', peer=False, weighted=weighted))
    found.append(best(FIGAROH, 'benchmarks.peers.figaroh_arm:identify', peer=True))
    cutoff = min(cutoffs, key=lambda item: abs(item - 5.0))
    found.append(judged(case, MUJOCO, run(
        'benchmarks.peers.mujoco_arm:identify', peer=True, cutoff=cutoff, **case.arguments),
        f'cutoff {cutoff:g} Hz'))
    return found


def figures(rows: Sequence[Row]) -> Iterator[Figure]:
    """Yield the limits: silence, accuracy against the best other method, time against FIGAROH."""
    others = (ORDINARY, WEIGHTED, FIGAROH, MUJOCO)
    yield from limits(rows, {OURS: others}, REASON)
    for case in dict.fromkeys(row.case for row in rows):
        own = {row.method: row for row in rows if row.case == case and row.errors}
        if OURS in own and FIGAROH in own:
            ratio = own[FIGAROH].seconds / own[OURS].seconds
            yield Figure(f'{case}: {OURS}', f'processor time of {FIGAROH} ÷ own', '1', ratio,
                         ratio, SPEED_BAR, at_least=True, reason=SLOW)


class ArmBenchmark(Benchmark):
    """Recorded and simulated arms, every method on the same samples."""

    title = 'Identification of arms, by several tools'
    about = (
        'RMS error of the efforts that an identified arm predicts for a motion that it was not '
        'identified from. UR10: 27.5 s at 125 Hz and the validation trajectory of the publishers; '
        'Panda: three quarters of 24 s at 30 Hz, and the last quarter (recordings of '
        'doi 10.1109/TII.2025.3534415, in the folder that `ROBOCAL_DATA` names); Med7: a slow '
        'motion of 16 s that must not pass, with a URDF of placeholders. Simulated arms: three '
        'periods of an exciting motion at 125 Hz, and a tour of 14 postures, against '
        'efforts without noise. Other methods are given the cutoff of their filter with the best '
        'prediction. '
        f'In the tables, {COLUMNS} z is that of base parameters, which only simulated arms have.')
    seeds = 1

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        cases = [case for case in (ur10(), med7(), panda()) if case is not None]
        if request.quick and cases:
            cases = cases[-1:]
        else:
            for seed in request.seeds:
                cases += [simulated(seed, case) for case in (QUIET, FULL)]
        rows = [row for case in cases for row in rows_of(case)]
        return Outcome(list(figures(rows)), rows, [] if recording('ur10_bags') else [
            'The recordings of real arms are not there.'], list(tables(rows)))


BENCHMARK = ArmBenchmark()
