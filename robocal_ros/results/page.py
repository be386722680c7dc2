# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML pages with plots, from the templates of the package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from robocal_ros import __version__
from robocal_ros.results import wording

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plural(number: int, word: str, words: str = '') -> str:
    """Return a number with its noun."""
    return f'{number} {word if number == 1 else words or word + "s"}'


@cache
def environment() -> Environment:
    """Return the environment of the templates, in which all text is escaped."""
    made = Environment(
        loader=PackageLoader('robocal_ros'), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True)
    made.filters.update(heading=wording.heading, plural=plural, setting=wording.setting)
    return made


def rendered(
    template: str, title: str, lead: str, plots: Sequence[go.Figure], **content: Any
) -> str:
    """Return a page.

    Args:
        template: Name of the template.
        title: Title.
        lead: Sentence below the title.
        plots: Plots in the order of their placeholders.
        **content: What the template shows.

    """
    # Templates without plots need no second for it.
    from plotly.offline import get_plotlyjs

    figures = json.dumps([json.loads(plot.to_json()) for plot in plots], ensure_ascii=False)
    return environment().get_template(template).render(
        title=title, lead=lead, version=__version__,
        written=datetime.now(timezone.utc).strftime('%d %B %Y, %H:%M UTC'),
        # "<" in a name could end the script element.
        figures=figures.replace('<', '\\u003c') if plots else '',
        plotly=get_plotlyjs() if plots else '', **content)
