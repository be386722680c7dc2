# SPDX-License-Identifier: Apache-2.0
"""Plots of the report: measurements as markers, models as lines and intervals as bands."""

from __future__ import annotations

import itertools

import numpy as np
import plotly.graph_objects as go

from robocal_ros.arrays import Array
from robocal_ros.results import wording
from robocal_ros.results.page import plural
from robocal_ros.results.result import Series, rms

# Okabe and Ito's palette, distinguishable with colour blindness.
_COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f')
LAYOUT = {
    'template': 'none', 'margin': {'l': 60, 'r': 10, 't': 8, 'b': 45}, 'hovermode': 'closest',
    'legend': {'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'}}
"""What all plots have in common."""

_RESIDUAL = 'residual'
# Resolution of figures in a description, relative to the largest.
_FINE = 0.01


def figure(series: Series) -> go.Figure:
    """Draw the curves of a series.

    A curve ``residual`` beside others has an axis of its own, below them. A curve's name may
    have a suffix after a comma: ``x, held out`` is drawn with hollow markers in the colour of
    ``x``.
    """
    split = _RESIDUAL in series.curves and len(series.curves) > 1
    subjects = dict.fromkeys(map(_subject, series.curves))
    colours = dict(zip(subjects, itertools.cycle(_COLOURS), strict=False))
    drawing = go.Figure([_trace(series, name, y, colours[_subject(name)])
                         for name, y in series.curves.items()])
    drawing.update_layout(
        **LAYOUT, showlegend=len(drawing.data) > 1,
        xaxis={'title': {'text': series.x_label}, 'anchor': 'y2' if split else 'y'},
        yaxis={'title': {'text': series.y_label}},
    )
    if split:
        _, bracket, unit = series.y_label.partition('[')
        drawing.update_traces(selector={'name': _RESIDUAL}, yaxis='y2', mode='markers',
                              marker={'size': 4, 'opacity': 0.8, 'symbol': 'circle'})
        drawing.update_layout(
            yaxis={'domain': [0.4, 1.0]},
            yaxis2={'domain': [0.0, 0.3], 'title': {'text': f'{_RESIDUAL}<br>{bracket}{unit}'}})
    if series.x_label == 'posture':
        drawing.update_xaxes(dtick=1 if len(series.x) <= 16 else None)
    return drawing


def description(series: Series) -> str:
    """Return what a plot shows in words, for those who cannot see it."""
    parts = [f'{series.y_label} over {series.x_label}, {plural(len(series.x), "point")}'
             + (f' from {_span(series.x)}' if len(series.x) else '')]
    for name, y in series.curves.items():
        if len(y):
            size = rms(y)
            parts.append(f'{name}: {_span(y)}, root mean square '
                         f'{wording.rounded(size, _FINE * size)}')
    return '; '.join(parts) + '.'


def _span(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    resolution = _FINE * max(abs(low), abs(high))
    return f'{wording.rounded(low, resolution)} to {wording.rounded(high, resolution)}'


def _subject(name: str) -> str:
    return name.partition(',')[0]


def _trace(series: Series, name: str, y: Array, colour: str) -> go.Scatter:
    shared = {'x': series.x, 'y': y, 'name': name}
    if name.startswith('measured') or (
            series.y_label.startswith('residual') and not name.startswith(('+', '-'))):
        hollow = ',' in name
        return go.Scatter(
            mode='markers', **shared,
            marker={'color': colour, 'size': 8 if len(series.x) < 40 else 5, 'opacity': 0.8,
                    'symbol': 'circle-open' if hollow else 'circle',
                    'line': {'width': 1.5 if hollow else 0, 'color': colour}},
        )
    # Neighbours are far apart along the whole curve.
    if len(y) > 10 and float(np.abs(np.diff(y)).sum()) > 8.0 * float(np.ptp(y)):
        # Two branches in one curve (both directions): a line would jump between them.
        return go.Scatter(mode='markers', **shared,
                          marker={'color': colour, 'size': 7, 'symbol': 'line-ew-open',
                                  'line': {'width': 2}})
    return go.Scatter(mode='lines', **shared, line={'color': colour, 'width': 2})
