# SPDX-License-Identifier: Apache-2.0
"""The executables: one thin module for each node."""
