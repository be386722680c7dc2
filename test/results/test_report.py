# SPDX-License-Identifier: Apache-2.0
"""Differences of two results, and which of them chance explains."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from support.browser import Page
from support.fixtures import Call
from support.friction_results import friction_result, payload_result
from support.result_examples import example, failing

from robocal_ros.errors import ConfigurationError
from robocal_ros.results import CalibrationResult, comparison, write_result
from robocal_ros.results.report import Advice, Panel, Step, description, figure, report_html
from robocal_ros.results.result import Check, Input, Series


def row_of(page: Page, name: str) -> list[str]:
    return next(row for row in page.rows if row and row[0].endswith(name))


def figures_in(html: str) -> list[dict]:
    found = re.search(r'id="figures">(.*?)</script>', html, re.S)
    return json.loads(found[1]) if found else []


def test_page_is_well_formed_and_needs_no_other_file() -> None:
    page = Page(report_html([example(), failing()]))
    assert not page.loads


def test_every_series_is_drawn_once() -> None:
    html = report_html([example(), failing()])
    assert len(figures_in(html)) == 2
    assert html.count('class="plot"') == 2
    assert html.count('plotly.js v') >= 1


def test_page_without_plots_carries_no_library() -> None:
    assert len(report_html([replace(example(), series=())])) < 50_000


def test_no_results_is_a_page_too() -> None:
    assert 'no results' in Page(report_html([])).text


def test_values_have_intervals_and_units() -> None:
    row = row_of(Page(report_html([example()])), 'com_z')
    assert row[1:4] == ['12.30', '0.21', 'mm']


def test_verdict_comes_with_its_reasons_failures_first() -> None:
    checks = (*example().checks, *failing().checks)
    text = Page(report_html([replace(example(), checks=checks)])).text
    assert 'Fail: do not use these values' in text
    assert text.index('The interval is too wide.') < text.index('The interval is ±0.71 mm.')
    assert 'Pass: every check was met' in Page(report_html([example()])).text
    unseen = replace(example(), validation=())
    assert 'Not evaluated' in Page(report_html([unseen])).text


def test_parameters_without_value_are_told_with_their_reason() -> None:
    assert 'inertia_xx (at rest)' in Page(report_html([example()])).text


def test_fit_and_held_out_residuals_are_shown() -> None:
    rows = [row for row in Page(report_html([example()])).rows if row[0] == 'torque of joint_2']
    assert [row[1:3] for row in rows] == [['1.23', '0.100'], ['1.10', '0.120']]


def test_losses_are_named_only_when_there_are_some() -> None:
    assert row_of(Page(report_html([example()])), 'dropped') == ['dropped', '3']
    without = replace(example(), counts={'samples': 9, 'dropped': 0})
    assert 'No message was lost' in Page(report_html([without])).text


def test_what_was_assumed_is_shown_apart_from_other_settings() -> None:
    result = replace(example(), inputs=(), settings={
        'known_mass': 2.0, 'gain_std': 0.1, 'poses': 14, 'sag_std': 0.003, 'dwell': 2.0})
    shown, details = report_html([result]).split('<details><summary>Counts')
    assumed = Page(shown[shown.index('<h3>Assumed, not measured'):shown.rindex('</div>') + 6])
    assert assumed.rows == [
        ['known mass [kg]', '2'], ['gain std', '0.1'], ['sag std [rad]', '0.003']]
    assert 'poses' in details
    assert 'dwell [s]' in details
    assert 'known mass' not in details
    assert 'Assumed' not in report_html([replace(result, settings={})])


def test_steps_come_before_values_with_command_and_changes() -> None:
    step = Step('Do it.', (('by', 'robocal apply "a b"'),), '--- a\n+++ b\n-<old/>\n+<new/>\n+x')
    page = Page(report_html([example()], advice=[Advice((step,))]))
    order = [page.text.index(part) for part in (
        'Pass: every check', 'mass 0.6667 ± 0.0078 kg', 'What to do now', 'Do it.',
        'robocal apply "a b"', '2 lines added, 1 removed', 'Values')]
    assert order == sorted(order)


def test_a_stale_result_is_not_shown_as_good() -> None:
    html = report_html([example()], advice=[Advice(stale=('Its input was replaced.',))])
    assert 'class="verdict not_evaluated"' in html
    assert 'Stale: Its input was replaced.' in Page(html).text


def test_inputs_are_linked_to_their_results() -> None:
    used = replace(example(), kind='friction')
    result = replace(example(), inputs=(used.as_input(), Input('arm', 'unloaded, bag', 'f00')))
    page = report_html([used, result])
    (row,) = re.findall(r'<tr><th scope="row" class="words"><a href="#result-1">[^<]*</a></th>'
                        r'<td class="words">(<a.*?)</tr>', page)
    assert '<a href="#result-0">Friction, two plane</a><br>arm: unloaded, bag' in row
    assert 'How the results' not in report_html([example(), failing()])


def test_a_clock_that_counts_from_a_start_is_no_date() -> None:
    assert '2023-11-14 22:13 UTC' in report_html([example()])
    assert 'at 29 s of its clock' in report_html([replace(example(), time=29.0)])


def test_a_plot_is_described_by_its_figures() -> None:
    angle = np.linspace(-1.0, 1.0, 5)
    text = description(Series('t', 'q [rad]', 'torque [N·m]', angle, {'fit': 2.0 * angle}))
    assert text == ('torque [N·m] over q [rad], 5 points from −1.000 to 1.000; '
                    'fit: −2.000 to 2.000, root mean square 1.414.')


@pytest.mark.parametrize('evil', [
    '</script><b onclick="x">&', '<script>alert(1)</script>', '"><img src=x onerror=alert(1)>'])
def test_texts_cannot_break_the_page(evil: str) -> None:
    good = example()
    result = replace(
        good, method=evil, frame=evil, source=evil, software_version=evil,
        settings={evil: evil, 'known_mass': evil}, counts={evil: 1},
        robot=replace(good.robot, name=evil, joint_names=(evil, f'{evil}2')),
        parameters=tuple(replace(item, name=f'{evil}.{item.name}', unit=evil, note=evil)
                         for item in good.parameters),
        covariance_names=tuple(f'{evil}.{name}' for name in good.covariance_names),
        fit=tuple(replace(item, what=evil, unit=evil) for item in good.fit),
        inputs=(Input('payload', evil, evil),),
        checks=(Check(evil, False, 1.0, 0.0, evil, evil),),
        series=(replace(good.series[0], title=evil, x_label=evil, y_label=evil,
                        curves={evil: good.series[0].x}),),
    )
    panel = Panel(evil, True, evil, ((evil, False),), ((evil,),))
    told = Advice((Step(evil, ((evil, evil),), f'+{evil}'),), (evil,))
    html = report_html([result, result], title=evil, panels=[panel], advice=[told, told])
    Page(html)
    page = html.replace(get_plotlyjs(), '')
    # Tags and attributes: neither may open; as text they are escaped.
    assert not re.search(r'<(b onclick|img|script>alert)', page)
    assert figures_in(html)[0]['data'][0]['name'] == evil


def series(x_label: str, y_label: str, **curves: np.ndarray) -> Series:
    named = {name.replace('__', ', ').replace('_', ' '): y for name, y in curves.items()}
    x = np.linspace(1.0, 2.0, len(next(iter(named.values()))))
    return Series('title', x_label, y_label, x, named)


def test_measured_is_dots_and_fit_is_a_line() -> None:
    smooth = np.linspace(0.0, 1.0, 30)
    drawn = figure(series('q [rad]', 'torque [N·m]', measured=smooth, fit=smooth))
    assert [trace.mode for trace in drawn.data] == ['markers', 'lines']


def test_residuals_are_dots_and_held_out_ones_hollow_in_the_same_colour() -> None:
    drawn = figure(series('posture', 'residual [N]', x=np.zeros(5), x__held_out=np.ones(5)))
    fitted, held_out = drawn.data
    assert fitted.mode == held_out.mode == 'markers'
    assert (fitted.marker.symbol, held_out.marker.symbol) == ('circle', 'circle-open')
    assert fitted.marker.color == held_out.marker.color


def test_residuals_beside_others_have_an_axis_of_their_own() -> None:
    smooth = np.linspace(0.0, 1.0, 30)
    drawn = figure(series('block', 'torque [N·m]', measured=smooth, residual=0.01 * smooth))
    assert [trace.yaxis for trace in drawn.data] == [None, 'y2']
    assert drawn.layout.yaxis2.title.text == 'residual<br>[N·m]'
    assert drawn.layout.yaxis2.domain[1] < drawn.layout.yaxis.domain[0]


def test_limits_of_residuals_are_lines() -> None:
    drawn = figure(Series('t', 'speed [rad/s]', 'residual [N·m]', np.arange(12.0), {
        'measured minus fit': np.zeros(12), '+ 1.96 σ of the run': np.ones(12)}))
    assert [trace.mode for trace in drawn.data] == ['markers', 'lines']


def test_curve_with_two_branches_is_not_joined_across_them() -> None:
    branches = np.tile([1.0, -1.0], 20)
    drawn = figure(series('q [rad]', 'torque [N·m]', fit=branches))
    assert drawn.data[0].mode == 'markers'


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


def test_show_and_report_compare_two_files(tmp_path: Path, call: Call) -> None:
    files = [str(tmp_path / f'{name}.yaml') for name in 'ab']
    for file, result in zip(
            files, (payload_result(), moved(payload_result(), 'com_z', 9.0)), strict=True):
        write_result(result, Path(file))
    assert 'significant' in call('show', '--compare', *files)
    page = tmp_path / 'page.html'
    call('report', '--compare', *files, '-o', page)
    assert 'significant' in page.read_text(encoding='utf-8')
    # Before any table.
    assert call('show', '--compare', files[0], code=2).startswith('--compare takes two results')
