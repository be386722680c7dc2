# SPDX-License-Identifier: Apache-2.0
"""Pages in headless Chromium, and what axe-core finds in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')


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
