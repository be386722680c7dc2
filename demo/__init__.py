# SPDX-License-Identifier: Apache-2.0
"""The demo: the simulated arm measured by the nodes, compared with its hidden truth."""
