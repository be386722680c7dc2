# SPDX-License-Identifier: Apache-2.0
"""The demo: the nodes calibrate the simulated arm; results against its hidden truth."""
