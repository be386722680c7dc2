# SPDX-License-Identifier: Apache-2.0
"""Questions of `robocal calibrate`, and the file of the answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from robocal_ros.cli.calibration_plan import PURPOSES
from robocal_ros.cli.console import print_line
from robocal_ros.errors import ConfigurationError
from robocal_ros.files import Section, convert, load, read_text, write_output

T = TypeVar('T')

_NO_FLOOR = -1000.0
_YES, _NO = ('y', 'yes'), ('n', 'no', '')


class Answers(Section):
    """What only the user knows, and what was done so far.

    Attributes:
        tool: Name of the tool; empty for an arm without one.
        mounted: Whether the tool is mounted now.
        mass: Its mass from a scale, 0 if it was not weighed [kg].
        mass_std: Standard deviation of that mass [kg].
        removable: Whether it can be taken off for a while.
        purposes: What the calibration is for.
        speed: Share of full speed at which the arm may move; 0 for that of the nodes.
        floor: Height of floor or table in the root frame; -1000 for that of the nodes [m].
        tool_box: Size of a box around the tool along x, y, z of the tool frame; zeros for that of
            the nodes [m].
        test_load: Mass of the load for compliance, 0 for none [kg].
        done: Further facts, which an interrupted plan goes on from.

    """

    tool: str = ''
    mounted: bool = True
    mass: float = 0.0
    mass_std: float = 0.0
    removable: bool = True
    purposes: list[str] = msgspec.field(default_factory=lambda: ['gravity'])
    speed: float = 0.0
    floor: float = _NO_FLOOR
    tool_box: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0, 0.0])
    test_load: float = 0.0
    done: list[str] = msgspec.field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Answers:
        """Return the answers in a file.

        Raises:
            FileFormatError: If it is no such file.
            ConfigurationError: If a value is out of range.

        """
        found = convert(load(read_text(path, 'file of answers'), str(path)), cls, str(path))
        found.check()
        return found

    def check(self) -> None:
        """Raise a ConfigurationError for a value out of range."""
        check_purposes(self.purposes)
        for name, good in (
                ('speed', self.speed == 0.0 or 0.01 <= self.speed <= 1.0),
                ('tool_box', len(self.tool_box) == 3),
                ('mass', self.mass >= 0.0), ('mass_std', self.mass_std >= 0.0),
                ('test_load', self.test_load >= 0.0)):
            if not good:
                raise ConfigurationError(f'{name} is {getattr(self, name)}; expected a share '
                                         'from 0.01 to 1 as speed, three sizes as tool_box, and '
                                         'masses that are not negative.')

    def write(self, path: Path) -> None:
        """Write them, completely or not at all; raises ConfigurationError."""
        write_output(path, self.text(), 'file of answers')

    def text(self) -> str:
        """Return them as YAML."""
        return yaml.safe_dump(msgspec.structs.asdict(self), sort_keys=False, allow_unicode=True)


def check_purposes(names: Sequence[str]) -> list[str]:
    """Return the names of purposes; raises ConfigurationError for an unknown one, or for none."""
    wrong = [name for name in names if name not in PURPOSES]
    if wrong or not names:
        raise ConfigurationError(
            f"Purpose '{', '.join(wrong)}' is not known; expected one or more of "
            f'{", ".join(PURPOSES)}.')
    return list(names)


def asked(root: str, purposes: Sequence[str]) -> Answers:
    """Return the answers to the questions on the terminal.

    Args:
        root: Root frame of the arm.
        purposes: What the calibration is for, if it is known.

    Raises:
        ConfigurationError: If there is no terminal.

    """
    found = Answers()
    found.tool = _ask('1. Which tool is mounted, or will be? A name of your choice; empty for '
                      'none:', str.strip)
    if found.tool:
        found.mounted = _ask('   Is it mounted now? [y/n]', _flag)
        found.mass = _ask('   Its mass from a scale in kg; 0 if you have not weighed it:', float)
        if found.mass:
            found.mass_std = _ask('   The error of that scale in kg:', float)
        found.removable = _ask('2. Can it be taken off for a while? [y/n]', _flag)
    else:
        found.mounted = False
    found.purposes = list(purposes) or _ask(
        '3. What is it for? ' + '; '.join(f'{key}: {text}' for key, text in PURPOSES.items())
        + '. One or more:', lambda text: check_purposes(text.replace(',', ' ').split()))
    if 'accuracy' in found.purposes:
        found.test_load = _ask('   Mass of a test load in kg that can be mounted in addition:',
                               float)
    found.speed = _ask('4. How fast may the arm move, in percent of its full speed? Empty for the '
                       "nodes' speed_scale:", lambda text: 0.01 * float(text or 0.0))
    found.floor = _ask(f"5. Height of floor or table in '{root}' in m, negative below it; empty "
                       "for that of the nodes:", lambda text: float(text) if text else _NO_FLOOR)
    found.tool_box = _ask(
        '   Size of a box around the tool along x, y, z of its frame in m; empty for that of the '
        'nodes:',
        lambda text: [float(part) for part in text.replace(',', ' ').split()] or [0.0, 0.0, 0.0])
    found.check()
    return found


def confirmed(question: str) -> bool:
    """Ask a question of yes or no."""
    return _ask(f'{question} [y/n]', _flag)


def _flag(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError('y or n')
    return text.lower() in _YES


def _ask(question: str, read: Callable[[str], T]) -> T:
    """Ask until an answer can be read; raises ConfigurationError if nobody can answer."""
    if not sys.stdin.isatty():
        raise ConfigurationError('There is no terminal to ask at. Give the answers with --yes '
                                 'FILE; --dry-run prints such a file.')
    while True:
        print_line(question, 'bold')
        try:
            return read(input('   ').strip())
        except (ValueError, ConfigurationError) as error:
            print_line(f'   {error}', 'red')
        except EOFError:
            raise KeyboardInterrupt from None


def as_parameters(answers: Answers) -> dict[str, Any]:
    """Return the answers that are parameters of every node that moves the arm.

    What was not answered stays as the nodes have it: their speed scale, floor and box protect.
    """
    given = {'speed_scale': (answers.speed, 0.0), 'floor': (answers.floor, _NO_FLOOR),
             'tool_box': (list(answers.tool_box), [0.0, 0.0, 0.0])}
    return {'tool': answers.tool, **{
        name: value for name, (value, unknown) in given.items() if value != unknown}}
