# SPDX-License-Identifier: Apache-2.0
"""Links, rotors and friction of the arm itself from a bag: `03_arm_from_a_bag.py [BAG]`.

The bag holds joint states with efforts of an exciting motion without load, and the robot's
description. `robocal estimate arm BAG` does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import mkdtemp

import simulated

from robocal_ros.messages import Bag, Selection, description_in
from robocal_ros.offline import OfflineEstimation
from robocal_ros.payload import ARM_IDENTIFICATION, PayloadParameters

folder = Path(mkdtemp())
if len(sys.argv) > 1:
    path = Path(sys.argv[1])
else:
    path = folder / 'bare_bag'
    simulated.write_bag(path, simulated.joint_states(*simulated.exciting_motion(3)))

# Results that are stored in this folder, such as drive gains, would be used.
values = PayloadParameters(tool_frame='tool0', results_dir=str(folder / 'results'))
with Bag(path) as bag:
    selection = Selection()
    outcome = OfflineEstimation(
        ARM_IDENTIFICATION, bag, values, description_in(bag, selection), selection).run()

result = outcome.result
print(f'Verdict: {result.verdict.value}. {" ".join(result.reasons)}')
print('Held-out torque, RMS [N·m]:')
for fit in result.validation:
    print(f'  {fit.what}: {fit.before:.2f}, unexplained {fit.after:.2f}')
