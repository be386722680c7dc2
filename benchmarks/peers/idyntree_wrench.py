# SPDX-License-Identifier: Apache-2.0
"""External wrenches by iDynTree (PyPI ``idyntree``), imported in the environment of other tools.

It estimates them in each part of an arm between F/T sensors, from smoothed motion and readings of
one instant (Fumagalli et al., Autonomous Robots 33 (2012) 381, doi 10.1007/s10514-012-9291-2).
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def observe(
    *, urdf: str, joints: Sequence[str], sensors: Sequence[str], q: Any, v: Any, a: Any,
    readings: Any,
) -> Iterator[Any]:
    """Estimate the wrenches about the first links of the parts; yields as for `process.run`.

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
