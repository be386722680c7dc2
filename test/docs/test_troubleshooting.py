# SPDX-License-Identifier: Apache-2.0
"""The troubleshooting page quotes what the programs say."""

from __future__ import annotations

import ast
import re

import pytest
from support import ROOT

PAGE = (ROOT / 'docs' / 'troubleshooting.md').read_text(encoding='utf-8')
TABLE = PAGE.partition('| answer | remedy |')[2].partition('\n\n')[0]
QUOTES = [*re.findall(r'^> (.+)$', PAGE, re.M), *re.findall(r'^\| (.+?) \| .+ \|$', TABLE, re.M)]


def texts() -> list[str]:
    """Return every text in the sources of the product, with … for what is filled in."""
    found = []
    for path in (ROOT / 'robocal_ros').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.JoinedStr):
                found.append(''.join(part.value if isinstance(part, ast.Constant) else '…'
                                     for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


@pytest.fixture(scope='module')
def said() -> str:
    return '\0'.join(texts())


def test_there_are_quotes() -> None:
    assert len(QUOTES) > 40


@pytest.mark.parametrize('quote', QUOTES)
def test_a_quoted_sentence_is_what_a_program_says(said: str, quote: str) -> None:
    parts = [re.escape(part.strip()) for part in quote.split('…') if part.strip()]
    found = re.search(r'[^\0]*?'.join(parts), said)
    assert found, 'no text of the product has these words'
