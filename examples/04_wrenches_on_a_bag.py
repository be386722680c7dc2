# SPDX-License-Identifier: Apache-2.0
"""External forces and contacts in a bag, offline: `04_wrenches_on_a_bag.py [BAG]`.

The sensor is tared over the first rest in the bag. `robocal estimate wrench BAG` does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import simulated

from robocal_ros.messages import Bag, Selection, WrenchSamples, description_in
from robocal_ros.wrench import WrenchFollowing, WrenchParameters


def simulated_bag(path: Path) -> Path:
    """Write a motion without a tool, with a push of 20 N for half a second."""
    motion = simulated.exciting_motion(1)
    free = simulated.readings(
        *motion, tool=simulated.RigidBodyInertia(0.0, np.zeros(3), np.zeros((3, 3))))
    wrench = free.wrench.copy()
    force, point = np.array([0.0, 20.0, 0.0]), np.array([0.0, 0.0, 0.05])
    wrench[(free.time > 6.0) & (free.time < 6.5)] += [*force, *np.cross(point, force)]
    simulated.write_bag(path, simulated.joint_states(*motion),
                        WrenchSamples(free.frame, free.time, wrench))
    return path


folder = Path(mkdtemp())
bag_path = Path(sys.argv[1]) if len(sys.argv) > 1 else simulated_bag(folder / 'push_bag')
values = WrenchParameters(sensor_frames=['ft_wrist'], observe_torque=False,
                          results_dir=str(folder / 'results'))
with Bag(bag_path) as bag:
    selection = Selection()
    following = WrenchFollowing(bag, values, description_in(bag, selection), selection)
    outcome = following.run(folder / 'wrenches.csv')

for link in outcome.digest.links:
    print(f'{link.link}: known {100 * link.share:.0f} % of the time, '
          f'RMS {link.rms:.2f} N, largest {link.peak:.1f} N')
for contact in outcome.digest.episodes:
    print(f'Contact on {contact.link} from {contact.begin:.2f} to {contact.end:.2f} s, '
          f'up to {contact.peak:.1f} N')
print(f'Series: {folder / "wrenches.csv"}')
