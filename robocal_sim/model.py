# SPDX-License-Identifier: Apache-2.0
"""MuJoCo model of a URDF and a hidden truth.

The URDF is stripped to its kinematics and inertias: meshes are not opened; contacts, limits,
damping and friction of the URDF have no effect. Friction, rotors and tools come from the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
import numpy.typing as npt

from robocal_ros.errors import ConfigurationError, ModelError
from robocal_sim.truth import HiddenTruth, JointTruth, LinkTruth

FloatArray = npt.NDArray[np.float64]

TOOL_BODY = '__tool'
LOAD_BODY = '__load'
MOVABLE = ('revolute', 'continuous', 'prismatic')
_WITHOUT_LIMIT = 1.0e9


@dataclass(frozen=True)
class JointLimits:
    """Limits of the controlled joints, shape (n,) each; infinite where the URDF has none.

    Attributes:
        lower: Lowest position [rad].
        upper: Highest position [rad].
        velocity: Highest speed [rad/s].
        effort: Highest drive torque [N·m].

    """

    lower: FloatArray
    upper: FloatArray
    velocity: FloatArray
    effort: FloatArray


@dataclass(frozen=True)
class Description:
    """Parts of a URDF used by the simulation.

    Attributes:
        robot: Name of the robot.
        joints: Controlled joints, in the order of all arrays.
        limits: Limits of these joints.
        links: All links.
        root: The root link, fixed to the world.
        tip: Default link that carries a tool.
        stripped: URDF text without geometry, with every other joint fixed.

    """

    robot: str
    joints: tuple[str, ...]
    limits: JointLimits
    links: tuple[str, ...]
    root: str
    tip: str
    stripped: str


def read_description(urdf: str, joints: Sequence[str] = ()) -> Description:
    """Read a URDF.

    Args:
        urdf: The URDF text.
        joints: Controlled joints; empty for every movable joint that does not mimic another.
            All other joints are fixed at zero.

    Raises:
        ModelError: The text is not a URDF, or has no movable joint.
        ConfigurationError: A given joint does not exist or cannot move.

    """
    try:
        root = ElementTree.fromstring(urdf)
    except ElementTree.ParseError as error:
        raise ModelError(
            f'The robot description is not valid XML ({error}); expected the text of a URDF '
            '(not the name of a file, and not xacro).'
        ) from error
    if root.tag != 'robot':
        raise ModelError(
            f'The robot description begins with <{root.tag}>; expected <robot>, a URDF.'
        )
    found = {joint.get('name', ''): joint for joint in root.findall('joint')}
    movable = [
        name for name, joint in found.items()
        if joint.get('type') in MOVABLE and joint.find('mimic') is None
    ]
    wanted = tuple(joints) or tuple(movable)
    _check_joints(wanted, movable, found)
    links = tuple(link.get('name', '') for link in root.findall('link'))
    children = {_link_of(joint, 'child') for joint in found.values()}
    roots = [link for link in links if link not in children]
    if len(roots) != 1:
        raise ModelError(
            f'The robot description has the root links {roots}; expected exactly one.'
        )
    limits = _limits([found[name] for name in wanted])
    tip = _tip(found, wanted[-1])
    _strip(root, wanted)
    return Description(
        robot=root.get('name', ''),
        joints=wanted,
        limits=limits,
        links=links,
        root=roots[0],
        tip=tip,
        stripped=ElementTree.tostring(root, encoding='unicode'),
    )


def _check_joints(wanted: Sequence[str], movable: Sequence[str], found: dict[str, Any]) -> None:
    if not wanted:
        raise ModelError(
            'The robot description has no movable joint; expected revolute, continuous or '
            'prismatic joints.'
        )
    wrong = [name for name in wanted if name not in movable]
    if wrong:
        reason = 'cannot be controlled' if wrong[0] in found else 'do not exist'
        raise ConfigurationError(
            f'Joints {", ".join(wrong)} {reason}; the robot has the movable joints '
            f'{", ".join(movable)}. Correct the parameter joints.'
        )
    if len(set(wanted)) != len(wanted):
        raise ConfigurationError(
            f'The parameter joints names a joint twice: {", ".join(wanted)}. Name each once.'
        )


def _link_of(joint: ElementTree.Element, end: str) -> str:
    element = joint.find(end)
    return '' if element is None else element.get('link', '')


def _limits(joints: Sequence[ElementTree.Element]) -> JointLimits:
    def value(joint: ElementTree.Element, key: str, default: float) -> float:
        limit = joint.find('limit')
        return default if limit is None else float(limit.get(key, default))

    bounded = [joint.get('type') != 'continuous' for joint in joints]
    pairs = list(zip(joints, bounded, strict=True))
    return JointLimits(
        lower=np.array([value(j, 'lower', 0.0) if b else -np.inf for j, b in pairs]),
        upper=np.array([value(j, 'upper', 0.0) if b else np.inf for j, b in pairs]),
        # Some descriptions write 0 for "not given".
        velocity=np.array([value(j, 'velocity', 0.0) or np.inf for j in joints]),
        effort=np.array([value(j, 'effort', 0.0) or np.inf for j in joints]),
    )


def _tip(joints: dict[str, ElementTree.Element], last: str) -> str:
    """Return tool0 if it exists, else the child link of the last controlled joint."""
    children = {_link_of(joint, 'child') for joint in joints.values()}
    return 'tool0' if 'tool0' in children else _link_of(joints[last], 'child')


def _strip(root: ElementTree.Element, controlled: Sequence[str]) -> None:
    """Remove everything but kinematics and inertias, in place."""
    for element in list(root):
        if element.tag not in ('link', 'joint'):
            root.remove(element)
    for link in root.findall('link'):
        for element in list(link):
            if element.tag != 'inertial':
                link.remove(element)
    for joint in root.findall('joint'):
        keep = ['origin', 'parent', 'child']
        if joint.get('name') in controlled:
            keep.append('axis')
            if joint.get('type') == 'revolute':
                # Without limits: the model has no end stops; the drives clamp commands.
                joint.set('type', 'continuous')
            elif joint.get('type') == 'prismatic':
                keep.append('limit')
        else:
            joint.set('type', 'fixed')
        for element in list(joint):
            if element.tag not in keep:
                joint.remove(element)


def _gravity(truth: HiddenTruth) -> list[float]:
    """Return gravity in the frame of the tilted base, shape (3,) [m/s²]."""
    if not any(truth.base_tilt):
        return list(truth.gravity)
    # Imported late: SciPy would double the time that the node loads.
    from scipy.spatial.transform import Rotation

    tilted: list[float] = Rotation.from_rotvec(
        (*truth.base_tilt, 0.0)).inv().apply(truth.gravity).tolist()
    return tilted


def build_model(
    description: Description, truth: HiddenTruth, *, loaded: bool, timestep: float
) -> mujoco.MjModel:
    """Compile the MuJoCo model.

    Args:
        description: The robot.
        truth: Gravity, rotors, sensors, and (if `loaded`) tool and load.
        loaded: Whether to include tool, load and sensors. The drives' own model is built
            without them.
        timestep: Physics step [s].

    Raises:
        ModelError: MuJoCo rejects the robot.
        ConfigurationError: The truth names a joint or link that does not exist.

    """
    check_names(description, truth)
    try:
        spec = mujoco.MjSpec.from_string(_with_compiler(description.stripped))
    except ValueError as error:
        raise ModelError(
            f'The robot {description.robot} cannot be simulated: {error}. Correct the URDF.'
        ) from error
    spec.option.timestep = timestep
    spec.option.gravity = _gravity(truth)
    for joint in spec.joints:
        joint.limited = 0
        joint.armature = _rotor_inertia(truth, joint.name)
    if loaded:
        _displace_frames(spec, description, truth)
        _add_tools(spec, description, truth)
        _add_sensors(spec, description, truth)
    model = _compile(spec, description)
    links = truth.links
    if loaded and (links.mass or links.centre_of_mass or links.inertia):
        _scatter_links(spec, model, description, links)
        model = _compile(spec, description)
    return model


def _with_compiler(urdf: str) -> str:
    root = ElementTree.fromstring(urdf)
    extension = ElementTree.SubElement(root, 'mujoco')
    # Fixed links must stay bodies: force sensors measure between them.
    ElementTree.SubElement(extension, 'compiler', fusestatic='false', discardvisual='false')
    return ElementTree.tostring(root, encoding='unicode')


def _rotor_inertia(truth: HiddenTruth, joint: str) -> float:
    known = truth.joints.get(joint)
    return 0.1 if known is None else known.rotor_inertia


def _compile(spec: Any, description: Description) -> mujoco.MjModel:
    try:
        return spec.compile()
    except ValueError as first:
        # Many published URDFs contain inertias that no body can have. MuJoCo can correct them;
        # the robot then differs slightly from its description.
        spec.compiler.balanceinertia = True
        spec.compiler.boundmass = 1.0e-4
        spec.compiler.boundinertia = 1.0e-7
        try:
            return spec.compile()
        except ValueError:
            raise ModelError(
                f'The robot {description.robot} cannot be simulated: {first}. Correct the URDF.'
            ) from first


def _displace_frames(spec: Any, description: Description, truth: HiddenTruth) -> None:
    """Displace the joint frames from the URDF, in the specification of a model."""
    frames, generator = truth.frames, np.random.default_rng(round(truth.frames.seed))
    for name in description.joints:
        drawn = generator.standard_normal(6) * np.repeat((frames.shift, frames.turn), 3)
        moved = drawn + truth.joints.get(name, JointTruth()).frame
        # The frame of the body that a joint of a URDF moves is that of the joint.
        body, turned, shift = spec.joint(name).parent, np.empty(4), np.empty(3)
        angle = float(np.linalg.norm(moved[3:]))
        mujoco.mju_axisAngle2Quat(turned, moved[3:] / max(angle, 1e-12), angle)
        mujoco.mju_rotVecQuat(shift, moved[:3], body.quat)
        both = np.empty(4)
        mujoco.mju_mulQuat(both, body.quat, turned)
        body.pos, body.quat = body.pos + shift, both


def _scatter_links(
    spec: Any, model: mujoco.MjModel, description: Description, links: LinkTruth
) -> None:
    """Draw the deviations of the arm's links from the URDF, in the specification of a model."""
    generator = np.random.default_rng(round(links.seed))
    for name in description.links:
        mass, inertia = 1.0 + generator.standard_normal(2) * (links.mass, links.inertia)
        shift = generator.standard_normal(3) * links.centre_of_mass
        if name == description.root or not model.body(name).mass[0]:
            continue
        nominal, body = model.body(name), spec.body(name)
        body.explicitinertial = True
        # Three standard deviations at most: masses stay positive.
        body.mass = nominal.mass[0] * np.clip(mass, *_bounds(links.mass))
        body.ipos = nominal.ipos + shift
        body.iquat = nominal.iquat
        body.fullinertia = np.full(6, np.nan)
        body.inertia = nominal.inertia * np.clip(inertia, *_bounds(links.inertia))


def _bounds(sigma: float) -> tuple[float, float]:
    return max(1.0 - 3.0 * sigma, 0.05), 1.0 + 3.0 * sigma


def check_names(description: Description, truth: HiddenTruth) -> None:
    """Check that all joints and links named in the truth exist.

    Raises:
        ConfigurationError: A name does not exist; the message lists those that do.

    """
    unknown = [name for name in truth.joints if name not in description.joints]
    if unknown:
        raise ConfigurationError(
            f'The hidden truth names the joints {", ".join(unknown)}; the robot has '
            f'{", ".join(description.joints)}. Correct the names in the truth file.'
        )
    named = [sensor.frame for sensor in truth.force_torque_sensors]
    named += [sensor.frame for sensor in truth.imus]
    named += [tool.parent for tool in (truth.tool, truth.load) if tool and tool.parent]
    if truth.sockets and truth.sockets.parent:
        named.append(truth.sockets.parent)
    if truth.tracker:
        named.append(truth.tracker.target_link)
    named += [truth.camera.link, truth.camera.board.link] if truth.camera else []
    missing = [name for name in named if name and name not in description.links]
    if missing:
        raise ConfigurationError(
            f'The hidden truth names the links {", ".join(missing)}; the robot has '
            f'{", ".join(description.links)}. Correct the names in the truth file.'
        )
    sensors = [sensor.frame for sensor in truth.force_torque_sensors]
    if len(set(sensors)) != len(sensors) or description.root in sensors:
        raise ConfigurationError(
            f'The hidden truth has the force/torque sensors {", ".join(sensors)}; expected each '
            f'link once, and not the root link {description.root}, which has no parent.'
        )


def _add_tools(spec: Any, description: Description, truth: HiddenTruth) -> None:
    for name, tool in ((TOOL_BODY, truth.tool), (LOAD_BODY, truth.load)):
        if tool is None:
            continue
        body = _body(spec, description, tool.parent or description.tip).add_body(name=name)
        body.explicitinertial = True
        body.mass = tool.mass
        body.ipos = list(tool.centre_of_mass)
        body.fullinertia = list(tool.inertia)


def _body(spec: Any, description: Description, link: str) -> Any:
    """Return the body of a link; MuJoCo merges the root link with the world."""
    return spec.worldbody if link == description.root else spec.body(link)


def _add_sensors(spec: Any, description: Description, truth: HiddenTruth) -> None:
    kinds = mujoco.mjtSensor
    site = mujoco.mjtObj.mjOBJ_SITE
    force_frames = [sensor.frame for sensor in truth.force_torque_sensors]
    imu_frames = [sensor.frame for sensor in truth.imus]
    for frames, first, second in (
        (force_frames, kinds.mjSENS_FORCE, kinds.mjSENS_TORQUE),
        (imu_frames, kinds.mjSENS_ACCELEROMETER, kinds.mjSENS_GYRO),
    ):
        for frame in frames:
            name = f'{first.name}:{frame}'
            _body(spec, description, frame).add_site(name=name)
            for kind in (first, second):
                spec.add_sensor(name=f'{kind.name}:{frame}', type=kind, objtype=site, objname=name)
