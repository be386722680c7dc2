# SPDX-License-Identifier: Apache-2.0
"""The report in a browser: accessible, offline, and no wider than a phone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.browser import serious
from support.result_examples import example, failing

from robocal_ros.results.report import Advice, Panel, Step, report_html
from robocal_ros.results.result import CalibrationResult, Parameter

LONG = ' '.join(['ros2 service call', 9 * '/with_a_long_name', '"{mass: 2.0}"'])
STEP = Step('Do this.', (('by this', LONG),), '--- a\n+++ b\n-<old/>\n+<new/>')
MANY = Step('Do one of these.', tuple((f'driver {i}', LONG) for i in range(4)))


def results() -> list[CalibrationResult]:
    many = tuple(Parameter(f'joint_1.value_{i}', 'N·m', float(i), 0.1) for i in range(50))
    open_ = replace(example(), kind='friction', validation=(),
                    inputs=(example().as_input(),), parameters=(*example().parameters, *many))
    return [example(), failing(), open_]


def page_of(name: str) -> str:
    if name == 'one':
        return report_html(results()[:1], advice=[Advice((STEP, MANY))])
    return report_html(
        results(), panels=[Panel(
            'Pushes', True, 'It was pushed.', (('push', False),), (('first',),))],
        advice=[Advice((MANY,)), Advice((STEP,)), Advice(stale=('Its input was replaced.',))])


@pytest.fixture(scope='module', params=['one', 'session'])
def visited(
    browser: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Any, list[str]]]:
    """A loaded page with everything unfolded, and what it asked for or complained about."""
    file: Path = tmp_path_factory.mktemp('pages') / 'report.html'
    file.write_text(page_of(request.param), encoding='utf-8')
    page = browser.new_page()
    told: list[str] = []
    page.on('request', lambda asked: told.append(asked.url))
    page.on('pageerror', lambda error: told.append(str(error)))
    page.on('console', lambda message: told.append(message.text))
    page.goto(file.as_uri(), timeout=120_000)
    page.locator('.plot svg').first.wait_for(timeout=120_000)
    page.evaluate('document.querySelectorAll("details").forEach(item => { item.open = true; })')
    told.remove(file.as_uri())
    yield page, told
    page.close()


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_axe_finds_nothing_serious_and_nothing_is_loaded(visited: Any, scheme: str) -> None:
    page, told = visited
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({'width': 1280, 'height': 800})
    assert serious(page) == []
    assert told == []


def test_axe_finds_what_is_wrong(browser: Any) -> None:
    page = browser.new_page()
    page.set_content('<title>x</title><p style="color: #999">pale</p><img src="data:,">')
    assert {item.partition(' ')[0] for item in serious(page)} >= {'image-alt', 'color-contrast'}
    page.close()


def test_a_phone_scrolls_in_one_direction(visited: Any) -> None:
    page, _ = visited
    page.set_viewport_size({'width': 360, 'height': 800})
    assert page.evaluate('document.documentElement.scrollWidth') == 360
    # Wide tables scroll by themselves; that the keyboard reaches them is a rule of axe-core.
    assert page.evaluate('[...document.querySelectorAll(".scroll")].some('
                         'item => item.scrollWidth > item.clientWidth)')
    assert serious(page) == []


def test_headings_are_in_order_and_plots_have_a_description(visited: Any) -> None:
    page, _ = visited
    levels = page.evaluate(
        '[...document.querySelectorAll("h1, h2, h3, h4, h5")].map(item => +item.tagName[1])')
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.get_by_role('region').count() == levels.count(2)
    assert 'torque [N·m] over joint_2 [rad], 12 points' in page.evaluate(
        'document.getElementById(document.querySelector(".plot")'
        '.getAttribute("aria-describedby")).textContent')


def test_on_paper_everything_is_unfolded_and_fits(visited: Any) -> None:
    page, _ = visited
    page.set_viewport_size({'width': 700, 'height': 800})
    page.evaluate('document.querySelectorAll("details").forEach(item => { item.open = false; })')
    page.emulate_media(media='print')
    page.evaluate('dispatchEvent(new Event("beforeprint"))')
    assert page.evaluate('document.querySelectorAll("details:not([open])").length') == 0
    assert page.evaluate('document.documentElement.scrollWidth') <= 700
    page.emulate_media(media='screen')
