# SPDX-License-Identifier: Apache-2.0
"""Identification of an arm by MuJoCo's system identification (``mujoco.sysid``).

Its parameters (pseudo-inertia of each link, rotor inertia, damping and dry friction of each joint)
and its optimiser, on the residual of MuJoCo's inverse dynamics: an arm that is driven by measured
torques alone leaves its path within a second. This module is imported in the environment of the
other tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_ROWS = 600
_ITERATIONS = 30
_LARGEST = {'armature': 20.0, 'damping': 200.0, 'frictionloss': 100.0}
_START = {'armature': 0.5, 'damping': 5.0, 'frictionloss': 5.0}


def identify(
    *, urdf: str, joints: Sequence[str], time: Any, position: Any, effort: Any, q: Any, v: Any,
    a: Any, cutoff: float, **_: Any,
) -> Iterator[Any]:
    """Identify an arm, and predict; arguments as for FIGAROH, yields as for `process.run`."""
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
