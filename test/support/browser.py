# SPDX-License-Identifier: Apache-2.0
"""Pages as a reader of HTML and as headless Chromium see them, and what axe-core finds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')


_VOID = {'meta', 'br', 'link', 'img', 'input', 'hr'}


class Page(HTMLParser):
    """Checks that tags match, and gathers elements and texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ''
        self.feed(html)
        self.close()
        assert not self.open

    @property
    def loads(self) -> list[str | None]:
        """What the page would load or links to, without places of its own."""
        return [value for _, attributes in self.found for key, value in attributes.items()
                if key in ('src', 'href') and not (value or '').startswith('#')]

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements of a name."""
        return [attributes for name, attributes in self.found if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == 'tr':
            self.rows.append([])
        elif tag in ('td', 'th'):
            self.rows[-1].append('')
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ('script', 'style'):
            self.text += data
            if 'td' in self.open or 'th' in self.open:
                self.rows[-1][-1] += data


@contextmanager
def opened(*arguments: str) -> Iterator[Any]:
    """Open a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as programs:
        browser = programs.chromium.launch(
            executable_path=CHROMIUM, args=['--no-sandbox', *arguments])
        yield browser
        browser.close()


def serious(page: Any, within: str | None = None) -> list[str]:
    """Return the serious and critical violations of a page, or of a part of it.

    Args:
        page: Page of Playwright.
        within: Selector of the part.

    """
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, context=within).response['violations']
    return [f"{item['id']} ({item['impact']}): {node['html'][:200]}"
            for item in found if item['impact'] in ('serious', 'critical')
            for node in item['nodes']]
