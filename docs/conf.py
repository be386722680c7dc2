# SPDX-License-Identifier: Apache-2.0
"""Configuration of Sphinx: `sphinx-build -W docs build/docs`, or rosdoc2.

The pages are written for GitHub too, so that this file adapts them: index.md is the README at the
root of the repository, README.md of this folder is the navigation, and links out of this folder
lead to the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

project = 'robocal_ros'
author = 'robocal_ros maintainers'
project_copyright = author
html_title = project
html_theme = 'furo'
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon']
# Shapes and units stand in the text; types would lengthen every signature to several lines.
autodoc_typehints = 'none'
napoleon_use_ivar = True
maximum_signature_line_length = 99
autodoc_default_options = {'members': True, 'imported-members': True}
# rosdoc2 adds pages in reStructuredText of its own, which this site has as Markdown.
source_suffix = {'.md': 'markdown'}
exclude_patterns = ['README.md', 'standard_docs', 'user_docs']
myst_enable_extensions = ['dollarmath', 'html_image']
myst_heading_anchors = 4
# Browsers draw MathML by themselves; MathJax would be fetched from the internet.
html_math_renderer = 'mathml'

_REPOSITORY = 'https://github.com/robocal-ros/robocal_ros/blob/main'
_LINK = re.compile(r'\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)')
_API = ('payload', 'friction', 'compliance', 'leveling', 'wrench', 'offline', 'results', 'robot',
        'messages', 'estimation')
_SECTION = re.compile(r'^## (.+)\n((?:(?!^## ).*\n)*)', re.M)


def relinked(text: str, folder: str) -> str:
    """Return a page with its links to files as links within the site or to the repository.

    Args:
        text: The page.
        folder: Its folder in the repository, to which the links are relative.

    """
    def relink(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if not target.startswith('docs/'):
            target = f'{_REPOSITORY}/{target}'
        return f'[{link[1]}]({target.removeprefix("docs/")}'

    return _LINK.sub(relink, text)


def navigation(text: str) -> str:
    """Return the sections of the folder's README.md as hidden tables of contents."""
    parts = []
    for title, section in _SECTION.findall(text):
        pages = '\n'.join(re.findall(r'\]\((\w[\w-]*)\.md\)', section))
        parts.append(f'```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n')
    return '\n'.join(parts)


def _adapt(app: Any, page: str, source: list[str]) -> None:
    """Adapt a page that Sphinx has read."""
    if page != 'index':
        source[0] = relinked(source[0], 'docs')
        if page == 'api':
            source[0] += ''.join(f'## robocal_ros.{name}\n\n```{{eval-rst}}\n'
                                 f'.. automodule:: robocal_ros.{name}\n```\n\n' for name in _API)
        return
    listing = (Path(app.srcdir) / 'README.md').read_text(encoding='utf-8')
    source[0] = f'{relinked(source[0], "")}\n{navigation(listing)}'


def _inline_formula(page: Any, node: Any) -> None:
    page.body.append(tex2mathml(node.astext()))
    raise SkipNode


def _formula(page: Any, node: Any) -> None:
    page.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect('source-read', _adapt)
    app.add_html_math_renderer('mathml', (_inline_formula, None), (_formula, None))
