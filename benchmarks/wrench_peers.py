# SPDX-License-Identifier: Apache-2.0
"""Other estimators of external wrenches, on the samples of the observer.

iDynTree estimates them in each part of an arm between F/T sensors, from smoothed motion and
readings of one instant (Fumagalli et al., Autonomous Robots 33 (2012) 381,
doi 10.1007/s10514-012-9291-2).
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.robot import RigidBodyInertia


def with_payload(urdf: str, frame: str, load: RigidBodyInertia) -> str:
    """Return a URDF whose arm carries a body on a frame without inertia of its own."""
    tree = ElementTree.fromstring(urdf)
    link = next(item for item in tree.findall('link') if item.get('name') == frame)
    inertial = ElementTree.SubElement(link, 'inertial')
    ElementTree.SubElement(inertial, 'origin', xyz=' '.join(map(repr, load.com.tolist())))
    ElementTree.SubElement(inertial, 'mass', value=repr(load.mass))
    tensor = np.asarray(load.inertia)
    ElementTree.SubElement(inertial, 'inertia', {
        f'i{a}{b}': repr(float(tensor[i, j]))
        for (i, a), (j, b) in (((0, 'x'), (0, 'x')), ((0, 'x'), (1, 'y')), ((0, 'x'), (2, 'z')),
                               ((1, 'y'), (1, 'y')), ((1, 'y'), (2, 'z')), ((2, 'z'), (2, 'z')))})
    return ElementTree.tostring(tree, encoding='unicode')


class IdynTree:
    """iDynTree's estimator of external wrenches, called from Python."""

    def __init__(self, urdf: str, joints: Sequence[str], sensors: Sequence[str]) -> None:
        """Load the model.

        Args:
            urdf: URDF text; a fixed joint carries each sensor's link.
            joints: Names of the moving joints.
            sensors: Links that F/T sensors carry.

        Raises:
            ImportError: If iDynTree is not installed.

        """
        import idyntree.bindings as idt

        self._idt = idt
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
        names = [*joints, *(mounts[link] for link in sensors)]
        if not loader.loadReducedModelFromString(
                ElementTree.tostring(tree, encoding='unicode'), names):
            raise ValueError('iDynTree cannot load the robot description.')
        self._estimator = idt.ExtWrenchesAndJointTorquesEstimator()
        self._estimator.setModel(loader.model())
        model = self._estimator.model()
        self._count = model.getNrOfDOFs()
        offsets = {name: model.getJoint(model.getJointIndex(name)).getDOFsOffset()
                   for name in joints}
        self._columns = np.array([offsets[name] for name in joints])
        self._base = model.getFrameIndex(model.getLinkName(model.getDefaultBaseLink()))
        self._gravity = idt.Vector3.FromPython([0.0, 0.0, -9.81])
        self._measured = idt.SensorsMeasurements(self._estimator.sensors())
        self._unknowns = idt.LinkUnknownWrenchContacts(model)
        for link in (model.getLinkName(model.getDefaultBaseLink()), *sensors):
            self._unknowns.addNewUnknownFullWrenchInFrameOrigin(
                model, model.getFrameIndex(link))
        found = self._estimator.sensors()
        self._places = [found.getSensorIndex(idt.SIX_AXIS_FORCE_TORQUE, link)
                        for link in sensors]
        self._links = [model.getLinkIndex(link) for link in sensors]
        self._wrenches = idt.LinkContactWrenches(model)
        self._torques = idt.JointDOFsDoubleArray(model)

    def wrenches(self, q: Array, v: Array, a: Array, readings: Array) -> Array:
        """Return the external wrench on each part of the arm, about its first link's origin.

        Args:
            q: Joint angles, shape (n,) [rad].
            v: Joint velocities, shape (n,) [rad/s].
            a: Joint accelerations, shape (n,) [rad/s²].
            readings: Of each sensor, shape (k, 6) [N, N·m].

        """
        idt: Any = self._idt
        state = np.zeros((3, self._count))
        state[:, self._columns] = q, v, a
        self._estimator.updateKinematicsFromFixedBase(
            *(idt.VectorDynSize.FromPython(row) for row in state), self._base, self._gravity)
        for place, reading in zip(self._places, readings.tolist(), strict=True):
            self._measured.setMeasurement(
                idt.SIX_AXIS_FORCE_TORQUE, place, idt.Wrench.FromPython(reading))
        self._estimator.estimateExtWrenchesAndJointTorques(
            self._unknowns, self._measured, self._wrenches, self._torques)
        return np.array([self._wrenches.contactWrench(link, 0).contactWrench.asVector().toNumPy()
                         for link in self._links])
