# SPDX-License-Identifier: Apache-2.0
"""Identification of an arm by FIGAROH (PyPI ``figaroh``), through its documented base class.

Base parameters, viscous and dry friction, rotor inertia and offset of each joint by weighted least
squares on filtered samples. This module is imported in the environment of the other tools.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_DECIMATION = 10


def identify(
    *, urdf: str, joints: Sequence[str], time: Any, position: Any, effort: Any, q: Any, v: Any,
    a: Any, cutoff: float, **_: Any,
) -> Iterator[Any]:
    """Identify an arm, and predict; yields as for `process.run`.

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
