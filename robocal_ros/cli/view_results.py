# SPDX-License-Identifier: Apache-2.0
"""Results in the browser: stored ones with their plots, and estimates that a procedure forms."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robocal_ros.errors import RobocalError
from robocal_ros.results import (
    CalibrationResult,
    Series,
    environment,
    figure,
    read_result,
    wording,
)

# Contrast with the white page of at least 4.5.
GOOD, FAIR, BAD = '#20702f', '#8a5300', '#b92323'
RED = (185, 35, 35)
_VERDICTS = {'pass': GOOD, 'fail': BAD}
_FAILED = '.failed.yaml'
# Interval at which the folder is looked at [s], and how many of its results are listed.
_PERIOD, _MOST = 2.0, 50
_ASPECT = 0.75
# Value in a status whose name ends with its unit, with or without its interval.
_NUMBER = re.compile(r'([-+]?[\d.]+(?:e[-+]?\d+)?)(?: ± ([\d.]+(?:e[-+]?\d+)?).*)?')
_NO_ESTIMATES = ('remaining [s]',)
# Most points of a plot that forms, interval at which it is drawn anew [s], and how many times as
# uncertain as the newest an estimate may be: the first ones are of any size.
_POINTS, _REDRAWN, _UNCERTAIN = 500, 0.5, 5.0


def html(part: str, *values: object) -> str:
    """Return a part of a panel from its template, in which all text is escaped."""
    return str(getattr(environment().get_template('view.html').module, part)(*values))


def table(result: CalibrationResult) -> str:
    """Return verdict and values of a result as HTML."""
    verdict = result.verdict.value
    return html('result', _VERDICTS.get(verdict, FAIR), verdict, wording.title_of(result),
                () if verdict == 'pass' else result.reasons,
                [(item.name, wording.reading(item)) for item in result.parameters
                 if item.value is not None])


class ResultsPanel:
    """A choice of a stored result, its values, and a choice of its plots."""

    def __init__(self, gui: Any) -> None:
        """Add the panel, which appears when there are results.

        Args:
            gui: Panels of the page.

        """
        self._gui = gui
        self._found: dict[str, Path] = {}
        self._result: CalibrationResult | None = None
        self._shown, self._drawn, self._looked = '', '', 0.0
        self._plot: Any = None
        self._folder = gui.add_folder('results', visible=False, expand_by_default=False)
        with self._folder:
            self._choice = gui.add_dropdown('Result', ('',))
            self._table = gui.add_html('')
            self._series = gui.add_dropdown('Plot', ('',), visible=False)

    def refresh(self, folder: Path) -> None:
        """Show what is chosen of a folder's results, at first the newest.

        Args:
            folder: Folder of the results.

        """
        now = time.monotonic()
        if now >= self._looked + _PERIOD:
            self._looked = now
            self._list(folder)
        if self._found and self._choice.value != self._shown:
            self._shown = self._choice.value
            self._show(self._found[self._shown])
        if self._result is not None and self._series.value != self._drawn:
            self._drawn = self._series.value
            self._draw(self._result)

    def _list(self, folder: Path) -> None:
        """List the results, newest first; choose the newest if it is new."""
        paths = [*folder.glob('history/*.yaml'), *folder.glob(f'*{_FAILED}')]
        stamps = sorted(((path.stat().st_mtime, path) for path in paths), reverse=True)[:_MOST]
        found = {f'{time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamp))} '
                 f'{path.name.partition(".")[0].partition("-")[0].replace("_", " ")}'
                 f'{", failed" if path.name.endswith(_FAILED) else ""}': path
                 for stamp, path in stamps}
        if found == self._found:
            return
        newest = list(found)[:1] != list(self._found)[:1]
        self._found, chosen = found, self._choice.value
        self._choice.options = tuple(found) or ('',)
        self._choice.value = chosen if chosen in found and not newest else next(iter(found), '')
        self._folder.visible = bool(found)

    def _show(self, path: Path) -> None:
        try:
            self._result = result = read_result(path)
        except RobocalError as error:
            self._result = None
            self._table.content = html('paragraph', f'The result is not readable: {error}')
            self._series.visible = False
            return
        self._table.content = table(result)
        self._drawn = ''
        self._series.options = tuple(series.title for series in result.series) or ('',)
        self._series.visible = bool(result.series)

    def _draw(self, result: CalibrationResult) -> None:
        if self._plot is not None:
            self._plot.remove()
            self._plot = None
        for series in result.series:
            if series.title == self._drawn:
                with self._folder:
                    self._plot = self._gui.add_plotly(figure(series), aspect=_ASPECT)


class FormingPlot:
    """Estimates of a running procedure over time: those with the unit of the newest one."""

    def __init__(self, gui: Any, folder: Any) -> None:
        """Draw nothing yet.

        Args:
            gui: Panels of the page.
            folder: The panel in which the plot appears.

        """
        self._gui, self._folder = gui, folder
        self._readings: dict[str, deque[tuple[float, dict[str, tuple[float, float]]]]] = {}
        self._newest, self._drawn = '', 0.0
        self._plot: Any = None

    def clear(self) -> None:
        """Begin anew."""
        self._readings.clear()
        self._newest = ''
        if self._plot is not None:
            self._plot.remove()
            self._plot = None

    def take(self, values: Mapping[str, str]) -> None:
        """Take the values of a status by name; what is no estimate is passed over."""
        found: dict[str, dict[str, tuple[float, float]]] = {}
        for name, text in values.items():
            label, bracket, unit = name.partition(' [')
            number = _NUMBER.fullmatch(text)
            if bracket and number and name not in _NO_ESTIMATES:
                found.setdefault(f'[{unit}', {})[label] = float(number[1]), float(number[2] or 0.0)
        now = time.monotonic()
        for unit, own in found.items():
            readings = self._readings.setdefault(unit, deque(maxlen=_POINTS))
            if not readings or readings[-1][1] != own:
                readings.append((now, own))
                self._newest = unit
        newest = self._readings.get(self._newest, deque())
        if len(newest) > 1 and now >= self._drawn + _REDRAWN:
            self._drawn = now
            self._draw(newest)

    def _draw(self, readings: Collection[tuple[float, dict[str, tuple[float, float]]]]) -> None:
        stamps = np.array([stamp for stamp, _ in readings])
        curves = {}
        for name in dict.fromkeys(name for _, own in readings for name in own):
            value, half = np.array([own.get(name, (np.nan, np.nan)) for _, own in readings]).T
            curves[name] = np.where(half <= _UNCERTAIN * half[-1], value, np.nan)
        drawing = figure(Series(
            'estimates', 'time [s]', self._newest, stamps - stamps[0], curves))
        if self._plot is None:
            with self._folder:
                self._plot = self._gui.add_plotly(drawing, aspect=_ASPECT)
        else:
            self._plot.figure = drawing
