# SPDX-License-Identifier: Apache-2.0
"""Iterators that work ahead in a thread, so that reading, computing and writing overlap.

NumPy and files release the interpreter while they work, so two cores are used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar('T')

_DEPTH = 4


def ahead(items: Generator[T, None, None]) -> Iterator[T]:
    """Yield the items of a generator that runs in a thread, up to four items ahead.

    Its errors are raised here; it is closed with this iterator.
    """
    with ThreadPoolExecutor(1) as thread:
        made = deque(thread.submit(next, items, None) for _ in range(_DEPTH))
        try:
            while (item := made.popleft().result()) is not None:
                made.append(thread.submit(next, items, None))
                yield item
        finally:
            thread.shutdown(cancel_futures=True)
            items.close()
