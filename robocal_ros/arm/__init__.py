# SPDX-License-Identifier: Apache-2.0
"""Motion of the arm: checks, controller client, waiting."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
