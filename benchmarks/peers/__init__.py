# SPDX-License-Identifier: Apache-2.0
"""Other methods on the same samples: open tools, textbook methods, and the product's.

Each method runs in a process of its own (`process`), where its time is measured.
"""
