# SPDX-License-Identifier: Apache-2.0
"""What the demo shows, one module for each capability."""
