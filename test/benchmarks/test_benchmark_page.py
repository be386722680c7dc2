# SPDX-License-Identifier: Apache-2.0
"""Bands of figures, and the page that is made from the results file."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.benchmark import Figure, Table, share_band
from benchmarks.page import Record, read_records, write_page, write_records
from robocal_ros.errors import FileFormatError

CONDITIONS = {'time': '2024-01-01T00:00:00', 'commit': 'abc', 'processor': 'any', 'cores': 2,
              'system': 'Linux', 'python': '3', 'taken': 3.0, 'seeds': 2, 'numpy': '2'}
RECORD = Record('Growth of time', 'A test.', CONDITIONS, (
    Figure('speed', 'time', 's', 1.0, 2.5, 2.0, band=(0.9, 1.1), reason='the clock is slow.'),
    Figure('speed', 'other', 's', 1.0, 1.0, 2.0)),
    (Table('Peers', ('tool', 'error'), (('ours', 1.23456), ('a|b', None))),),
    ('A remark.',))


def test_bands_of_shares_are_exact() -> None:
    """None of n: the upper end p solves (1 − p)^n = 0.025 (Clopper and Pearson)."""
    low, high = share_band(0, 100)
    assert low == 0.0
    assert (1.0 - high) ** 100 == pytest.approx(0.025)


def test_figures_of_cases_have_the_worst_on_the_side_of_the_limit() -> None:
    values = [1.0, 2.0, 9.0]
    assert Figure.over('a', 'b', 's', values, 5.0).met is False
    assert Figure.over('a', 'b', 's', values, 0.5, at_least=True).worst == 1.0
    share = Figure.share('a', 'found', 9, 10, 80.0)
    assert (share.median, share.met) == (90.0, True)


def test_page_is_made_from_the_results_file(tmp_path: Path) -> None:
    results, page = tmp_path / 'results.json', tmp_path / 'docs' / 'benchmarks.md'
    write_records(results, {'growth': RECORD})
    page.parent.mkdir()
    write_page(page, read_records(results))
    text = page.read_text(encoding='utf-8')
    assert '**1 of 2 limits are met.**' in text
    assert ('| **time** Missed: the clock is slow. | **1** | **0.9 to 1.1** | **2.5** | **≤ 2** '
            '| **s** |') in text
    assert '| other | 1 |  |  | ≤ 2 | s |' in text
    assert '| a\\|b |  |' in text
    assert '| ours | 1.23 |' in text
    assert '[Growth of time](#growth-of-time)' in text
    again = page.read_bytes()
    write_records(results, read_records(results))
    write_page(page, read_records(results))
    assert page.read_bytes() == again


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'results.json').write_text('{"growth": 3}', encoding='utf-8')
    with pytest.raises(FileFormatError, match='not a results file'):
        read_records(tmp_path / 'results.json')
    assert read_records(tmp_path / 'none.json') == {}
