# SPDX-License-Identifier: Apache-2.0
"""Differences of two results, and which of them chance explains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.friction_results import friction_result, payload_result

from robocal_ros.cli.main import main
from robocal_ros.errors import ConfigurationError
from robocal_ros.results import CalibrationResult, comparison, write_result


def moved(result: CalibrationResult, name: str, shares: float) -> CalibrationResult:
    """Return a result with one value moved by a multiple of its standard deviation."""
    return replace(result, parameters=tuple(
        replace(item, value=item.value + shares * item.std) if item.name == name else item
        for item in result.parameters))


def test_a_large_difference_is_significant_and_a_small_one_is_not() -> None:
    first = payload_result()
    panel = comparison(first, moved(moved(first, 'mass', 8.0), 'com_x', 1.0))
    told = {row[0]: row[-1] for row in panel.rows}
    assert told['mass'] == 'significant'
    assert told['centre of mass x'] == 'within chance'
    assert not panel.passed
    assert panel.message.startswith('1 of ')


def test_chance_exceeds_the_limit_in_five_percent_of_all_comparisons() -> None:
    generator, first = np.random.default_rng(0), payload_result()
    names = [item.name for item in first.parameters if item.std]
    found = 0
    for _ in range(300):
        a, b = first, first
        for name in names:
            a, b = [moved(item, name, float(generator.normal())) for item in (a, b)]
        found += not comparison(a, b).passed
    assert 4 <= found <= 28


def test_results_of_different_kinds_or_frames_are_refused() -> None:
    with pytest.raises(ConfigurationError, match='different kinds'):
        comparison(payload_result(), friction_result())
    with pytest.raises(ConfigurationError, match='different frames'):
        comparison(payload_result(), replace(payload_result(), frame='other'))


def test_show_and_report_compare_two_files(tmp_path: Path, capsys) -> None:
    files = [str(tmp_path / f'{name}.yaml') for name in 'ab']
    for file, result in zip(
            files, (payload_result(), moved(payload_result(), 'com_z', 9.0)), strict=True):
        write_result(result, Path(file))
    assert main(['show', '--compare', *files]) == 0
    assert 'significant' in capsys.readouterr().out
    page = tmp_path / 'page.html'
    assert main(['report', '--compare', *files, '-o', str(page)]) == 0
    assert 'significant' in page.read_text(encoding='utf-8')
    assert main(['show', '--compare', files[0]]) == 2
    assert 'takes two results' in capsys.readouterr().err
