# SPDX-License-Identifier: Apache-2.0
"""Contacts from external wrenches: thresholds, line of action, point on the surface."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from robocal_ros.arrays import Array, frozen
from robocal_ros.wrench.model import Chain
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.surface import Surface, Vector

Excess = Callable[[int, Array, float, bool], float]
"""Size of the force on a sub-chain compared with what model errors explain, as from
``ForceTest.size``, given its index, the wrench, the size, and whether a contact has begun."""

# Time constant of the mean force without contact [s].
_SLOW = 5.0


class Place(Enum):
    """Knowledge of where a force acts."""

    SURFACE = 'on the surface'
    REFERENCE = 'through the reference point'
    OUTSIDE = 'the line of action meets no geometry of this link'
    MOMENT = 'several contacts or a torque: no single force explains the moment'
    SATURATED = 'a sensor is saturated, so only a lower bound of the force is known'


@dataclass(slots=True)
class Contact:
    """A contact on a sub-chain, in its frame.

    Attributes:
        place: Knowledge of where the force acts.
        point: Contact point; None if it could not be located, shape (3,) [m].
        line_point: Point of the line of action that is nearest to the reference point, (3,) [m].
        direction: Direction of the force, a unit vector, shape (3,).
        distance: Distance of the line of action from the reference point [m].
        pitch: Moment along the force divided by the force: zero for one pure force [m].
        candidates: Number of points on the surface where the force could act.
        least: Lower bound of the force while a sensor is saturated, 0 otherwise [N].

    """

    place: Place
    point: Array | None
    line_point: Array
    direction: Array
    distance: float
    pitch: float
    candidates: int
    least: float = 0.0


def _cross(a: Vector, b: Vector) -> Vector:
    """Return the vector product; NumPy's takes ten times as long for one pair."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def line_of_action(force: Vector, moment: Vector) -> tuple[Vector, float]:
    """Return the point of a force's line that is nearest to the origin, and the pitch.

    r = F × M / |F|² and h = F · M / |F|² (the central axis of a wrench; Murray, Li and Sastry,
    A Mathematical Introduction to Robotic Manipulation, 1994, section 2.5.3).

    Args:
        force: F [N], not zero.
        moment: M about the origin [N·m].

    Returns:
        The point [m] and the pitch [m].

    """
    square = force[0]**2 + force[1]**2 + force[2]**2
    x, y, z = _cross(force, moment)
    pitch = (force[0] * moment[0] + force[1] * moment[1] + force[2] * moment[2]) / square
    return (x / square, y / square, z / square), pitch


class ContactJudge:
    """Contact state of one sub-chain.

    Attributes:
        in_contact: Whether there is a contact; with hysteresis.
        level: Mean force without contact, due to noise and errors of tare and model [N].

    """

    def __init__(self, chain: Chain, values: WrenchParameters, surface: Surface | None) -> None:
        """Start without contact.

        Args:
            chain: The sub-chain.
            values: The parameters, with the thresholds.
            surface: Its geometry; without one, no contact point is located.

        """
        self._chain = chain
        self._values = values
        self._surface = surface
        self._reference: Vector = tuple(chain.reference.tolist())
        self._mean: list[float] = []
        self._since = 0.0
        self._before = 0.0
        self._quiet = -math.inf
        self._bound: Contact | None = None
        self._bounded_until = -math.inf
        self.level = 0.0
        self.in_contact = False

    def use(self, chain: Chain) -> None:
        """Replace the sub-chain after a change of its load."""
        self._chain = chain
        self._reference = tuple(chain.reference.tolist())
        self.clear()

    def clear(self) -> None:
        """End a contact, as when the wrench becomes invalid."""
        self.in_contact = False
        self._quiet = -math.inf
        self._bound = None
        self._bounded_until = -math.inf

    def saturate(self, stamp: float, span: float, force: Array, excess: Excess) -> None:
        """Add a lower bound of the force, from saturated readings.

        Args:
            stamp: Its instant [s].
            span: Time for which the readings stay in the window [s].
            force: The smallest force, in the sub-chain's frame, shape (3,) [N].
            excess: As for ``update``.

        """
        least = float(np.linalg.norm(force))
        if stamp > self._bounded_until:
            self._bound = None
        self._bounded_until = stamp + span
        if least >= max(self._values.force_threshold, self._bound.least if self._bound else 0.0) \
                and excess(self._chain.proximal, force, least, self.in_contact) >= 1.0:
            origin = frozen(self._reference)
            self._bound = Contact(Place.SATURATED, None, origin, frozen(force / least), 0.0,
                                  0.0, 0, least)

    def bounded(self, stamp: float) -> Contact | None:
        """Return the contact of an instant without a valid wrench [s], None without one."""
        if self._bound is None or stamp > self._bounded_until:
            self.clear()
            return None
        if not self.in_contact:
            self.in_contact, self._since = True, stamp
        self._mean, self._before = [], stamp
        return self._bound

    @property
    def duration(self) -> float:
        """Duration of the present contact [s]."""
        return self._before - self._since if self.in_contact else 0.0

    def rest(self, stamp: float, force: float) -> None:
        """Add the magnitude of a force without contact [N], at an instant [s]."""
        step, self._quiet = stamp - self._quiet, stamp
        if 0.0 < step < _SLOW:
            self.level += (force - self.level) * step / _SLOW

    def update(
        self, stamp: float, wrench: Array, force: float, strongest: float,
        consistency: Callable[[int, Array], float], excess: Excess,
    ) -> Contact | None:
        """Add a wrench and return the contact, None while there is none.

        Args:
            stamp: Its instant [s].
            wrench: On the sub-chain, in its frame about its origin, shape (6,) [N, N·m].
            force: Magnitude of the force [N].
            strongest: Magnitude of the largest force on any sub-chain [N].
            consistency: Returns, for a sub-chain given by its index and its wrench, the size of
                the mean force divided by the mean size of the force within the window: 1 for a
                push or an impact, small for a vibration.
            excess: Returns, for a sub-chain and its force, the size of the force compared with
                the largest one that model errors explain, as ``ForceTest.size``.

        """
        limits = self._values
        if self.in_contact:
            pushed = (force >= limits.release_ratio * limits.force_threshold
                      and excess(self._chain.proximal, wrench, force, True)
                      >= limits.release_ratio)
        else:
            pushed = (force >= max(limits.force_threshold, limits.crosstalk * strongest)
                      and excess(self._chain.proximal, wrench, force, False) >= 1.0
                      and limits.steadiness <= (
                          limits.steadiness and consistency(self._chain.proximal, wrench)))
        if not pushed:
            self.in_contact = False
            self.rest(stamp, force)
            return None
        self._quiet = -math.inf
        newest = wrench.tolist()
        if self.in_contact and self._mean:
            # Averaged over what has passed since the contact began, at most the averaging time.
            step = stamp - self._before
            past = min(stamp - self._since, limits.contact_averaging)
            share = step / past if past > step else 0.5
            self._mean = [m + share * (v - m) for m, v in zip(self._mean, newest, strict=True)]
        else:
            if not self.in_contact:
                self.in_contact, self._since = True, stamp
            self._mean = newest
        self._before = stamp
        return self._placed()

    def _placed(self) -> Contact:
        fx, fy, fz, mx, my, mz = self._mean
        size = math.sqrt(fx * fx + fy * fy + fz * fz)
        origin = self._reference
        lever = _cross(origin, (fx, fy, fz))
        moment = (mx - lever[0], my - lever[1], mz - lever[2])
        near, pitch = line_of_action((fx, fy, fz), moment)
        through = math.hypot(*moment) < self._values.moment_threshold
        if through:
            near = (0.0, 0.0, 0.0)
        line_point = (origin[0] + near[0], origin[1] + near[1], origin[2] + near[2])
        direction = (fx / size, fy / size, fz / size)
        point, count = None, 0
        if abs(pitch) > self._values.max_pitch:
            place = Place.MOMENT
        else:
            entry = None if self._surface is None else self._surface.entry(
                self._chain, line_point, direction)
            if entry is None:
                place = Place.OUTSIDE
            else:
                place = Place.REFERENCE if through else Place.SURFACE
                point, count = entry.point, entry.count
        return Contact(place, point, frozen(line_point), frozen(direction), math.hypot(*near),
                       pitch, count)


class Contacts:
    """Contacts on all sub-chains of an arm.

    Attributes:
        judges: Contact state of each sub-chain.

    """

    def __init__(
        self, chains: Sequence[Chain], values: WrenchParameters, surface: Surface | None
    ) -> None:
        """Start without contact; arguments as for ``ContactJudge``, for all sub-chains."""
        self.judges = tuple(ContactJudge(chain, values, surface) for chain in chains)
        self._threshold = values.force_threshold
        self._forces = [0.0] * len(chains)

    def use(self, chains: Sequence[Chain]) -> None:
        """Replace the sub-chains after a change of their load."""
        for judge, chain in zip(self.judges, chains, strict=True):
            judge.use(chain)

    def clear(self, links: Sequence[int] | None = None) -> None:
        """End the contacts on some sub-chains, or on all."""
        for judge in self.judges if links is None else [self.judges[i] for i in links]:
            judge.clear()

    def restart(self) -> None:
        """End all contacts, and forget the mean forces without contact."""
        self.clear()
        for judge in self.judges:
            judge.level = 0.0

    def update(
        self, stamp: float, links: Sequence[int], wrenches: Array, reasons: Sequence[str],
        consistency: Callable[[int, Array], float], excess: Excess,
    ) -> dict[int, Contact]:
        """Add the wrenches on some sub-chains and return their contacts.

        Args:
            stamp: Their instant [s].
            links: Indices of these sub-chains.
            wrenches: By sub-chain, as for ``ContactJudge.update``, shape (k, 6) [N, N·m].
            reasons: By sub-chain, why its wrench is invalid; empty if it is valid.
            consistency: As for ``ContactJudge.update``.
            excess: As for ``ContactJudge.update``.

        """
        rows, forces, threshold = wrenches.tolist(), self._forces, self._threshold
        loud = []
        for index in links:
            x, y, z, _, _, _ = rows[index]
            force = math.sqrt(x * x + y * y + z * z)
            if reasons[index]:
                forces[index] = 0.0
                loud.append(index)
                continue
            forces[index] = force
            judge = self.judges[index]
            if force < threshold and not judge.in_contact:
                judge.rest(stamp, force)
            else:
                loud.append(index)
        contacts: dict[int, Contact] = {}
        for index in loud:
            judge = self.judges[index]
            contact = judge.bounded(stamp) if reasons[index] else judge.update(
                stamp, wrenches[index], forces[index], max(forces), consistency, excess)
            if contact is not None:
                contacts[index] = contact
        return contacts
