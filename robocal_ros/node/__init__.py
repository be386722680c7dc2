# SPDX-License-Identifier: Apache-2.0
"""Base class and services shared by the lifecycle nodes."""
