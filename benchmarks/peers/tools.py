# SPDX-License-Identifier: Apache-2.0
"""Open tools: FIGAROH, MuJoCo's system identification, iDynTree, a semidefinite program.

This module is imported in the environment of these tools, each of them by its function.
"""

from __future__ import annotations

import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_DECIMATION = 10
_ROWS = 600
_ITERATIONS = 30
_LARGEST = {'armature': 20.0, 'damping': 200.0, 'frictionloss': 100.0}
_START = {'armature': 0.5, 'damping': 5.0, 'frictionloss': 5.0}


def figaroh(
    *, urdf: str, joints: Sequence[str], time: Any, position: Any, effort: Any, q: Any, v: Any,
    a: Any, cutoff: float, **_: Any,
) -> Iterator[Any]:
    """Identify an arm by FIGAROH (PyPI ``figaroh``), through its documented base class.

    Base parameters, viscous and dry friction, rotor inertia and offset of each joint by weighted
    least squares on filtered samples, which then predict. Yields as for `process.run`.

    Args:
        urdf: URDF text of the moving joints alone.
        joints: Their names.
        time: Stamps of the samples, shape (k,) [s].
        position: Measured positions, shape (k, n) [rad].
        effort: Measured efforts, shape (k, n) [N·m].
        q: Positions to predict the efforts at, shape (m, n) [rad].
        v: Velocities there [rad/s].
        a: Accelerations there [rad/s²].
        cutoff: Cutoff of the filter [Hz].

    """
    import yaml
    from figaroh.identification.base_identification import BaseIdentification
    from figaroh.tools.regressor import build_regressor_basic, build_regressor_reduced
    from figaroh.tools.robot import Robot

    class Identification(BaseIdentification):  # type: ignore[misc]
        def load_trajectory_data(self, data_source: str | None = None) -> dict[str, Any]:
            return {'timestamps': time, 'positions': position, 'velocities': None,
                    'accelerations': None, 'torques': effort}

        def process_torque_data(self, **_: Any) -> Any:
            return self._apply_filters(
                self.raw_data['torques'], **self.filter_config['filter_params'])

    rate = float(1.0 / np.median(np.diff(time)))
    folder = Path(tempfile.mkdtemp())
    (folder / 'arm.urdf').write_text(urdf, encoding='utf-8')
    (folder / 'arm.yaml').write_text(yaml.safe_dump({
        'robot': {'name': 'arm', 'properties': {'joints': {'active_joints': list(joints)}}},
        'tasks': {'identification': {
            'problem': {'model_components': {
                'friction': True, 'actuator_inertia': True, 'joint_offset': True},
                'qr_relative_tolerance': 1e-4},
            'signal_processing': {'sampling_frequency': rate, 'cutoff_frequency': cutoff}}}}),
        encoding='utf-8')
    robot = Robot(str(folder / 'arm.urdf'), str(folder))

    yield
    found = Identification(robot, str(folder / 'arm.yaml'))
    n = len(joints)
    found.identif_config.update(act_idxq=list(range(n)), act_idxv=list(range(n)))
    # The ends belong to the filter.
    edge = max(1, int(rate))
    found.process_data()
    found.processed_data = {name: values[edge:-edge]
                            for name, values in found.processed_data.items()}
    found.num_samples = len(found.processed_data['positions'])
    found.calculate_full_regressor()
    found.initialize_standard_parameters()
    found.compute_reference_torque()
    coarse = rate >= 5.0 * _DECIMATION
    found.solve(decimate=coarse, decimation_factor=_DECIMATION, plotting=False, wls=True)
    yield
    full = build_regressor_basic(robot, q, v, a, found.identif_config)
    columns = build_regressor_reduced(full, found._idx_eliminated)
    torque = columns[:, found._base_indices] @ found.phi_base
    yield {'torque': torque.reshape(n, -1).T}


def mujoco(
    *, urdf: str, joints: Sequence[str], time: Any, position: Any, effort: Any, q: Any, v: Any,
    a: Any, cutoff: float, **_: Any,
) -> Iterator[Any]:
    """Identify an arm by MuJoCo's system identification (``mujoco.sysid``), and predict.

    Its parameters (pseudo-inertia of each link, rotor inertia, damping and dry friction of each
    joint) and its optimiser, on the residual of MuJoCo's inverse dynamics: an arm that is driven
    by measured torques alone leaves its path within a second. Arguments as for `figaroh`, yields
    as for `process.run`.
    """
    from importlib import import_module

    from scipy.signal import butter, filtfilt

    mujoco: Any = import_module('mujoco')
    sysid: Any = import_module('mujoco.sysid')
    spec = mujoco.MjSpec.from_string(urdf)
    spec.option.disableflags |= (mujoco.mjtDisableBit.mjDSBL_CONTACT
                                 | mujoco.mjtDisableBit.mjDSBL_LIMIT)
    period = float(np.median(np.diff(time)))
    edge = max(1, int(1.0 / period))

    def torques(model: Any, q: Any, v: Any, a: Any) -> Any:
        data = mujoco.MjData(model)
        found = np.empty_like(q)
        for row in range(len(q)):
            data.qpos[:], data.qvel[:], data.qacc[:] = q[row], v[row], a[row]
            mujoco.mj_inverse(model, data)
            found[row] = data.qfrc_inverse
        return found

    def joint_parameter(name: str, what: str) -> Any:
        def modify(spec: Any, parameter: Any) -> None:
            if np.ndim(getattr(spec.joint(name), what)):
                # A polynomial in the speed; the linear term alone.
                getattr(spec.joint(name), what)[0] = parameter.value[0]
            else:
                setattr(spec.joint(name), what, parameter.value[0])

        return sysid.Parameter(f'{name}_{what}', _START[what], 0.0, _LARGEST[what],
                               modifier=modify)

    def inertia_parameter(model: Any, name: str) -> Any:
        made = sysid.body_inertia_param(spec, model, name, sysid.InertiaType.Pseudo)
        change = made.modifier

        def modify(spec: Any, parameter: Any) -> None:
            change(spec, parameter)
            # With the orientation NaN that the library sets, MuJoCo 4.0 compiles no inertia.
            spec.body(name).iquat[:] = 1.0, 0.0, 0.0, 0.0

        made.modifier = modify
        return made

    yield
    weights = butter(4, 2.0 * cutoff * period)
    smooth = filtfilt(*weights, position, axis=0)
    speed = np.gradient(smooth, period, axis=0)
    change = np.gradient(speed, period, axis=0)
    wanted = filtfilt(*weights, effort, axis=0)
    rows = slice(edge, -edge, max(1, len(smooth) // _ROWS))
    kinematics = smooth[rows], speed[rows], change[rows]
    model = spec.compile()
    parameters = sysid.ParameterDict()
    for index in range(1, model.nbody):
        parameters.add(inertia_parameter(model, model.body(index).name))
    for name in joints:
        for what in _START:
            parameters.add(joint_parameter(name, what))
    scale = wanted[rows].std(axis=0)

    def residual(x: Any, given: Any) -> Any:
        found = []
        for column in np.atleast_2d(x.T):
            given.update_from_vector(column)
            changed = sysid.apply_param_modifiers(given, spec)
            found.append(((torques(changed, *kinematics) - wanted[rows]) / scale).ravel())
        return [np.array(found).T if x.ndim > 1 else found[0]], None, None

    best, _ = sysid.optimize(parameters, residual, optimizer='mujoco', verbose=False,
                             max_iters=_ITERATIONS)
    yield
    yield {'torque': torques(sysid.apply_param_modifiers(best, spec), q, v, a)}


def idyntree(
    *, urdf: str, joints: Sequence[str], sensors: Sequence[str], q: Any, v: Any, a: Any,
    readings: Any,
) -> Iterator[Any]:
    """Estimate external wrenches by iDynTree (PyPI ``idyntree``), about the first links of parts.

    The parts of an arm lie between F/T sensors; smoothed motion and readings of one instant are
    given (Fumagalli et al., Autonomous Robots 33 (2012) 381, doi 10.1007/s10514-012-9291-2).
    Yields as for `process.run`.

    Args:
        urdf: URDF text with the payload; a fixed joint carries each sensor's link.
        joints: Names of the moving joints.
        sensors: Links that F/T sensors carry.
        q: Joint angles, shape (k, n) [rad].
        v: Joint velocities, shape (k, n) [rad/s].
        a: Joint accelerations, shape (k, n) [rad/s²].
        readings: Of all sensors, shape (k, s, 6) [N, N·m].

    """
    import idyntree.bindings as idt

    tree = ElementTree.fromstring(urdf)
    mounts = {child.get('link', ''): joint.get('name', '') for joint in tree.findall('joint')
              for child in joint.findall('child')}
    for link in sensors:
        sensor = ElementTree.SubElement(tree, 'sensor', name=link, type='force_torque')
        ElementTree.SubElement(sensor, 'parent', joint=mounts[link])
        about = ElementTree.SubElement(sensor, 'force_torque')
        ElementTree.SubElement(about, 'frame').text = 'child'
        ElementTree.SubElement(about, 'measure_direction').text = 'child_to_parent'
        ElementTree.SubElement(sensor, 'origin', rpy='0 0 0', xyz='0 0 0')
    loader = idt.ModelLoader()
    if not loader.loadReducedModelFromString(
            ElementTree.tostring(tree, encoding='unicode'),
            [*joints, *(mounts[link] for link in sensors)]):
        raise ValueError('iDynTree cannot load the robot description.')
    estimator = idt.ExtWrenchesAndJointTorquesEstimator()
    estimator.setModel(loader.model())
    model, own = estimator.model(), estimator.sensors()
    columns = [model.getJoint(model.getJointIndex(name)).getDOFsOffset() for name in joints]
    base = model.getLinkName(model.getDefaultBaseLink())
    root, gravity = model.getFrameIndex(base), idt.Vector3.FromPython([0.0, 0.0, -9.81])
    measured, unknowns = idt.SensorsMeasurements(own), idt.LinkUnknownWrenchContacts(model)
    for link in (base, *sensors):
        unknowns.addNewUnknownFullWrenchInFrameOrigin(model, model.getFrameIndex(link))
    places = [own.getSensorIndex(idt.SIX_AXIS_FORCE_TORQUE, link) for link in sensors]
    links = [model.getLinkIndex(link) for link in sensors]
    wrenches, torques = idt.LinkContactWrenches(model), idt.JointDOFsDoubleArray(model)

    def at(motion: Sequence[Any], rows: Any) -> Any:
        state = np.zeros((3, model.getNrOfDOFs()))
        state[:, columns] = motion
        estimator.updateKinematicsFromFixedBase(
            *(idt.VectorDynSize.FromPython(row) for row in state), root, gravity)
        for place, reading in zip(places, rows.tolist(), strict=True):
            measured.setMeasurement(
                idt.SIX_AXIS_FORCE_TORQUE, place, idt.Wrench.FromPython(reading))
        estimator.estimateExtWrenchesAndJointTorques(unknowns, measured, wrenches, torques)
        return [wrenches.contactWrench(link, 0).contactWrench.asVector().toNumPy()
                for link in links]

    yield
    found = np.array([at(motion, rows) for *motion, rows in zip(q, v, a, readings, strict=True)])
    yield
    yield found


def semidefinite(*, matrix: Any, wanted: Any, units: Any) -> Iterator[Any]:
    """Estimate a rigid body with a positive semidefinite pseudo-inertia by least squares.

    A semidefinite program (Wensing, Kim, Slotine, IEEE RA-L 3 (2018) 60, doi
    10.1109/LRA.2017.2729659) in PyPI's ``cvxpy``, solved by ``clarabel``. Yields as for
    `process.run`.

    Args:
        matrix: Weighted columns of the ten parameters and of biases, shape (k, 10 + m).
        wanted: Weighted measured values, shape (k,).
        units: Pseudo-inertia matrix of each unit parameter, shape (10, 4, 4).

    """
    import cvxpy

    yield
    # The same sum of squares from a few rows.
    basis, triangle = np.linalg.qr(matrix)
    size = np.linalg.norm(triangle, axis=0)
    unknown = cvxpy.Variable(matrix.shape[1])
    pseudo = cvxpy.Variable((4, 4), PSD=True)
    body = sum(unit * (unknown[k] / size[k]) for k, unit in enumerate(units))
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares((triangle / size) @ unknown - basis.T @ wanted)),
        [pseudo == body])
    problem.solve(solver='CLARABEL')
    yield
    yield {'value': unknown.value / size}
