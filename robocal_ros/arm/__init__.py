# SPDX-License-Identifier: Apache-2.0
"""Motion of the arm: checks, controller client, waiting."""
