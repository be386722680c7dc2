# SPDX-License-Identifier: Apache-2.0
"""Pictures of the documentation, by Chromium, with scripts/env.sh --with-tests sourced.

`python -m demo.picture` identifies the tool of the simulated arm and takes the picture of
`robocal view` for the README; with `--report demo_output/report.html` it takes those of the
capabilities from the report of a demo.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

from demo.payload import SHORT
from demo.stage import Stage, open_stage
from robocal_ros.cli.main import run
from robocal_ros.errors import ConfigurationError, RobocalError

_WIDTH, _HEIGHT = 1200, 640
_PATIENCE = 120_000.0
# Turn of the mouse wheel that brings the arm nearer [px].
_NEARER = -700.0
# Time for the page to draw what it has received [ms].
_SETTLE = 8_000.0


# Plots of the demo's report, by the page that shows them.
_PLOTS = {'payload': 'Torque of joint_6, arm and payload separated',
          'friction': 'Friction of joint_6',
          'compliance': 'Sag before and after correction, postures of the fit',
          'wrench': 'Pushes, side view',
          'leveling': 'tilt and drift over time'}


def main(arguments: Sequence[str] | None = None) -> int:
    """Take pictures; exit codes as in `robocal_ros.cli.main`."""
    parser = argparse.ArgumentParser(prog='python -m demo.picture', description=__doc__)
    parser.add_argument('-o', '--output', type=Path, default=Path('docs/images'),
                        help='folder of the pictures (default: %(default)s)')
    parser.add_argument('--report', type=Path, metavar='FILE',
                        help='take the pictures of the capabilities from this report')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    """Take the pictures.

    Raises:
        RobocalError: If the procedure fails, or there is no Chromium.

    """
    if options.report is not None:
        with _page(1.5) as page:
            page.goto(options.report.resolve().as_uri(), timeout=_PATIENCE)
            for name, title in _PLOTS.items():
                plot = page.locator('figure', has=page.get_by_role('img', name=title, exact=True))
                plot.first.scroll_into_view_if_needed(timeout=_PATIENCE)
                plot.first.locator('svg').first.wait_for(timeout=_PATIENCE)
                plot.first.screenshot(path=options.output / f'{name}.png')
        return 0
    with TemporaryDirectory() as folder, open_stage(Path(folder), 1, full=False) as stage:
        address = next(word for word in stage.start_view().split() if word.startswith('http'))
        _identify(stage)
        with _page(1.0) as page:
            page.goto(address, timeout=_PATIENCE)
            page.get_by_text('com_z').first.wait_for(timeout=_PATIENCE)
            # The browser without a screen has no graphics card, which the page remarks.
            for remark in page.get_by_role('alert').get_by_role('button').all():
                remark.click()
            page.mouse.move(0.35 * _WIDTH, 0.45 * _HEIGHT)
            page.mouse.wheel(0.0, _NEARER)
            page.wait_for_timeout(_SETTLE)
            page.screenshot(path=options.output / 'view.png')
    return 0


@contextmanager
def _page(scale: float) -> Iterator[Page]:
    """Open a page in Chromium; raises ConfigurationError if there is none."""
    browser = shutil.which('chromium') or shutil.which('google-chrome')
    if browser is None:
        raise ConfigurationError('Chromium was not found; install it, or put it on PATH.')
    with sync_playwright() as programs:
        window = programs.chromium.launch(executable_path=browser, args=[
            '--no-sandbox', '--use-angle=swiftshader', '--enable-unsafe-swiftshader'])
        yield window.new_page(
            viewport={'width': _WIDTH, 'height': _HEIGHT}, device_scale_factor=scale)
        window.close()


def _identify(stage: Stage) -> None:
    """Identify the tool; the node stays active, so that its markers stay."""
    _, client = stage.start_node('payload_identification', {**SHORT, 'method': 'static_poses'})
    client.change_state('configure')
    client.change_state('activate')
    answer = client.call('run')
    if not answer.success:
        raise RobocalError(answer.message)


if __name__ == '__main__':
    sys.exit(main())
