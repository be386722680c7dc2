# SPDX-License-Identifier: Apache-2.0
"""What every capability declares, and estimation from bags."""
