# SPDX-License-Identifier: Apache-2.0
"""Plots of benchmarks: lines with bands and verdicts over linear or logarithmic axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import scipy.stats

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 210, 34, 48
_COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000',
            '#8c564b', '#7f7f7f')
_PASS = 'pass'


@dataclass(frozen=True)
class Line:
    """One line of a plot.

    Attributes:
        name: Name in the legend.
        x: Abscissas.
        y: Ordinates; None leaves a gap.
        low: Lower ends of the bands; empty without bands.
        high: Upper ends.
        verdicts: Verdict at each point; empty without verdicts. Filled markers stand for `pass`,
            hollow ones for other verdicts.

    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    verdicts: Sequence[str] = ()


@dataclass(frozen=True)
class Plot:
    """A plot.

    Attributes:
        name: Name of its file.
        title: Title.
        x: Label of the abscissa, with its unit.
        y: Label of the ordinate, with its unit.
        lines: Lines.
        log_x: True for a logarithmic abscissa.
        log_y: True for a logarithmic ordinate.
        level: Ordinate of a dashed line, for example a limit; None for none.

    """

    name: str
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    level: float | None = None


class _Axis:
    """Maps values to pixels, and chooses ticks."""

    def __init__(self, values: list[float], log: bool, begin: float, end: float) -> None:
        self.log = log
        self._to: Callable[[float], float] = math.log10 if log else float
        low, high = (self._to(f(values)) for f in (min, max))
        margin = 0.04 * (high - low) or 0.5
        self._low, self._high = low - margin, high + margin
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (self._to(value) - self._low) / (self._high - self._low)
        return round(self._begin + share * (self._end - self._begin), 1)

    def ticks(self) -> list[float]:
        """Return values for labels: decades, with 2 and 5 if there are few, or round numbers."""
        if self.log:
            factors = (1, 2, 5) if self._high - self._low < 2.5 else (1,)
            return [factor * 10.0**power
                    for power in range(math.floor(self._low), math.ceil(self._high) + 1)
                    for factor in factors
                    if self._low <= power + math.log10(factor) <= self._high]
        rough = (self._high - self._low) / 6.0
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(f * size for f in (1, 2, 5, 10) if f * size >= rough)
        first = math.ceil(self._low / step)
        return [step * k for k in range(first, math.floor(self._high / step) + 1)]


def svg(plot: Plot) -> str:
    """Return a plot as the text of an SVG file.

    Raises:
        ValueError: It has no line, or a value that its logarithmic axis cannot show.

    """
    ordinates = [value for line in plot.lines
                 for value in (*line.y, *line.low, *line.high) if value is not None]
    if plot.level is not None:
        ordinates.append(plot.level)
    x = _Axis([value for line in plot.lines for value in line.x], plot.log_x,
              _LEFT, _WIDTH - _RIGHT)
    y = _Axis(ordinates or [1.0], plot.log_y, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_LEFT, 20, plot.title, 'font-size="14" font-weight="bold"'),
        *_frame(plot, x, y),
    ]
    for number, line in enumerate(plot.lines):
        parts += _line(line, _COLOURS[number % len(_COLOURS)], x, y)
        parts += _entry(line, _COLOURS[number % len(_COLOURS)], _TOP + 8 + 18 * number)
    if any(line.verdicts for line in plot.lines):
        below = _TOP + 20 + 18 * len(plot.lines)
        for row, words in enumerate(('● verdict pass', '○ other verdict')):
            parts.append(_text(_WIDTH - _RIGHT + 14, below + 18 * row, words))
    return '\n'.join([*parts, '</svg>']) + '\n'


def _text(x: float, y: float, words: str, more: str = '') -> str:
    return f'<text x="{x}" y="{y}" {more}>{escape(words)}</text>'


def _frame(plot: Plot, x: _Axis, y: _Axis) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for tick in x.ticks():
        at = x.at(tick)
        yield f'<path d="M{at} {_TOP}V{bottom}" stroke="#e4e4e4"/>'
        yield _text(at, bottom + 16, f'{tick:g}', 'text-anchor="middle"')
    for tick in y.ticks():
        at = y.at(tick)
        yield f'<path d="M{_LEFT} {at}H{right}" stroke="#e4e4e4"/>'
        yield _text(_LEFT - 6, at + 4, f'{tick:g}', 'text-anchor="end"')
    yield (f'<path d="M{_LEFT} {_TOP}H{right}V{bottom}H{_LEFT}Z" stroke="#444" fill="none"/>')
    if plot.level is not None:
        at = y.at(plot.level)
        yield f'<path d="M{_LEFT} {at}H{right}" stroke="#444" stroke-dasharray="6 4"/>'
    middle = (_LEFT + right) / 2
    yield _text(middle, _HEIGHT - 12, plot.x, 'text-anchor="middle"')
    yield _text(0, 0, plot.y, f'text-anchor="middle" transform="translate(16 '
                              f'{(_TOP + bottom) / 2}) rotate(-90)"')


def _line(line: Line, colour: str, x: _Axis, y: _Axis) -> Iterator[str]:
    if len(line.low):
        edge = [f'{x.at(a)},{y.at(b)}' for ends, step in ((line.high, 1), (line.low, -1))
                for a, b in list(zip(line.x, ends, strict=True))[::step] if b is not None]
        yield f'<polygon points="{" ".join(edge)}" fill="{colour}" fill-opacity="0.15"/>'
    path, pen = '', 'M'
    for a, b in zip(line.x, line.y, strict=True):
        if b is None:
            pen = 'M'
            continue
        path += f'{pen}{x.at(a)} {y.at(b)}'
        pen = 'L'
    yield f'<path d="{path}" stroke="{colour}" stroke-width="1.6" fill="none"/>'
    verdicts = line.verdicts or [_PASS] * len(line.x)
    for a, b, verdict in zip(line.x, line.y, verdicts, strict=True):
        if b is not None:
            fill = colour if verdict == _PASS else '#fff'
            yield (f'<circle cx="{x.at(a)}" cy="{y.at(b)}" r="3.4" fill="{fill}" '
                   f'stroke="{colour}" stroke-width="1.4"/>')


def _entry(line: Line, colour: str, at: float) -> Iterator[str]:
    left = _WIDTH - _RIGHT + 14
    yield f'<path d="M{left} {at - 4}h18" stroke="{colour}" stroke-width="3"/>'
    yield _text(left + 24, at, line.name)


def exponent(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Fit y ∝ x^p to at least three positive values; return p and half its 95 % band."""
    found = scipy.stats.linregress(np.log(x), np.log(y))
    return float(found.slope), float(scipy.stats.t.ppf(0.975, len(x) - 2) * found.stderr)
