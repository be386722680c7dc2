# SPDX-License-Identifier: Apache-2.0
"""Findings of a simulated fleet, in sentences and on the dashboard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.browser import Page
from support.fleet_bags import tried

from benchmarks.fleet_data import Event, SimulatedArm, estimates, fleet
from robocal_ros.cli.main import main
from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet.catalogue import REFUSED, Catalogue
from robocal_ros.fleet.dashboard import write_dashboard
from robocal_ros.fleet.review import Finding, Review, Subject, review

WEEKS = 40
EVIL = '<img src=x onerror="alert(1)">&\u2028'
EVENTS = {
    0: (Event('damage', 'joint_2', 20, 0.3),),
    1: (Event('wear', 'joint_4', 10, 0.9),),
    2: (Event('tool', '', 22, 2.0),),
    3: (Event('wrong_tool', '', 25, 2.0),),
    4: (Event('sensor', 'ft_wrist', 12, 15.0),),
    5: (Event('stiff', 'joint_6', 0, 1.5),),
}


def arms() -> list[SimulatedArm]:
    made = fleet(9, WEEKS, 5, incidents=0.0, lost=0.0)
    named = [replace(arm, events=EVENTS.get(i, ())) for i, arm in enumerate(made)]
    return [*named[:-1], replace(named[-1], name=f'{EVIL}_9', events=EVENTS[0])]


@pytest.fixture(scope='module')
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    folder = tmp_path_factory.mktemp('fleet')
    made = Catalogue(str(folder))
    for rows in estimates(arms()):
        # The fewest series that show the events.
        rows = rows.filter(pc.match_substring_regex(
            rows['parameter'], 'joint_[246].coulomb|mass|com_x|force_z'))
        made.add(rows)
    for week in range(30):
        made.add(tried(1.7e9 + week, REFUSED, bag=f'bags/{EVIL}/week_{week}', robot='arm_001',
                       reason=f"Bag 'week_{week}' has {week} gaps {EVIL}."))
    return made


@pytest.fixture(scope='module')
def found(catalogue: Catalogue) -> Review:
    return review(catalogue.query)


@pytest.fixture(scope='module')
def page(catalogue: Catalogue, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('page') / 'fleet.html'
    assert main(['fleet', 'dashboard', catalogue.output, '-o', str(path), '--robots', '4']) == 0
    return path


def changed(rows: pa.Table, **columns: Any) -> pa.Table:
    """Return rows of the catalogue with other columns."""
    for name, values in columns.items():
        index = rows.schema.get_field_index(name)
        kind = rows.schema.field(index)
        rows = rows.set_column(index, kind, pa.array(values, kind.type))
    return rows


def of(found: Review, robot: str) -> list[Finding]:
    return [item for item in found.findings if item.robot == robot]


def test_every_event_is_one_finding_with_its_part(found: Review) -> None:
    damaged, = of(found, 'arm_001')
    assert (damaged.kind, damaged.subject, damaged.part) == ('step', Subject.JOINT, 'joint_2')
    assert damaged.sentence.startswith('Friction of joint_2 rose: coulomb ')
    assert '%' in damaged.sentence
    assert len(damaged.notes) == 1
    worn = of(found, 'arm_002')
    assert {item.part for item in worn} == {'joint_4'}
    assert any(item.sentence.startswith('joint_4 wears: ') for item in worn)
    tool, = of(found, 'arm_003')
    assert (tool.subject, tool.urgent) == (Subject.TOOL, False)
    assert tool.sentence.startswith('The tool or load was changed: mass +99.6')
    wrong, = of(found, 'arm_004')
    assert (wrong.kind, wrong.subject) == ('outlier', Subject.TOOL)
    assert any(item.subject is Subject.SENSOR and 'drifts: force z +' in item.sentence
               for item in of(found, 'arm_005'))
    stiff, = of(found, 'arm_006')
    assert (stiff.kind, stiff.part) == ('sibling', 'joint_6')
    assert not of(found, 'arm_007')
    assert not of(found, 'arm_008')


def test_urgent_findings_come_first(found: Review) -> None:
    urgency = [item.urgent for item in found.findings]
    assert urgency == sorted(urgency, reverse=True)


@pytest.mark.parametrize('lost', [0.0, 15.0])
def test_biases_of_a_payload_are_of_the_sensor_and_may_jump_between_recordings(
    tmp_path: Path, lost: float
) -> None:
    arm = arms()[7]
    made = Catalogue(str(tmp_path))
    draw = np.random.default_rng(1)
    for rows in estimates([arm]):
        rows = rows.filter(pc.equal(rows['parameter'], 'mass'))
        # Zeroed with another tool orientation each time, or once by mistake.
        value = draw.normal(0.0, 20.0 if not lost else 0.01, len(rows))
        value[20:] += lost
        made.add(changed(rows, parameter=['bias_fz'] * len(rows), unit=['N'] * len(rows),
                         quantity=['bias_fz'] * len(rows), value=value,
                         std=np.full(len(rows), 0.05)))
    found = review(made.query).findings
    assert [(item.kind, item.subject, item.part) for item in found] == (
        [('step', Subject.SENSOR, 'wrist')] if lost else [])
    assert not any('K may explain' in note and '000 K' in note
                   for item in found for note in item.notes)


def test_failed_results_are_left_out_and_settings_may_explain_a_step(tmp_path: Path) -> None:
    arm = arms()[0]
    rows, = estimates([replace(arm, name='lone')])
    rows = rows.filter(pc.equal(rows['parameter'], 'joint_2.coulomb_forward'))
    times = pc.rank(rows['time']).to_numpy()
    made = Catalogue(str(tmp_path))
    made.add(changed(
        rows, settings_sha256=np.where(times > 20, 'new', 'old'),
        verdict=np.where(times == 5, 'fail', 'pass'), temperature=[None] * len(rows)))
    seen = review(made.query)
    assert len(seen.tracks[0].history.time) == WEEKS - 1
    assert seen.left_out['of results that failed their checks'] == 1
    notes = ' '.join(note for item in seen.findings for note in item.notes)
    assert 'Settings, URDF or software of the estimates changed' in notes
    assert 'No temperature was recorded: a difference of ' in notes


def test_the_page_is_complete_bounded_and_escaped(page: Path) -> None:
    text = page.read_text(encoding='utf-8')
    assert text.count('Plotly.react') == 1
    read = Page(text)
    words = read.text
    # Names and reasons from data are text.
    assert f'{EVIL}_9' in words
    assert not read.named('img')
    # Nothing is loaded from elsewhere.
    assert not read.named('link')
    assert all('src' not in attributes for attributes in read.named('script'))
    # Of six robots with attention and two more with findings, four are drawn.
    assert '3 more robots with findings are not drawn' in words
    plots = [item for item in read.named('div') if item.get('class') == 'plot']
    assert 0 < len(plots) <= 4 * 4 + 6
    # Each plot has a name, a sentence and a table.
    identifiers = {item.get('id') for item in read.named('p')}
    assert all(item['aria-label'] and item['aria-describedby'] in identifiers for item in plots)
    assert len(read.named('details')) == len(plots) + 1
    assert words.count('Values as a table') == len(plots)
    # Thirty reasons that differ in numbers are one.
    assert '30 failures' in words
    assert '10 older ones are not listed' in words
    headings = [tag for tag, _ in read.found if tag in ('h1', 'h2', 'h3')]
    assert headings[0] == 'h1'
    assert headings.count('h1') == 1


def test_an_unknown_robot_is_refused(catalogue: Catalogue, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no robot 'arm_9\\*'"):
        write_dashboard(catalogue.output, tmp_path / 'page.html', robot='arm_9*')
    with pytest.raises(SystemExit, match='2'):
        main(['fleet', 'dashboard', catalogue.output, '--robots', '0'])


@pytest.mark.parametrize('width', [390, 1280])
def test_the_page_fits_the_screen_and_draws_every_plot(
    browser: Any, page: Path, width: int
) -> None:
    view = browser.new_page(viewport={'width': width, 'height': 800})
    errors: list[str] = []
    view.on('pageerror', lambda error: errors.append(str(error)))
    view.goto(page.as_uri(), timeout=120_000)
    view.locator('.plot .main-svg').last.wait_for(timeout=120_000)
    plots = view.locator('.plot').count()
    assert view.locator('.plot .xy').count() >= plots
    assert view.evaluate('document.documentElement.scrollWidth') <= width
    assert not errors
    view.close()
