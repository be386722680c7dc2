# SPDX-License-Identifier: Apache-2.0
"""Plots of a result: measurements as markers, models as lines, intervals as bands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from robocal_ros.core.arrays import Array
from robocal_ros.core.result import Series

# Okabe and Ito's colours, which people with colour-blind eyes can tell apart.
_COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f')
_UPPER, _LOWER = '95 % upper', '95 % lower'
_SETTLED = 0.5


def figure(series: Series) -> go.Figure:
    """Draw the curves of a series.

    A curve's name may carry a remark after a comma: ``x, held out`` is drawn with hollow
    markers in the colour of ``x``; ``x, 95 % upper`` and ``x, 95 % lower`` as a band about it.
    """
    counted = series.x_label == 'samples'
    colours = dict(zip(_subjects(series), _cycle(), strict=False))
    drawing = go.Figure([
        *_bands(series, colours),
        *(_trace(series, name, y, colours[_subject(name)])
          for name, y in series.curves.items() if _remark(name) not in (_UPPER, _LOWER)),
    ])
    drawing.update_layout(
        template='none',
        margin={'l': 60, 'r': 10, 't': 8, 'b': 45},
        showlegend=len(drawing.data) > 1,
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        hovermode='closest',
        xaxis={'title': {'text': series.x_label}, 'type': 'log' if counted else 'linear',
               'dtick': 1 if counted else None},
        yaxis={'title': {'text': series.y_label},
               'range': _settled_range(series) if counted else None},
    )
    if series.x_label == 'posture':
        drawing.update_xaxes(dtick=1 if len(series.x) <= 16 else None)
    return drawing


def _subject(name: str) -> str:
    return name.partition(',')[0]


def _remark(name: str) -> str:
    return name.partition(',')[2].strip()


def _subjects(series: Series) -> list[str]:
    return list(dict.fromkeys(_subject(name) for name in series.curves))


def _cycle() -> Iterator[str]:
    while True:
        yield from _COLOURS


def _bands(series: Series, colours: dict[str, str]) -> Iterator[go.Scatter]:
    """Yield the outlines of each band: the lower one, then the upper one filled down to it."""
    for subject, colour in colours.items():
        lower = series.curves.get(f'{subject}, {_LOWER}')
        upper = series.curves.get(f'{subject}, {_UPPER}')
        if lower is None or upper is None:
            continue
        outline = {'x': series.x, 'mode': 'lines', 'line': {'width': 0}, 'hoverinfo': 'skip',
                   'showlegend': False}
        yield go.Scatter(y=lower, **outline)
        red, green, blue = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
        yield go.Scatter(y=upper, fill='tonexty', fillcolor=f'rgba({red},{green},{blue},0.18)',
                         **outline)


def _trace(series: Series, name: str, y: Array, colour: str) -> go.Scatter:
    shared = {'x': series.x, 'y': y, 'name': name}
    if _is_measured(series, name):
        hollow = bool(_remark(name))
        return go.Scatter(
            mode='markers', **shared,
            marker={'color': colour, 'size': 8 if len(series.x) < 40 else 5, 'opacity': 0.8,
                    'symbol': 'circle-open' if hollow else 'circle',
                    'line': {'width': 1.5 if hollow else 0, 'color': colour}},
        )
    if _jumps(y):
        # Two branches in one curve (there and back): a line would dash to and fro.
        return go.Scatter(mode='markers', **shared,
                          marker={'color': colour, 'size': 7, 'symbol': 'line-ew-open',
                                  'line': {'width': 2}})
    return go.Scatter(mode='lines', **shared, line={'color': colour, 'width': 2})


def _is_measured(series: Series, name: str) -> bool:
    return name.startswith('measured') or series.y_label.startswith('residual')


def _jumps(y: Array) -> bool:
    """Tell whether neighbouring points lie far apart all along the curve."""
    return len(y) > 10 and float(np.abs(np.diff(y)).sum()) > 8.0 * float(np.ptp(y))


def _settled_range(series: Series) -> list[float] | None:
    """Return the range of the ordinate once an estimate has settled; its start is off scale."""
    late = slice(int(_SETTLED * len(series.x)), None)
    curves = [y[late] for y in series.curves.values()]
    if not curves or not len(curves[0]):
        return None
    low, high = min(y.min() for y in curves), max(y.max() for y in curves)
    margin = 0.08 * (high - low) or 1.0
    return [float(low - margin), float(high + margin)]
