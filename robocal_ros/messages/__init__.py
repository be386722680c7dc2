# SPDX-License-Identifier: Apache-2.0
"""Messages, live or from a bag: decoding, stamps, recording."""
