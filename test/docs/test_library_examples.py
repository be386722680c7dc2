# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/: each runs by itself and finds the truth that it simulates."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from robocal_ros.results import CalibrationResult, Verdict

EXAMPLES = ROOT / 'examples'
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a script by its number; returns its names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def by_number(number: int, *arguments: str) -> dict[str, Any]:
        (script,) = EXAMPLES.glob(f'{number:02}_*.py')
        monkeypatch.setattr(sys, 'argv', [str(script), *arguments])
        return runpy.run_path(str(script), run_name='__main__')

    return by_number


def within(result: CalibrationResult, name: str, truth: float) -> bool:
    """Return whether the truth is in the 99.9 % interval."""
    low, high = result.parameter(name).interval(0.999)  # type: ignore[misc]
    return low <= truth <= high


def test_the_scripts_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:2]) for path in EXAMPLES.glob('[0-9]*.py'))
    assert numbers == list(range(1, len(numbers) + 1))


def test_payload_from_arrays(run: Run) -> None:
    found = run(1)
    result, tool = found['result'], found['simulated'].TOOL
    assert result.verdict is Verdict.PASS
    for name, truth in zip(('mass', 'com_x', 'com_y', 'com_z'), (tool.mass, *tool.com),
                           strict=True):
        assert within(result, name, truth), name


def test_friction_from_arrays(run: Run) -> None:
    found = run(2)
    result, truth = found['result'], found['simulated']
    assert result.verdict is Verdict.PASS
    for side in ('forward', 'backward'):
        assert within(result, f'joint_6.coulomb_{side}', truth.COULOMB)
        assert within(result, f'joint_6.viscous_{side}', truth.VISCOUS)


def test_arm_from_a_bag(run: Run) -> None:
    result = run(3)['result']
    assert result.verdict is Verdict.PASS
    assert all(fit.after < 0.3 * fit.before for fit in result.validation)


def test_wrenches_on_a_bag(run: Run) -> None:
    found = run(4)
    (contact,) = found['outcome'].digest.episodes
    assert (contact.begin, contact.end) == pytest.approx((6.0, 6.5), abs=0.05)
    assert contact.peak == pytest.approx(20.0, abs=2.0)
    assert (found['folder'] / 'wrenches.csv').exists()


def test_reading_results(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(1)
    capsys.readouterr()
    result = run(5, 'payload.yaml')['result']
    said = capsys.readouterr().out
    assert all(f'{parameter.name}: ' in said for parameter in result.parameters)
    assert 'NOT met' not in said


def test_comparing_results(run: Run) -> None:
    run(1)
    assert run(6, 'payload.yaml', 'payload.yaml')['chance'] == 1.0
    assert run(6)['chance'] < 0.001
