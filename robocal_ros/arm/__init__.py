# SPDX-License-Identifier: Apache-2.0
"""The one way to move the arm."""
