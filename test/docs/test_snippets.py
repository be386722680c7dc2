# SPDX-License-Identifier: Apache-2.0
"""Every code block of the README and of docs is executed, or checked as far as it can be.

A block is a list of commands (bash), a file (yaml), a program (python), or a diagram (text). The
commands of `robocal` that need no robot are run, and must succeed; all others are parsed by the
program's own parser, and the names in them must exist. An unknown program or verb is an error, so
that nothing is skipped by accident.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import doc_sandbox
from support.launch_stand_in import ROOT, Shutdown, launched
from support.parameter_files import tables

from robocal_ros import launching, registry
from robocal_ros.cli import console, import_csv, main as entry
from robocal_ros.cli.calibrate import check_purposes
from robocal_ros.compliance.geometry import read_observations
from robocal_ros.friction.plan import load_trajectory_set
from robocal_ros.offline import read_parameters
from robocal_ros.parameters import declarations
from robocal_ros.results.store import read_result
from robocal_ros.robot.model import Robot

PAGES = [ROOT / 'README.md', *sorted(
    path for path in (ROOT / 'docs').glob('*.md') if not path.is_symlink())]
SHARE = '$(ros2 pkg prefix --share robocal_ros)'
# Commands of robocal that need neither robot nor graph.
RUN = ('estimate', 'fleet', 'show', 'report', 'apply', 'import')
# Programs of the repository whose parsers are asked.
SCRIPTS = {'scripts/demo': 'demo.__main__', 'scripts/bench': 'benchmarks.__main__',
           'scripts/faults': 'benchmarks.faults'}
EXECUTABLES = ('sim_arm', *registry.nodes())
# Commands of a shell or of tools that other projects document; bash checks their syntax.
FOREIGN = ('cd', 'cp', 'export', 'source', 'eval', 'git', 'colcon', 'rosdep', 'xacro',
           'register-python-argcomplete', 'pip')
ROS2_FOREIGN = ('action', 'bag', 'control', 'pkg', 'security', 'topic')
INTERFACE = re.compile(r'^\| (\w[\w ]*) \| `([^`]+)` \| (\S+) \|', re.M)


@dataclass(frozen=True)
class Block:
    """A fenced code block, and where it begins."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f'{self.page.relative_to(ROOT)}:{self.line}'


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced code blocks of a page."""
    language, begin, lines = None, 0, list[str]()
    for number, line in enumerate(page.read_text(encoding='utf-8').splitlines(), start=1):
        if not line.lstrip().startswith('```'):
            lines.append(line)
        elif language is None:
            language, begin, lines = line.lstrip().removeprefix('```').strip(), number, []
        else:
            yield Block(page, begin, language, textwrap.dedent('\n'.join(lines)) + '\n')
            language = None
    assert language is None, f'{page}: the block of line {begin} is not closed'


def interfaces() -> dict[str, dict[str, str]]:
    """Return the services of each node and their types, from the reference of the nodes."""
    page = (ROOT / 'docs' / 'nodes.md').read_text(encoding='utf-8')
    return {section.partition('\n')[0]: {
        name.removeprefix('~/'): kind for verb, name, kind in INTERFACE.findall(section)
        if verb == 'service'} for section in page.split('\n## ')[1:]}


@pytest.fixture(scope='module')
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return doc_sandbox.write(tmp_path_factory.mktemp('recorded'))


@pytest.fixture
def sandbox(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of one page: files and bags under the names that pages use."""
    folder = tmp_path / 'here'
    folder.mkdir()
    for item in recorded.iterdir():
        if item.name.endswith('_bag'):
            (folder / item.name).symlink_to(item)
        elif item.is_dir():
            shutil.copytree(item, folder / item.name)
        else:
            shutil.copy(item, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv('HOME', str(folder))
    monkeypatch.delenv('ROS_HOME', raising=False)
    for screen in (entry.ERRORS, console.OUT):
        monkeypatch.setattr(screen, '_width', 400)
    return folder


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_every_block_works(
    page: Path, sandbox: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks: dict[str, Callable[[str], None]] = {
        'bash': Shell(monkeypatch, capsys).check, 'yaml': check_yaml, 'python': check_python,
        'text': lambda text: None}
    for block in blocks(page):
        # Blocks without a language are commands.
        language = block.language or 'bash'
        assert language in checks, f'{block}: expected one of {", ".join(checks)}'
        try:
            checks[language](block.text)
        except (Exception, SystemExit) as error:
            raise AssertionError(f'{block}: {error}\n{block.text}') from error


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_are_parsed(page: Path) -> None:
    text = re.sub(r'^ *```.*?^ *```', '', page.read_text(encoding='utf-8'), flags=re.M | re.S)
    for command in re.findall(r'`(robocal \w[^`]*)`', text):
        words = shlex.split(command.replace('\n', ' '))[1:]
        # Some name a command, a capability or an option alone, or leave something to the reader.
        if not re.search(r'[<…]', command) and len(words) > 1:
            placeholder = ['BAG'] if words[0] == 'estimate' and len(words) == 2 else (
                ['VALUE'] if takes_value(words[-1]) else [])
            parsed([*words, *placeholder])


def takes_value(option: str) -> bool:
    """Return whether a word is an option of `robocal` that a value must follow."""
    subcommands, = (action for action in entry.build_parser()._actions if action.dest != 'help'
                    and isinstance(action.choices, dict))
    return any(option in action.option_strings and action.nargs != 0
               for parser in subcommands.choices.values() for action in parser._actions)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line of `robocal`."""
    try:
        return entry.build_parser().parse_args(words)
    except SystemExit as error:
        raise AssertionError(f"robocal {' '.join(words)}: not a valid command line") from error


class Shell:
    """Checks of the commands in a block."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def check(self, text: str) -> None:
        """Check the syntax of a block, then each of its commands."""
        done = subprocess.run(['bash', '-n'], input=text, text=True, capture_output=True,
                              timeout=60.0, check=False)
        assert done.returncode == 0, done.stderr
        for line in text.replace('\\\n', ' ').replace(SHARE, str(ROOT)).splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r'\w+=', words[0]):
                words.pop(0)
            if words:
                self._command(words)

    def _command(self, words: Sequence[str]) -> None:
        program, *arguments = words
        if program == 'robocal':
            self._robocal(arguments)
        elif program == 'ros2':
            self._ros2(arguments)
        elif program in SCRIPTS:
            self._script(SCRIPTS[program], arguments)
        elif program in EXECUTABLES:
            self._node(arguments)
        elif program == 'scripts/test':
            assert all((ROOT / word).exists() for word in arguments if '/' in word), words
        elif program in ('python', 'python3'):
            assert (ROOT / arguments[0]).is_file(), f'{arguments[0]} does not exist'
        elif program == 'cp':
            subprocess.run(words, check=True, timeout=60.0)
        else:
            assert program in FOREIGN, f"'{program}' is not among the programs that are checked"

    def _robocal(self, arguments: Sequence[str]) -> None:
        options = parsed(arguments)
        command = arguments[0]
        if '--scheduler' in arguments:
            return
        if command in RUN or '--machine' in arguments:
            code = entry.main([str(Path(word).expanduser()) if word.startswith('~') else word
                               for word in arguments])
            said = self._capsys.readouterr()
            assert code == 0, f'exit code {code}\n{said.out}{said.err}'
        elif command == 'run':
            table = tables()[registry.procedures()[options.capability].node]
            known = {item.name for item in declarations(table)}
            assert known.issuperset(name for name, _ in options.param)
            verb = options.verb or registry.procedures()[options.capability].verb
            assert verb in interfaces()[registry.procedures()[options.capability].node]
        elif command == 'calibrate':
            check_purposes(options.purposes.split(','))
        else:
            assert command in ('doctor', 'guide', 'record', 'view'), f'{command} is not checked'

    def _ros2(self, words: Sequence[str]) -> None:
        verb, *arguments = words
        if verb == 'launch':
            assert arguments[0] == 'robocal_ros', 'a launch file of another package'
            self._launch(arguments[1], arguments[2:])
        elif verb == 'service':
            action, name, kind = arguments[:3]
            node, _, service = name.strip('/').rpartition('/')
            assert (action, kind) == ('call', interfaces()[node.rpartition('/')[2]][service])
        elif verb == 'param':
            action, name, parameter, value = arguments
            assert action == 'set'
            read_parameters(tables()[name.strip('/')], name.strip('/'), [], {parameter: value})
        elif verb == 'lifecycle':
            assert arguments[0] == 'set'
            assert arguments[1].strip('/') in tables()
        elif verb == 'run':
            assert arguments[0] == 'robocal_ros'
            assert arguments[1] in {*tables(), 'sim_arm', 'robocal'}
        else:
            assert verb in ROS2_FOREIGN, f'ros2 {verb} is not checked'

    def _launch(self, file: str, arguments: Sequence[str]) -> None:
        if list(arguments) == ['--show-args']:
            assert (ROOT / 'launch' / file).is_file()
            return
        given = dict(word.split(':=', 1) for word in arguments)
        declared = set(re.findall(r"DeclareLaunchArgument\(\s*'(\w+)'",
                                  (ROOT / 'launch' / file).read_text(encoding='utf-8')))
        assert declared >= set(given), f'{file} has no arguments {set(given) - declared}'
        self._monkeypatch.setattr(launching, 'is_installed', lambda _: True)
        context = launched(self._monkeypatch, file, **given)
        assert not any(isinstance(event, Shutdown) for event in context.events), context.said
        assert context.started, 'nothing is started'

    def _node(self, arguments: Sequence[str]) -> None:
        assert arguments[0] == '--ros-args'
        for option, value in zip(arguments[1::2], arguments[2::2], strict=True):
            assert option in ('-p', '--params-file')
            if value.endswith('.yaml'):
                assert (ROOT / value.rpartition(':=')[2]).is_file(), f'{value} does not exist'

    def _script(self, module: str, arguments: Sequence[str]) -> None:
        program = importlib.import_module(module)
        self._monkeypatch.setattr(
            program, 'run', lambda parser, words: parser.parse_args(words) and 0)
        assert program.main([word for word in arguments if word != '--with-peers']) == 0


def check_python(text: str) -> None:
    """Run a program."""
    exec(compile(text, 'snippet', 'exec'), {'__name__': '__main__'})


def check_yaml(text: str) -> None:
    """Check a file by the reader of its kind, which its keys tell."""
    document = yaml.safe_load(text)
    file = Path('snippet.yaml')
    file.write_text(text, encoding='utf-8')
    if isinstance(document, list):
        load_trajectory_set(str(file), Robot(Path('my_arm.urdf').read_text(encoding='utf-8')))
    elif 'schema_version' in document:
        read_result(file)
    elif 'joints' in document:
        import_csv.read_map(file)
        shutil.copy(file, 'map.yaml')
    elif 'sets' in document:
        read_observations([file], Robot(Path('my_arm.urdf').read_text(encoding='utf-8')))
        shutil.copy(file, 'sockets.yaml')
    elif 'ros__parameters' in text:
        for key, section in document.items():
            check_parameters(key, section['ros__parameters'], file)
    else:
        # Values without their node.
        (table,) = [table for table in tables().values()
                    if {item.name for item in declarations(table)} >= set(document)]
        check_values(table, document)


def check_parameters(key: str, values: Mapping[str, Any], file: Path) -> None:
    """Check names and values of a section of a parameter file for all nodes that it matches."""
    matching = {name: table for name, table in tables().items()
                if fnmatchcase(f'/{name}', key.replace('/**', '', 1) or '*')}
    if not matching:
        assert key.rpartition('/')[2] == 'sim_arm', f'no node is called {key}'
    for name, table in matching.items():
        check_values(table, values)
        read_parameters(table, name, [file])


def check_values(table: Any, values: Mapping[str, Any]) -> None:
    """Check that parameters exist and have the declared types."""
    known = {item.name: item for item in declarations(table)}
    assert set(values) <= {*known, 'use_sim_time'}, f'no parameters {set(values) - set(known)}'
    for name, value in values.items():
        assert name not in known or known[name].fits(value), f'{name}: {value!r}'
