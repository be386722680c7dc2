# SPDX-License-Identifier: Apache-2.0
"""Entry of `scripts/bench`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import bench
from robocal_ros.cli.main import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks; arguments and exit codes as of the command line `robocal`."""
    parser = argparse.ArgumentParser(
        prog='scripts/bench', description=f'{bench.SUMMARY[:1].upper()}{bench.SUMMARY[1:]}.')
    bench.add_arguments(parser)
    parser.set_defaults(run=bench.run)
    return run(parser, arguments)


if __name__ == '__main__':
    sys.exit(main())
