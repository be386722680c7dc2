# SPDX-License-Identifier: Apache-2.0
"""A suite of ROS 2 lifecycle nodes with which a robot arm measures itself."""

import os

__version__ = '0.1.0'

# The matrices are small: threads of the linear algebra multiply the processor time, and save none.
# Libraries read this when they are loaded; what a user sets stays.
for _name in ('OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'MKL_NUM_THREADS'):
    os.environ.setdefault(_name, '1')
