# SPDX-License-Identifier: Apache-2.0
"""Dashboard of a fleet as one self-contained HTML page: what needs attention comes first.

The page stays bounded for any number of robots: robots with findings are drawn, others are
counted, and every cut says what is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from robocal_ros.errors import ConfigurationError
from robocal_ros.files import write_output
from robocal_ros.fleet import review
from robocal_ros.fleet.catalogue import Catalogue, utc
from robocal_ros.results import LAYOUT, Z95, Parameter, grouped, plural, rendered, spread, wording

_LISTED, _MATRIX, _FAMILIES, _COMPARED, _FAILED, _REASONS = 40, 60, 6, 60, 20, 12
# Figures of one robot.
_FIGURES = 4
_BLUE, _ORANGE, _GREEN, _GREY = '#0072b2', '#d55e00', '#009e73', '#7f7f7f'
_PALE_GREEN = 'rgba(0,158,115,0.18)'


def write_dashboard(
    output: str, path: Path, *, robot: str = '*', robots: int = 12
) -> review.Review:
    """Write the dashboard of a catalogue.

    Args:
        output: Output folder of the fleet.
        path: The HTML file.
        robot: Pattern of the names of the robots.
        robots: Largest number of robots drawn in detail.

    Returns:
        The findings.

    Raises:
        ConfigurationError: If the catalogue cannot be read or has no such robot, or the page
            cannot be written.

    """
    query = Catalogue(output).query
    facts = {name: query(sql, [robot]) for name, sql in (
        ('robots', _ROBOTS), ('reasons', _REASON_COUNTS), ('failures', _FAILURES))}
    if not facts['robots']:
        raise ConfigurationError(
            f"The catalogue in '{output}' has no robot '{robot}'. Name the output folder of "
            'robocal fleet estimate, and a robot of it.')
    found = review.review(query, robot)
    # The urgent ones are the first.
    urgent = [item for item in found.findings if item.urgent]
    noticed = found.findings[len(urgent):]
    ranked = list(dict.fromkeys(item.robot for item in found.findings))
    shown = [_robot(name, found) for name in ranked[:robots]]
    siblings, left = _siblings(found)
    known = {row['robot']: row for row in facts['robots']}
    # Those with findings first.
    order = [*ranked, *sorted(known.keys() - {*ranked},
                              key=lambda name: (-known[name]['bags'], name))]
    drawings = [*(item for own in shown for item in own['drawings']), *siblings]
    write_output(path, rendered(
        'fleet.html', 'Fleet', _introduction(facts['robots'], urgent),
        [item.figure for item in drawings], urgent=urgent, noticed=noticed,
        drawn=ranked[:robots], left_out=ranked[robots:], known=known, order=order,
        subjects=list(review.Subject), most=_MATRIX, complete=len(ranked) <= _MATRIX,
        by_place=grouped(found.findings, lambda item: (item.robot, item.subject)),
        robots=shown, siblings=siblings, siblings_left=left, drawings=drawings, facts=facts,
        review=found, listed=_LISTED, day=review.day,
        shown_reasons=[tuple(row.values()) for row in facts['reasons'][:_REASONS]],
        shown_failures=[tuple(row.values()) for row in facts['failures']],
        unused=[f'{number} {reason}' for reason, number in found.left_out.items() if number],
    ), 'dashboard')
    return found


_ROBOTS = """
WITH good AS (
    SELECT robot, count(DISTINCT result) AS results, min(time) AS oldest, max(time) AS newest
    FROM results GROUP BY robot),
bad AS (SELECT robot, count(DISTINCT bag) AS bags FROM failures GROUP BY robot)
SELECT robot, coalesce(results, 0) AS results, oldest, newest, coalesce(bags, 0) AS bags
FROM good FULL JOIN bad USING (robot) WHERE robot GLOB ? ORDER BY robot
"""
# Reasons of one kind differ in numbers and names.
_REASON_COUNTS = r"""
SELECT any_value(reason) AS reason, count(*) AS count, count(DISTINCT robot) AS robots
FROM failures WHERE robot GLOB ?
GROUP BY outcome, regexp_replace(reason, '''[^'']*''|[0-9]+', '', 'g')
ORDER BY count DESC, reason
"""
_FAILURES = f"""
SELECT bag, coalesce(nullif(robot, ''), '–') AS robot, coalesce(nullif(kind, ''), '–') AS kind,
    reason
FROM failures WHERE robot GLOB ?
ORDER BY tried DESC, bag, failures.kind LIMIT {_FAILED}
"""


_Table = tuple[str, Sequence[tuple[str, str]], Sequence[Sequence[Any]]]
"""Caption, headings with their looks, and rows."""


@dataclass(frozen=True, eq=False)
class _Drawing:
    """A figure with its alternatives: a sentence and a table."""

    title: str
    described: str
    figure: go.Figure
    table: _Table


def _introduction(robots: Sequence[Mapping[str, Any]], urgent: Sequence[review.Finding]) -> str:
    results = sum(row['results'] for row in robots)
    times = [row[key] for row in robots for key in ('oldest', 'newest') if row[key]]
    span = (f' from {review.day(min(times).timestamp())} to {review.day(max(times).timestamp())}'
            if times else '')
    needing = len({item.robot for item in urgent})
    state = ('No robot needs attention.' if not needing else
             f'{plural(needing, "robot needs", "robots need")} attention.')
    return f'{state} {plural(len(robots), "robot")}, {plural(results, "result")}{span}.'


# ---------------------------------------------------------------------------- one robot


def _robot(name: str, found: review.Review) -> dict[str, Any]:
    own = [item for item in found.findings if item.robot == name]
    # The clearest series of each finding first, then further ones.
    ranks = zip_longest(*(item.tracks for item in own))
    tracks = [track for track in dict.fromkeys(chain(*ranks)) if track is not None]
    return {'name': name, 'findings': own, 'rest': len(tracks[_FIGURES:]),
            'urgent': any(item.urgent for item in own),
            'drawings': [_drawn(track) for track in tracks[:_FIGURES]]}


def _drawn(track: review.Track) -> _Drawing:
    unit, factor = wording.handy(track.unit)
    return _Drawing(f'{wording.described(track.parameter)}, {wording.heading(track.kind)}',
                    _described(track, unit, factor), _course(track, unit, factor),
                    _values(track, unit, factor))


def _described(track: review.Track, unit: str, factor: float) -> str:
    course, last, time = track.course, track.course.segments[-1], track.history.time
    changes = ', '.join(f'{change.kind} found on {review.day(float(time[change.alarm]))}'
                        for change in course.changes) or 'no change'
    level = wording.reading(Parameter('', track.unit, last.level, last.std)).text
    warmth = (f' at {course.reference:.0f} °C' if np.isfinite(course.reference) else
              ', temperature unknown')
    return (f'{plural(len(time), "recording")}; {changes}; level in the end '
            f'{level}{warmth}; scatter between recordings '
            f'{wording.rounded(float(f"{factor * last.scatter:.2g}"))} {unit}'.rstrip() + '.')


def _dates(seconds: Iterable[float]) -> list[str]:
    return [f'{utc(value):%Y-%m-%d %H:%M}' for value in seconds]


def _course(track: review.Track, unit: str, factor: float) -> go.Figure:
    """Draw estimates with intervals, the course at the reference temperature, and changes."""
    history, course = track.history, track.course
    dates = _dates(history.time)
    single = {item.index for item in course.outliers}
    symbols = ['x' if i in single else 'circle' for i in range(len(dates))]
    colours = [_ORANGE if i in single else _BLUE for i in range(len(dates))]
    drawing = go.Figure()
    for number, segment in enumerate(course.segments):
        rows = np.arange(segment.start, segment.stop)
        if len(rows) < 2:
            continue
        years = (history.time[rows] - history.time[rows[-1]]) / (365.25 * 86400.0)
        line = factor * (segment.level + segment.rate * years)
        half = factor * Z95 * np.hypot(segment.std, segment.rate_std * years)
        x = [dates[i] for i in rows]
        # Forth along the upper end of the interval, and back along the lower one.
        drawing.add_trace(go.Scatter(
            x=x + x[::-1], y=np.concatenate((line + half, (line - half)[::-1])), mode='lines',
            line={'width': 0}, fill='toself', fillcolor=_PALE_GREEN, hoverinfo='skip',
            showlegend=False))
        drawing.add_trace(go.Scatter(
            x=x, y=line, mode='lines', name='course', legendgroup='course', showlegend=not number,
            line={'color': _GREEN, 'width': 2}))
    if np.isfinite(history.temperature).any() and any(
            segment.coefficient for segment in course.segments):
        drawing.add_trace(go.Scatter(
            x=dates, y=factor * course.corrected, mode='markers', name='at one temperature',
            marker={'color': _GREEN, 'size': 5, 'symbol': 'diamond-open'}))
    drawing.add_trace(go.Scatter(
        x=dates, y=factor * history.value, mode='markers', name='estimate',
        error_y={'type': 'data', 'array': factor * Z95 * history.std, 'thickness': 1,
                 'width': 0, 'color': _BLUE},
        marker={'color': colours, 'symbol': symbols, 'size': 6}))
    for number, change in enumerate(course.changes):
        middle = dates[change.index]
        drawing.add_vrect(x0=dates[max(change.first - 1, 0)], x1=dates[change.last],
                          fillcolor=_ORANGE, opacity=0.15, line_width=0)
        drawing.add_vline(x=middle, line={'color': _ORANGE, 'width': 1.5, 'dash': 'dash'})
        drawing.add_annotation(x=middle, y=1, yref='paper', text=change.kind, showarrow=False,
                               xanchor='right', xshift=-4, yanchor='top', yshift=-14 * number)
    return drawing.update_layout(
        **LAYOUT, xaxis={'type': 'date'},
        yaxis={'title': {'text': f'{track.name} [{unit or "1"}]'}})


def _values(track: review.Track, unit: str, factor: float) -> _Table:
    history, course = track.history, track.course
    single = {item.index for item in course.outliers}
    marks = {change.index: f'{change.kind} begins' for change in course.changes}
    rows = []
    for i, date in enumerate(_dates(history.time)):
        half = factor * Z95 * float(history.std[i])
        warm = history.temperature[i]
        rows.append((
            date[:10], wording.rounded(factor * float(history.value[i]), half),
            wording.rounded(half, half), f'{warm:.1f}' if np.isfinite(warm) else '–',
            wording.rounded(factor * float(course.corrected[i]), half),
            'deviates' if i in single else marks.get(i, '')))
    reference = (f'At {course.reference:.0f} °C' if np.isfinite(course.reference)
                 else 'At one temperature')
    return (
        f'{wording.described(track.parameter)} of {track.robot} [{unit or "1"}]',
        (('Date', 'nowrap'), ('Value', 'number'), ('± (95 %)', 'number'), ('°C', 'number'),
         (reference, 'number'), ('', '')), rows)


# ------------------------------------------------------------------------ comparisons


def _siblings(found: review.Review) -> tuple[list[_Drawing], int]:
    """Return robots against each other, for parameters in which one differs, and the rest."""
    differing = {item.tracks[0] for item in found.findings if item.kind == 'sibling'}
    chosen = [(f'{wording.described(parameter)}, {wording.heading(kind)}', members, flagged)
              for (_, kind, _, parameter), members in review.families(found.tracks).items()
              if (flagged := {track.robot for track in members if track in differing})]
    return [_compared(*item) for item in chosen[:_FAMILIES]], len(chosen[_FAMILIES:])


def _compared(title: str, members: Sequence[review.Track], flagged: set[str]) -> _Drawing:
    level, deviation = review.levels_of(members)
    unit, factor = wording.handy(members[0].unit)
    order = np.argsort(level)
    # Of many robots, those that differ and an even choice of the others.
    chosen = set(order[spread(len(order), _COMPARED)].tolist()) | {
        i for i, track in enumerate(members) if track.robot in flagged}
    shown = [i for i in order.tolist() if i in chosen]
    names = [members[i].robot for i in shown]
    value, half = factor * level[shown], factor * Z95 * deviation[shown]
    colours = [_ORANGE if name in flagged else _BLUE for name in names]
    drawing = go.Figure(go.Scatter(
        x=value, y=names, mode='markers', showlegend=False,
        marker={'color': colours, 'size': 8,
                'symbol': ['diamond' if name in flagged else 'circle' for name in names]},
        error_x={'type': 'data', 'array': half, 'thickness': 1, 'width': 0, 'color': _GREY}))
    drawing.update_layout(
        **LAYOUT, xaxis={'title': {'text': f'[{unit or "1"}]'}},
        yaxis={'type': 'category', 'automargin': True, 'nticks': 15})
    table = (f'{title} [{unit or "1"}]', (
        ('Robot', 'nowrap'), ('Value', 'number'), ('± (95 %)', 'number'), ('', '')),
        [(name, wording.rounded(float(number), float(width)),
          wording.rounded(float(width), float(width)), 'differs' if name in flagged else '')
         for name, number, width in zip(names, value, half, strict=True)])
    left = len(members) - len(shown)
    described = (f'{plural(len(members), "robot")}; {", ".join(sorted(flagged))} '
                 f'{"differs" if len(flagged) == 1 else "differ"} (diamonds).'
                 + (f' {left} {"is" if left == 1 else "are"} not drawn.' if left else ''))
    return _Drawing(title, described, drawing, table)
