# SPDX-License-Identifier: Apache-2.0
"""Values, error bars, covariance and verdict of a result: `05_reading_results.py [RESULT]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np

from robocal_ros.results import read_result

if len(sys.argv) < 2:
    # It writes payload.yaml.
    runpy.run_path(str(Path(__file__).with_name('01_payload_from_arrays.py')))
result = read_result(Path(sys.argv[1] if len(sys.argv) > 1 else 'payload.yaml'))

print(f'{result.kind} by {result.method}, {result.robot.name}: {result.verdict.value}')
for parameter in result.parameters:
    interval = parameter.interval(0.999)
    if parameter.value is None or interval is None:
        print(f'{parameter.name}: {parameter.state.value}: {parameter.note}')
    else:
        print(f'{parameter.name}: {parameter.value:.5g} {parameter.unit}, std '
              f'{parameter.std:.2g}, 99.9 % in {interval[0]:.5g} … {interval[1]:.5g}')

for check in result.checks:
    print(f'{"met" if check.passed else "NOT met"}, {check.question or "general"}: '
          f'{check.name}: {check.value:.3g} of {check.limit:.3g} {check.unit}')

rows = [result.covariance_names.index(name) for name in result.covariance_names
        if name.startswith('com_')]
variance, axes = np.linalg.eigh(result.covariance[np.ix_(rows, rows)])
if rows:
    print('Axes of the ellipsoid of the centre, one standard deviation [mm]:',
          (1e3 * np.sqrt(variance)).round(3))
    print('Worst direction:', axes[:, -1].round(2), 'in', result.frame)
