# SPDX-License-Identifier: Apache-2.0
"""Cramér-Rao bounds of what a campaign's cells without effects can tell, whatever the estimator.

Efforts and wrenches are linear in pseudo-inertias, rotors, friction and biases, so that the bound
follows from columns that the second world computes by itself. Unknown are the values in question
and what the estimators have to find, too: biases of the sensor, Coulomb and viscous friction of
each direction, rotors, and, of an identified arm, all links. Weighings are known to their stated
deviation; samples of a joint at rest tell nothing of its efforts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.second_cell import COM, INERTIA, STEP, WEIGHING_STD, Cell, Load
from benchmarks.second_world import Array, moments, parts, torques

_MOST = 3000
_LEAST_SPEED = 2e-3
_RANK = 1e-11
_DRIVES = frozenset({'rotor', 'friction'})
_CHAIN = _DRIVES | {'load', 'weighed', 'links'}
# Recordings of a group that a method uses, what is unknown, and factor on the noise: differences
# of two runs have twice its variance.
_METHODS: dict[str, tuple[tuple[int, ...], frozenset[str], float]] = {
    'torque': ((0, 1, 2), _CHAIN, 1.0), 'two_plane': ((0, 1, 3), _CHAIN, 1.0),
    'differential': ((1,), frozenset({'load'}), 2.0**0.5),
    'gains': ((0,), _DRIVES | {'weighed', 'gains'}, 1.0),
    'two_plane, gains': ((0, 1), _DRIVES | {'load', 'weighed', 'gains'}, 1.0),
    'friction': ((0,), _DRIVES, 1.0), 'friction, base joint': ((0,), _DRIVES, 1.0),
    'friction, motion': ((0,), _DRIVES, 1.0)}
_ROW, _COLUMN = np.triu_indices(4)
_UNITS = np.maximum(np.eye(16)[4 * _ROW + _COLUMN], np.eye(16)[4 * _COLUMN + _ROW]).reshape(
    -1, 4, 4)
# The mass is the last unit.
_MASS = len(_UNITS) - 1


def bounds(cell: Cell, method: str, speeds: Iterable[float]) -> dict[str, float]:
    """Return the smallest standard deviations of a method's values on a cell without effects.

    Args:
        cell: The cell, whose recordings are complete.
        method: Name of the method; others than those of this module have no bound.
        speeds: Signed speeds of values of friction [rad/s].

    """
    if method in ('static_poses', 'wrist'):
        return _of_load(cell, _wrench_covariance(cell, method == 'static_poses'))
    if method not in _METHODS:
        return {}
    rows, unknown, factor = _METHODS[method]
    n = cell.robot.n
    sizes = {'load': 10, 'weighed': 10, 'gains': n, 'rotor': n, 'friction': 4 * n, 'links': 10 * n}
    ends = np.cumsum(list(sizes.values())).tolist()
    place = {name: slice(end - size, end)
             for (name, size), end in zip(sizes.items(), ends, strict=True)}
    total = np.zeros((ends[-1], ends[-1]))
    for row in rows:
        total += _information(cell, *cell.motions[row], place, unknown) / factor**2
    for name in ('weighed', 'load') if method.startswith('two_plane') else ('weighed',):
        at = place[name].start + _MASS
        total[at, at] += WEIGHING_STD**-2
    kept = np.concatenate([np.arange(ends[-1])[place[name]] for name in sizes if name in unknown])
    covariance = np.zeros_like(total)
    covariance[np.ix_(kept, kept)] = _inverse(total[np.ix_(kept, kept)])
    found = _of_load(cell, covariance[:10, :10]) if 'load' in unknown else {}
    if method.startswith('two_plane'):
        del found['mass']
    for joint, name in enumerate(cell.robot.joint_names):
        if method == 'gains':
            found[f'{name}.effort_scale'] = covariance[20 + joint, 20 + joint]**0.5
        for speed in speeds if unknown == _DRIVES else ():
            chosen = place['friction'].start + 4 * joint + np.arange(4)
            at = _friction_columns(np.array([speed]))[0]
            found[f'{name} at {speed:+g} rad/s'] = float(
                at @ covariance[np.ix_(chosen, chosen)] @ at)**0.5
    return found


def _inverse(information: Array) -> Array:
    """Return the covariance; of what is not determined, no variance, as it does not matter."""
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    return np.asarray(np.linalg.pinv(
        information / np.outer(size, size), rcond=_RANK, hermitian=True) / np.outer(size, size))


def _friction_columns(speed: Array) -> Array:
    """Return Coulomb and viscous friction forward, then backward, shape (k, 4)."""
    forward, backward = (speed > 0.0).astype(np.float64), (speed < 0.0).astype(np.float64)
    return np.stack((forward, forward * speed, -backward, backward * speed), axis=1)


def _information(
    cell: Cell, wanted: Array, load: Load | None, rate: float, place: dict[str, slice],
    unknown: frozenset[str],
) -> Array:
    """Return what the efforts of a recording tell of all unknowns."""
    world, n = cell.world, cell.robot.n
    samples = len(wanted) * STEP * rate
    q, v, a = (part[::max(1, len(wanted) // _MOST)] for part in world._tracked(wanted, STEP))
    tool = world.arm.tool
    columns = np.zeros((len(q), n, max(part.stop for part in place.values())))

    def body(joint: int, matrix: Array) -> Array:
        bodies = np.zeros((n, 4, 4))
        bodies[joint] = matrix
        return torques(world.arm, bodies, q, v, a, world.gravity)

    if load is not None:
        begin = place['load' if load is cell.load else 'weighed'].start
        for number, unit in enumerate(_UNITS):
            columns[:, :, begin + number] = body(n - 1, tool @ unit @ tool.T)
    links = world.links.copy()
    if load is not None:
        links[-1] += tool @ load.matrix @ tool.T
    rigid = torques(world.arm, links, q, v, a, world.gravity)
    for joint in range(n):
        four = _friction_columns(v[:, joint])
        begin = place['friction'].start + 4 * joint
        columns[:, joint, begin:begin + 4] = four
        columns[:, joint, place['rotor'].start + joint] = a[:, joint]
        level = np.array([world.coulomb[0, joint], world.viscous[0, joint],
                          world.coulomb[1, joint], world.viscous[1, joint]])
        columns[:, joint, place['gains'].start + joint] = rigid[:, joint] + four @ level
        if 'links' in unknown:
            for number, unit in enumerate(_UNITS):
                columns[:, :, place['links'].start + 10 * joint + number] = body(joint, unit)
    # Noise before and after the sampling.
    columns /= (1.09**0.5 * world.noise)[:, None]
    columns[np.abs(v) < _LEAST_SPEED] = 0.0
    flat = columns.reshape(-1, columns.shape[2])
    return np.asarray(flat.T @ flat * (samples / len(q)))


def _wrench_covariance(cell: Cell, resting: bool) -> Array:
    """Return the covariance of a load's ten parameters by the wrist sensor with unknown biases."""
    world, (wanted, _, _) = cell.world, cell.motions[0]
    q, v, a = (part[::max(1, len(wanted) // _MOST)] for part in world._tracked(wanted, STEP))
    samples = len(wanted) * STEP * world.wrench_rate
    tool, nothing = world.arm.tool, np.zeros_like(world.links)
    columns = np.zeros((len(q), 6, 16))
    columns[:, :, 10:] = np.eye(6)
    for number, unit in enumerate(_UNITS):
        columns[:, :, number] = moments(
            world.arm, nothing, q, v, a, world.gravity, beyond=tool @ unit @ tool.T)[1]
    columns /= world.wrench_noise[:, None]
    if resting:
        columns[np.abs(v).max(axis=1) > 1e-4] = 0.0
    flat = columns.reshape(-1, 16)
    return _inverse(flat.T @ flat * (samples / len(q)))[:10, :10]


def _of_load(cell: Cell, covariance: Array) -> dict[str, float]:
    """Return the standard deviations of mass, centre and inertia about it."""
    def values(entries: Array) -> Array:
        mass, centre, inertia = parts(np.einsum('k,kij->ij', entries, _UNITS))
        return np.concatenate(([mass], centre, inertia[np.triu_indices(3)]))

    entries = cell.load.matrix[_ROW, _COLUMN]
    steps = np.diag(np.full(10, 1e-6))
    slopes = np.column_stack([(values(entries + step) - values(entries - step)) / 2e-6
                              for step in steps])
    std = np.sqrt(np.diag(slopes @ covariance @ slopes.T))
    return dict(zip(('mass', *COM, *INERTIA), std.tolist(), strict=True))
