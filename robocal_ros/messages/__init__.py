# SPDX-License-Identifier: Apache-2.0
"""Messages, live or from a bag: decoding, stamps, recording."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
