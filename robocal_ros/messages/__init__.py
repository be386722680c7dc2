# SPDX-License-Identifier: Apache-2.0
"""The one way from a message, live or from a bag, to arrays."""
