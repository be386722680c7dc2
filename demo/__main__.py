# SPDX-License-Identifier: Apache-2.0
"""Entry of `scripts/demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from demo import demo
from robocal_ros.cli.main import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; arguments and exit codes as of the command line `robocal`."""
    parser = argparse.ArgumentParser(
        prog='scripts/demo', description=f'{demo.SUMMARY[:1].upper()}{demo.SUMMARY[1:]}.')
    demo.add_arguments(parser)
    parser.set_defaults(run=demo.run)
    return run(parser, arguments)


if __name__ == '__main__':
    sys.exit(main())
