# SPDX-License-Identifier: Apache-2.0
"""Generators that work ahead: the same items in the same order, errors, and an end."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from robocal_ros.messages.bag import ahead


def counted(closed: list[int], last: int = 50) -> Generator[int, None, None]:
    try:
        yield from range(1, last)
        raise ValueError('no more')
    finally:
        closed.append(threading.get_ident())


def noted(made: list[int], closed: list[int]) -> Generator[int, None, None]:
    for number in ahead(counted(closed)):
        made.append(number)
        yield number


def test_items_come_in_order_and_errors_after_them() -> None:
    seen, closed = [], list[int]()
    with pytest.raises(ValueError, match='no more'):
        list(ahead(noted(seen, closed)))
    assert seen == list(range(1, 50))
    assert closed != [threading.get_ident()]


def test_it_is_closed_with_its_reader_and_runs_four_ahead_at_most() -> None:
    closed = list[int]()
    made = list[int]()
    before = threading.active_count()
    reader = ahead(noted(made, closed))
    assert next(reader) == 1
    assert closed == []
    reader.close()
    assert len(closed) == 1
    assert len(made) <= 6
    assert threading.active_count() == before
