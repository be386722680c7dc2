# SPDX-License-Identifier: Apache-2.0
"""Files: results as YAML, reports as HTML."""
