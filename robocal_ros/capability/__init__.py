# SPDX-License-Identifier: Apache-2.0
"""Declaration of capabilities, and estimation from bags."""
