# SPDX-License-Identifier: Apache-2.0
"""The site that Sphinx builds from the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from support import ROOT


@pytest.fixture(scope='module')
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; warnings, such as of pages without a place in the navigation, are errors."""
    if sys.version_info < (3, 11):
        pytest.skip('Sphinx is not installed for Python 3.10; see scripts/requirements/test.txt.')
    folder = tmp_path_factory.mktemp('site')
    done = subprocess.run(
        [sys.executable, '-m', 'sphinx', '-W', '--keep-going', '-q', '-d', str(folder / 'trees'),
         str(ROOT / 'docs'), str(folder / 'html')],
        capture_output=True, text=True, timeout=300.0, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / 'html'


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {path.stem for path in (ROOT / 'docs').glob('*.md')} - {'README'}
    made = {'genindex', 'py-modindex', 'search'}
    assert pages == {path.stem for path in site.glob('*.html')} - made


def test_the_readme_is_the_first_page(site: Path) -> None:
    text = (site / 'index.html').read_text(encoding='utf-8')
    assert 'href="your-robot.html"' in text
    assert 'blob/main/CONTRIBUTING.md' in text


def test_the_api_has_what_packages_lend(site: Path) -> None:
    text = (site / 'api.html').read_text(encoding='utf-8')
    assert 'id="robocal_ros.payload.estimate"' in text
    assert 'id="robocal_ros.wrench.WrenchObserver"' in text


def test_links_out_of_the_documentation_lead_to_files(site: Path) -> None:
    """Within it, Sphinx checks them."""
    marker = '/blob/main/'
    found = {part.partition('"')[0] for page in site.glob('*.html')
             for part in page.read_text(encoding='utf-8').split(marker)[1:]}
    assert found
    assert not [path for path in found if not (ROOT / path.partition('#')[0]).exists()]


def test_modules_that_pages_name_exist() -> None:
    own = [path for top in ('robocal_ros', 'robocal_sim', 'benchmarks', 'launch', 'test')
           for path in (ROOT / top).rglob('*.py')] + [*ROOT.glob('*.py'), *ROOT.glob('examples/*')]
    named = {name for page in (*ROOT.glob('docs/*.md'), *ROOT.glob('*.md'))
             for name in re.findall(r'`([\w/]+\.py)`', page.read_text(encoding='utf-8'))}
    assert named
    assert not {name for name in named
                if not any(str(path).endswith(f'/{name}') for path in own)}


def test_rosdoc2_finds_the_site() -> None:
    package = ElementTree.parse(ROOT / 'package.xml').getroot()
    attic, configuration = yaml.safe_load_all(
        (ROOT / package.findtext('export/rosdoc2', '')).read_text(encoding='utf-8'))
    assert attic == {'type': 'rosdoc2 config', 'version': 1}
    (builder,) = configuration['builders']
    assert (ROOT / builder['sphinx']['sphinx_sourcedir'] / 'conf.py').exists()
