# SPDX-License-Identifier: Apache-2.0
"""Base class and services shared by the lifecycle nodes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
