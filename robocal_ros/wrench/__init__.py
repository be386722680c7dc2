# SPDX-License-Identifier: Apache-2.0
"""External-wrench observation."""
