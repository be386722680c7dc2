# SPDX-License-Identifier: Apache-2.0
"""Model of a serial arm from its URDF: joints, frames, limits, kinematics, dynamics.

Conventions: the root frame is the URDF's root link. Every joint, also a continuous one, has one
coordinate, so ``nq == nv == n``. 6-vectors are linear first, then angular. Units of prismatic
joints are m and N instead of rad and N·m.
"""

from __future__ import annotations

import functools
import hashlib
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import ConfigurationError, ModelError
from robocal_ros.results import RobotIdentity

STANDARD_GRAVITY = (0.0, 0.0, -9.81)

# Limits of revolute joints that replace continuous ones [rad]: Pinocchio represents a continuous
# joint by two coordinates (cosine, sine).
_UNBOUNDED = 1e6
# Deepest nesting of elements in a URDF, with plugins of a simulation.
_DEEPEST = 100
# Most links, joints, shapes, movable joints and attributes of an element. Parsing recurses through
# the links until the stack overflows; Pinocchio takes memory with the cube of the movable joints
# (155 MB for 100, 4 GB for 400), and time with the square of the attributes.
_MOST, _MOST_MOVABLE, _MOST_ATTRIBUTES = 1000, 150, 50
# Products of larger masses, lengths or inertias overflow.
_LARGEST = 1e50


@dataclass(frozen=True)
class RigidBodyInertia:
    """Mass, centre of mass and inertia of a body.

    Attributes:
        mass: Mass [kg].
        com: Centre of mass in the body's frame, shape (3,) [m].
        inertia: Inertia about the centre of mass, axes of the body's frame, (3, 3) [kg·m²].

    """

    mass: float
    com: Array
    inertia: Array

    def to_pinocchio(self) -> pin.Inertia:
        """Return it as Pinocchio's type."""
        return pin.Inertia(self.mass, np.asarray(self.com), np.asarray(self.inertia))


@dataclass(frozen=True)
class _Mimic:
    """Joint that follows another one: its angle is multiplier · driver's angle + offset."""

    driver: str
    multiplier: float
    offset: float

# Elements of links and joints that decide how the arm moves, and with what torques.
_MECHANICAL = ('inertial', 'parent', 'child', 'origin', 'axis', 'limit', 'mimic')


def parse_urdf(urdf: str) -> ElementTree.Element:
    """Return the root of a URDF, with its comments.

    Raises:
        ModelError: If the text is not a URDF, or defines entities, which may expand without end.

    """
    if '<!DOCTYPE' in urdf:
        raise ModelError('The robot description has a DOCTYPE, which may define entities; '
                         'expected a URDF. Remove it.')
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    try:
        root = ElementTree.fromstring(urdf, parser)
    except (ElementTree.ParseError, ValueError) as error:
        raise ModelError(
            f'The robot description is not well-formed XML ({error}); expected a URDF. '
            'Run xacro first if it is a xacro file.') from error
    if root.tag != 'robot':
        raise ModelError(
            f"The robot description starts with <{root.tag}>; expected a URDF's <robot>.")
    joints = root.findall('joint')
    for most, what, count in (
            (_MOST, 'links', len(root.findall('link'))), (_MOST, 'joints', len(joints)),
            (_MOST, 'collision shapes', len(root.findall('link/collision'))),
            (_MOST_MOVABLE, 'movable joints',
             sum(item.get('type') != 'fixed' for item in joints)),
            (_MOST_ATTRIBUTES, 'attributes of one element',
             max(len(item.attrib) for item in root.iter()))):
        if count > most:
            raise ModelError(f'The robot description has {count} {what}; expected at most '
                             f'{most}. Correct it.')
    _check_tree(joints)
    _check_inertials(root)
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for item in level for child in item]
    if level:
        raise ModelError(f'The robot description nests more than {_DEEPEST} elements; expected a '
                         "URDF, whose deepest are a joint's.")
    return root


def link_of(joint: ElementTree.Element, side: str) -> str:
    """Return the link on a side of a joint, ``parent`` or ``child``; empty for none."""
    end = joint.find(side)
    return '' if end is None else end.get('link', '')


def identity_of(urdf: str, name: str = '', joint_names: Sequence[str] = ()) -> RobotIdentity:
    """Return what results say about a robot, from its URDF.

    The mechanics do not depend on comments, order of elements and layout of numbers, nor on
    shapes, colours, and what drivers and simulators read.

    Args:
        urdf: URDF text.
        name: Name of the robot.
        joint_names: Names of its joints.

    Raises:
        ModelError: If the text is not a URDF.

    """
    root = parse_urdf(urdf)
    parts = sorted(
        (item.tag, item.get('name', ''), item.get('type', ''), sorted(
            (part.tag, key, _normalised(text)) for child in item if child.tag in _MECHANICAL
            for part in child.iter() for key, text in part.items()))
        for item in (*root.findall('link'), *root.findall('joint')))
    return RobotIdentity(name, hashlib.sha256(urdf.encode()).hexdigest(), tuple(joint_names),
                         hashlib.sha256(repr(parts).encode()).hexdigest())


def _normalised(text: str) -> str:
    """Return the text of an attribute with its numbers in one form."""
    words = text.split()
    return ' '.join(str(float(word)) for word in words) if all(map(_is_number, words)) else text


def _check_tree(joints: Sequence[ElementTree.Element]) -> None:
    """Raise a ModelError if links form a loop, in which Pinocchio's parser recurses for ever."""
    parents: dict[str, str] = {}
    for joint in joints:
        child, parent = link_of(joint, 'child'), link_of(joint, 'parent')
        if child in parents:
            raise ModelError(f"Link '{child}' is the child of two joints, one of them "
                             f"'{joint.get('name', '')}'; expected a tree. Correct the URDF.")
        parents[child] = parent
    try:
        TopologicalSorter({
            child: {parent} for child, parent in parents.items() if parent}).prepare()
    except CycleError as error:
        raise ModelError(f"Link '{error.args[1][0]}' is its own ancestor; expected a tree. "
                         'Correct the URDF.') from error


def _check_inertials(root: ElementTree.Element) -> None:
    """Raise a ModelError for numbers because of which Pinocchio's parser leaves out a mass."""
    for link in root.findall('link'):
        for item in (*link.iterfind('inertial/origin'), *link.iterfind('inertial/mass'),
                     *link.iterfind('inertial/inertia')):
            for key, text in item.items():
                if not all(map(_is_number, text.split())):
                    raise ModelError(
                        f"Link '{link.get('name', '')}' of the robot description has {key} "
                        f"'{text[:40]}' in its inertial; expected finite decimal numbers. "
                        'Correct the URDF.')


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < _LARGEST
    except ValueError:
        return False


def _mimics(tree: ElementTree.Element) -> dict[str, _Mimic]:
    """Return the joints of a URDF that follow others, each resolved to the joint with the drive.

    Raises:
        ModelError: If joints follow each other in a cycle, or a number is invalid.

    """
    tags = {joint.get('name', ''): tag for joint in tree.findall('joint')
            if (tag := joint.find('mimic')) is not None}
    found = {}
    for name in tags:
        driver, multiplier, offset, passed = name, 1.0, 0.0, []
        while driver in tags:
            passed.append(driver)
            tag = tags[driver]
            try:
                offset += multiplier * float(tag.get('offset', '0'))
                multiplier *= float(tag.get('multiplier', '1'))
            except ValueError as error:
                raise ModelError(
                    f"The mimic tag of joint '{driver}' has an invalid number ({error}); expected "
                    'decimal numbers as multiplier and offset.') from error
            driver = tag.get('joint', '')
            if driver in passed:
                raise ModelError(f'The mimic joints {_listed(passed)} follow each other in a '
                                 'cycle; remove the mimic tag of one of them.')
        found[name] = _Mimic(driver, multiplier, offset)
    return found


def _tie(tree: ElementTree.Element, mimics: Mapping[str, _Mimic]) -> None:
    """Let only these joints of a URDF follow others, each its driver directly."""
    for joint in tree.findall('joint'):
        for tag in joint.findall('mimic'):
            joint.remove(tag)
        mimic = mimics.get(joint.get('name', ''))
        if mimic is not None:
            ElementTree.SubElement(joint, 'mimic', joint=mimic.driver,
                                   multiplier=repr(mimic.multiplier), offset=repr(mimic.offset))


def _single_angle_joints(tree: ElementTree.Element) -> set[str]:
    """Make continuous joints of a URDF revolute ones with wide limits, and return their names."""
    names = set()
    for joint in tree.iter('joint'):
        if joint.get('type') != 'continuous':
            continue
        names.add(joint.get('name', ''))
        joint.set('type', 'revolute')
        limit = joint.find('limit')
        if limit is None:
            limit = ElementTree.SubElement(joint, 'limit', effort='0', velocity='0')
        limit.set('lower', str(-_UNBOUNDED))
        limit.set('upper', str(_UNBOUNDED))
    return names


def _linear_units(text: str) -> str:
    for angular, linear in (('kg·m²', 'kg'), ('N·m', 'N'), (r'\brad\b', 'm')):
        text = re.sub(angular, linear, text)
    return text


def _built(tree: ElementTree.Element, *, mimic: bool = False) -> pin.Model:
    urdf = ElementTree.tostring(tree, encoding='unicode')
    try:
        # Releases of Pinocchio before 3.4 lack the argument.
        return pin.buildModelFromXML(urdf, mimic=True) if mimic else pin.buildModelFromXML(urdf)
    except (ValueError, RuntimeError) as error:
        raise ModelError(
            'Pinocchio cannot build a model from the robot description: '
            f'{str(error).strip().rstrip(".")}. Correct the URDF.') from error


@functools.lru_cache(maxsize=32)
def _links_beyond(urdf: str, link: str) -> list[tuple[str, pin.Inertia]]:
    """Return the URDF inertias of a link and all links distal to it, each in link coordinates.

    Pinocchio merges links across fixed joints, so all joints are free in the model that is read.
    """
    tree = ElementTree.fromstring(urdf)
    for joint in tree.iterfind('joint'):
        joint.set('type', 'floating')
    model = _built(tree)
    names = {frame.parentJoint: str(frame.name) for frame in model.frames
             if frame.type == pin.FrameType.BODY}
    carrier = model.frames[model.getFrameId(link)].parentJoint
    return [(name, model.inertias[joint]) for joint, name in names.items()
            if carrier in model.supports[joint]]


def _listed(names: Sequence[str]) -> str:
    return ', '.join(names) if names else 'none'


def _existing_frame(model: pin.Model, frame: str) -> int:
    if not model.existFrame(frame):
        bodies = [f.name for f in model.frames if f.type == pin.FrameType.BODY]
        raise ConfigurationError(
            f"Frame '{frame}' is not in the robot description; it has {_listed(bodies)}. "
            'Name one of these.')
    return int(model.getFrameId(frame))


class Robot:
    """Kinematics and dynamics of one serial arm, by Pinocchio.

    Attributes:
        name: The arm's name; by default that of the URDF.
        urdf: URDF text.
        joint_names: Names of the n joints, from the base to the tip, without mimic joints.
        n: Number of joints.
        mimicking: Mimic joints by name, and the joint that each follows.
        tool_frame: Frame of the flange or tool.
        root_frame: The URDF's root link.
        gravity: Gravity in the root frame, shape (3,) [m/s²].
        springs: Torque per angle that drives hold against hoses and springs between links, and the
            angle at which it is zero, shape (2, n) [N·m/rad, rad]; zero unless it is identified.
        lower: Lower limits, -inf for continuous joints, shape (n,) [rad].
        upper: Upper limits, inf for continuous joints, shape (n,) [rad].
        velocity_limit: Speed limits, inf where the URDF has none, shape (n,) [rad/s].
        effort_limit: Torque limits, inf where the URDF has none, shape (n,) [N·m].
        continuous: Mask of joints without limits, whose angles may wrap, shape (n,).
        prismatic: Mask of prismatic joints, shape (n,).

    """

    def __init__(
        self, urdf: str, *, tool_frame: str = 'tool0', joints: Sequence[str] = (),
        gravity: Sequence[float] = STANDARD_GRAVITY, name: str = '',
    ) -> None:
        """Build the model.

        Args:
            urdf: URDF text.
            tool_frame: Frame of the flange or tool; the arm is the chain from the root to it.
            joints: Names of the arm's joints; all movable joints of that chain by default.
                Other joints (fingers, a track) are locked at 0, or their nearest limit.
            gravity: Gravity in the root frame, for tilted bases [m/s²].
            name: Name of this arm, to distinguish two of one type; the URDF's by default.

        Raises:
            ModelError: If the text is not a URDF that Pinocchio accepts.
            ConfigurationError: If a frame or joint does not exist, or gravity is invalid.

        """
        tree = parse_urdf(urdf)
        continuous, mimics = _single_angle_joints(tree), _mimics(tree)
        full = _built(tree)
        self.urdf = urdf
        self.name = name or full.name
        carrier = full.frames[_existing_frame(full, tool_frame)].parentJoint
        # The first one is the root, which does not move.
        chain = [str(full.names[joint]) for joint in full.supports[carrier]][1:]
        if not chain:
            raise ConfigurationError(
                f"No movable joint leads from '{full.frames[1].name}' to '{tool_frame}'; "
                'set tool_frame to the frame at the end of the arm.')
        driven = {mimics[name].driver if name in mimics else name for name in chain}
        chain = [str(name) for name in full.names if name in driven]
        for name in joints:
            if name in mimics:
                raise ConfigurationError(
                    f"Joint '{name}' follows '{mimics[name].driver}' (mimic in the robot "
                    f"description) and has no drive; name '{mimics[name].driver}' instead.")
            if name not in chain:
                known = 'exists but does not move' if full.existJointName(name) else 'is not in'
                raise ConfigurationError(
                    f"Joint '{name}' {known} the chain to '{tool_frame}'; "
                    f'its movable joints are {_listed(chain)}.')
        self.joint_names = tuple(name for name in chain if not joints or name in joints)
        self.n = len(self.joint_names)
        tied = {name: mimic for name, mimic in mimics.items() if mimic.driver in self.joint_names}
        self.mimicking = {name: mimic.driver for name, mimic in tied.items()}
        if tied:
            _tie(tree, tied)
            full = _built(tree, mimic=True)
        self.gravity = frozen(gravity)
        if self.gravity.shape != (3,) or not np.isfinite(self.gravity).all():
            raise ConfigurationError(
                f'gravity must be three finite numbers in m/s², got {list(gravity)}.')
        self.springs = frozen(np.zeros((2, self.n)))
        self.tool_frame = tool_frame
        self.root_frame = str(full.frames[1].name)
        self.model = self._reduced(full, mimics, self.joint_names)
        if self.model.nq != self.n:
            raise ModelError(
                f'Joints {_listed(self.joint_names)} have {self.model.nq} coordinates in all; '
                'expected one each (revolute, continuous or prismatic joints).')
        self.data = self.model.createData()
        self.velocity_limit, self.effort_limit = (
            frozen(np.where(values > 0.0, values, np.inf))
            for values in (self.model.velocityLimit, self.model.effortLimit))
        self.continuous = np.array([name in continuous for name in self.joint_names])
        self.lower = frozen(np.where(self.continuous, -np.inf, self.model.lowerPositionLimit))
        self.upper = frozen(np.where(self.continuous, np.inf, self.model.upperPositionLimit))
        self.prismatic = np.array([
            'JointModelP' in self.model.joints[self.model.getJointId(name)].shortname()
            for name in self.joint_names])

    @functools.cached_property
    def identity(self) -> RobotIdentity:
        """What results say about the arm."""
        return identity_of(self.urdf, self.name, self.joint_names)

    def model_of(self, urdf: str, movable: Sequence[str]) -> pin.Model:
        """Return the model of another description of this arm, whose other joints are locked.

        Args:
            urdf: URDF text, with joints of the arm and further ones.
            movable: Names of the joints to keep.

        Raises:
            ModelError: If Pinocchio does not accept the text.

        """
        tree = parse_urdf(urdf)
        _single_angle_joints(tree)
        return self._reduced(_built(tree), _mimics(tree), movable)

    def _reduced(
        self, full: pin.Model, mimics: Mapping[str, _Mimic], movable: Sequence[str]
    ) -> pin.Model:
        """Lock every joint that is neither movable nor follows one of the arm's."""
        reference = pin.neutral(full)

        def at(name: str) -> float:
            """Return the angle at which a joint is locked; mimic joints follow their driver."""
            mimic = mimics.get(name)
            if mimic is not None and full.existJointName(mimic.driver):
                return mimic.multiplier * at(mimic.driver) + mimic.offset
            column = full.joints[full.getJointId(name)].idx_q
            return float(min(max(0.0, full.lowerPositionLimit[column]),
                             full.upperPositionLimit[column]))

        to_lock = []
        for index, name in enumerate(full.names):
            if index == 0 or name in movable or name in self.mimicking:
                continue
            to_lock.append(index)
            joint = full.joints[index]
            if joint.nq == 1:
                reference[joint.idx_q] = at(str(name))
        model = pin.buildReducedModel(full, to_lock, reference) if to_lock else full
        model.gravity.linear = np.array(self.gravity)
        return model

    def check_untied(self, purpose: str) -> None:
        """Raise a ConfigurationError if a joint follows another one.

        Args:
            purpose: Subject of the sentence: what needs a drive on every joint.

        """
        for name, driver in self.mimicking.items():
            raise ConfigurationError(
                f"{purpose} needs a drive on every joint, but '{name}' follows '{driver}' (mimic "
                'in the robot description). Use another method.')

    def unit(self, joint: str, rotary: str) -> str:
        """Return the unit of a joint's figure, with m and N if the joint is prismatic.

        Args:
            joint: Name of the joint.
            rotary: Unit for a revolute joint, with rad and N·m.

        """
        return _linear_units(rotary) if self._is_prismatic(joint) else rotary

    def in_own_units(self, text: str) -> str:
        """Return a text with m and N if it names prismatic joints and no revolute one."""
        named = [name for name in self.joint_names
                 if re.search(rf'(?<!\w){re.escape(name)}(?!\w)', text)]
        return _linear_units(text) if named and all(map(self._is_prismatic, named)) else text

    def _is_prismatic(self, joint: str) -> bool:
        return joint in self.joint_names and bool(self.prismatic[self.joint_names.index(joint)])

    def index(self, joint: str) -> int:
        """Return a joint's column; raises ConfigurationError with the list of joints."""
        if joint not in self.joint_names:
            raise ConfigurationError(
                f"Joint '{joint}' is not one of the arm's: {_listed(self.joint_names)}.")
        return self.joint_names.index(joint)

    def frame_id(self, frame: str) -> int:
        """Return a frame's index; raises ConfigurationError with the list of frames."""
        return _existing_frame(self.model, frame)

    def sampling_limits(self) -> tuple[Array, Array]:
        """Return finite limits for random postures, ±π for unlimited joints, shape (n,) [rad]."""
        return (
            np.where(np.isfinite(self.lower), self.lower, -np.pi),
            np.where(np.isfinite(self.upper), self.upper, np.pi))

    # ------------------------------------------------------------------- kinematics

    def transform_frame_to_root(self, q: Array, frame: str) -> pin.SE3:
        """Return the placement of a frame: it maps frame coordinates to root coordinates.

        Args:
            q: Joint angles, shape (n,) [rad].
            frame: A frame of the URDF.

        """
        pin.forwardKinematics(self.model, self.data, q)
        return pin.SE3(pin.updateFramePlacement(self.model, self.data, self.frame_id(frame)))

    def joint_axis(self, q: Array, joint: int) -> tuple[Array, Array, Array]:
        """Return a joint's axis, a point on it, and the slopes of the axis, in the root frame.

        Args:
            q: Joint angles, shape (n,) [rad].
            joint: Column of the joint.

        Returns:
            Unit vector, shape (3,), point, shape (3,) [m], and the derivatives of the unit vector
            by the joint angles, shape (3, n) [1/rad].

        """
        if self.prismatic[joint]:
            raise ModelError(
                f"Joint '{self.joint_names[joint]}' is prismatic; expected a revolute one.")
        index = self.model.getJointId(self.joint_names[joint])
        # The binding returns a matrix of one column as a vector.
        local = pin.computeJointJacobian(self.model, self.data, q, index).reshape(6, self.n)
        pin.forwardKinematics(self.model, self.data, q)
        placement = self.data.oMi[index]
        rates = placement.rotation @ local[3:]
        axis = rates[:, joint]
        # A unit vector z that turns at the rate ω changes by ω × z.
        return axis, placement.translation.copy(), -pin.skew(axis) @ rates

    def tool_jacobian(self, q: Array) -> Array:
        """Return the Jacobian of the tool frame, linear rows first, root axes, shape (6, n)."""
        return self.pose_and_jacobian(q, self.tool_frame, np.zeros(3))[2]

    def pose_and_jacobian(self, q: Array, frame: str, point: Array) -> tuple[Array, Array, Array]:
        """Return rotation and position of a point fixed to a frame, and its Jacobian, root axes.

        Args:
            q: Joint angles, shape (n,) [rad].
            frame: The frame.
            point: The point in it, shape (3,) [m].

        Returns:
            Shapes (3, 3), (3,) [m], and (6, n) with the linear rows first.

        """
        index = self.frame_id(frame)
        jacobian = np.array(pin.computeFrameJacobian(
            self.model, self.data, q, index, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)
            ).reshape(6, self.n)
        placement = self.data.oMf[index]
        rotation = placement.rotation.copy()
        lever = rotation @ point
        jacobian[:3] -= pin.skew(lever) @ jacobian[3:]
        return rotation, placement.translation + lever, jacobian

    # --------------------------------------------------------------------- dynamics

    def gravity_torque(self, q: Array) -> Array:
        """Return the torques that hold the arm against gravity and springs, shape (n,) [N·m].

        Args:
            q: Joint angles, shape (n,) [rad].

        """
        return pin.computeGeneralizedGravity(self.model, self.data, q) + self.spring_torque(q)

    def gravity_torques(self, positions: Array) -> Array:
        """Return the holding torques of several postures, shape (k, n) [N·m].

        Args:
            positions: Joint angles, shape (k, n) [rad].

        """
        return np.array([self.gravity_torque(q) for q in positions]).reshape(positions.shape)

    def inverse_dynamics(self, q: Array, v: Array, a: Array) -> Array:
        """Return the joint torques of a motion (recursive Newton-Euler), shape (n,) [N·m].

        Args:
            q: Joint angles, shape (n,) [rad].
            v: Joint velocities, shape (n,) [rad/s].
            a: Joint accelerations, shape (n,) [rad/s²].

        """
        return pin.rnea(self.model, self.data, q, v, a) + self.spring_torque(q)

    def spring_torque(self, q: Array) -> Array:
        """Return the torques that hold the arm against its springs, shape (…, n) [N·m].

        Args:
            q: Joint angles, shape (…, n) [rad].

        """
        return np.asarray(self.springs[0] * (q - self.springs[1]))

    def distal_inertia(self, frame: str, q: Array | None = None) -> RigidBodyInertia:
        """Return the inertia of the URDF's links distal to a frame.

        Args:
            frame: A link's frame, such as an F/T sensor's; the link itself is included.
            q: Joint angles, for movable joints distal to the frame, shape (n,) [rad].

        Returns:
            Mass, centre of mass and inertia, in the coordinates of ``frame``.

        """
        pin.framesForwardKinematics(self.model, self.data, np.zeros(self.n) if q is None else q)
        transform_root_to_frame = self.data.oMf[self.frame_id(frame)].inverse()
        total = pin.Inertia.Zero()
        for link, inertia in _links_beyond(self.urdf, frame):
            placement = self.data.oMf[self.frame_id(link)]
            total += (transform_root_to_frame * placement).act(inertia)
        return RigidBodyInertia(total.mass, frozen(total.lever), frozen(total.inertia))

    def copy(self) -> Robot:
        """Return a copy with its own Pinocchio model and data, for use in another thread."""
        twin = Robot.__new__(Robot)
        twin.__dict__.update(self.__dict__)
        twin.model = pin.Model(self.model)
        twin.data = twin.model.createData()
        return twin

    def without_mass(self) -> Robot:
        """Return a copy of the arm with massless links."""
        twin = self.copy()
        for joint in range(twin.model.njoints):
            twin.model.inertias[joint] = pin.Inertia.Zero()
        return twin

    def with_payload(self, payload: RigidBodyInertia, frame: str | None = None) -> Robot:
        """Return a copy of the arm that carries a payload.

        Args:
            payload: The payload, in the coordinates of ``frame``.
            frame: Frame on which the payload is mounted; the tool frame by default.

        """
        loaded = self.copy()
        carrier = loaded.model.frames[loaded.frame_id(frame or self.tool_frame)]
        loaded.model.appendBodyToJoint(
            carrier.parentJoint, payload.to_pinocchio(), carrier.placement)
        return loaded
