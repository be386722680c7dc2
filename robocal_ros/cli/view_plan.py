# SPDX-License-Identifier: Apache-2.0
"""The plan of `robocal calibrate` in the browser: its questions, what it says, and buttons.

The command itself runs behind the page, so that a plan is the same in both, can be gone on with
in either, and is cancelled by the same signal. Its questions are those of its terminal, which is
a pseudo-terminal here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from robocal_ros.cli import calibration_plan as plan
from robocal_ros.cli.calibrate import QUESTION, Answers, check_tool, number
from robocal_ros.cli.console import ERRORS, print_line
from robocal_ros.cli.view_results import RED, html
from robocal_ros.errors import ConfigurationError, RobocalError

_LINES = 120
# Time for which a question stands before it can be answered [s]: a second click on the one before
# must not say that a hand is out of the cell.
_READING = 1.0
# Longest wait for the arm to be held when the view ends [s].
_HOLDING = 30.0
_ENDS = {0: 'All that was asked for is known.',
         1: 'Ended; see above.',
         2: 'Ended by an error.', 130: 'Cancelled; the arm is held.'}


class PlanPanel:
    """Questions, what the command says, and buttons to begin, to answer and to cancel."""

    def __init__(self, gui: Any, namespace: str) -> None:
        """Add the panel.

        Args:
            gui: Panels of the page.
            namespace: The robot's namespace.

        """
        self._command = [sys.executable, '-m', 'robocal_ros.cli.main', 'calibrate',
                         '--namespace', namespace]
        self._process: subprocess.Popen[str] | None = None
        # Each click has a thread of its own.
        self._one_click = threading.Lock()
        self._terminal = -1
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._said, self._shown = 0, -1
        # The newest question, by how much was said up to it, and since when it stands [s];
        # infinite once it is answered.
        self._asked, self._since = 0, np.inf
        unknown = Answers()
        with gui.add_folder('calibration'):
            # Above the questions, which come back when the plan has ended.
            self._log = gui.add_html('')
            with gui.add_folder('questions') as self._questions:
                self._tool = gui.add_text('Tool', '', hint='a name of your choice; empty for none')
                self._mounted = gui.add_checkbox('It is mounted now', True)
                self._mass = gui.add_number('Its mass [kg]', 0.0, min=0.0, step=0.001,
                                            hint='from a scale; 0 if it was not weighed')
                self._mass_std = gui.add_number('Error of scale [kg]', 0.0, min=0.0, step=0.001)
                self._removable = gui.add_checkbox('It can be taken off', True)
                self._purposes = {
                    name: gui.add_checkbox(f'For {text}', name == unknown.purposes[0])
                    for name, text in plan.PURPOSES.items()}
                self._test_load = gui.add_number('Test load [kg]', 0.0, min=0.0, step=0.001,
                                                 hint='for absolute accuracy; 0 for none')
                self._speed = gui.add_number('Speed [%]', 0, min=0, max=100, step=1,
                                             hint="0 for the nodes' speed_scale")
                self._floor = gui.add_text('Floor or table [m]', '', hint='height in the root '
                                           'frame, negative below it; empty for that of the nodes')
                self._box = gui.add_vector3('Tool box [m]', (0.0, 0.0, 0.0), min=(0.0, 0.0, 0.0),
                                            step=0.01, hint='size along x, y, z of the tool '
                                            'frame; zeros for that of the nodes')
            self._begin = gui.add_button('Look, and show the plan')
            self._yes = gui.add_button('Yes', visible=False)
            self._no = gui.add_button('No', visible=False)
            self._cancel = gui.add_button('Cancel the plan and hold the arm', color=RED,
                                          visible=False)
        self._begin.on_click(lambda _: self._start())
        self._yes.on_click(lambda _: self._answer('y'))
        self._no.on_click(lambda _: self._answer('n'))
        self._cancel.on_click(lambda _: self._interrupt())

    def refresh(self) -> None:
        """Show what the command has said."""
        said, now = self._said, time.monotonic()
        running = self._running
        if not (running and self._lines and self._lines[-1].endswith(QUESTION)):
            self._since = np.inf
        elif said != self._asked:
            self._asked, self._since = said, now
        self._yes.visible = self._no.visible = now >= self._since + _READING
        self._cancel.visible = running
        self._begin.visible = self._questions.visible = not running
        if said != self._shown:
            self._shown = said
            self._log.content = html('log', tuple(self._lines))

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """Cancel what is running, and wait until the arm is held."""
        process = self._process
        if process is None or not self._running:
            return
        print_line('Cancelling the plan.', 'yellow', ERRORS)
        self._interrupt()
        try:
            process.wait(_HOLDING)
        except subprocess.TimeoutExpired:
            print_line(f'The plan has not ended within {_HOLDING:.0f} s. Stop the arm by other '
                       'means.', 'red', ERRORS)

    # ------------------------------------------------------------- threads of the server

    def _answers(self) -> Answers:
        """Return the answers; raises ConfigurationError for one that cannot be."""
        found = Answers(
            tool=self._tool.value.strip(), mounted=self._mounted.value, mass=self._mass.value,
            mass_std=self._mass_std.value, removable=self._removable.value,
            purposes=[name for name, box in self._purposes.items() if box.value],
            speed=0.01 * self._speed.value, tool_box=list(self._box.value),
            test_load=self._test_load.value)
        if self._floor.value.strip():
            found.floor = number(self._floor.value)
        found.check()
        if found.mounted and not found.tool:
            raise ConfigurationError('Name the tool that is mounted, or say that none is.')
        check_tool(found)
        return found

    def _start(self) -> None:
        with self._one_click:
            if not self._running:
                self._run()

    def _run(self) -> None:
        self._lines.clear()
        try:
            text = self._answers().text()
        except RobocalError as error:
            self._say(str(error))
            return
        # A terminal of its own for the answers to its questions: it asks nobody else.
        self._terminal, own = os.openpty()
        file = Path(tempfile.mkdtemp(prefix='robocal_view_'), 'answers.yaml')
        file.write_text(text, encoding='utf-8')
        self._process = subprocess.Popen(
            [*self._command, '--answers', str(file)], stdin=own, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, encoding='utf-8', errors='replace',
            env={**os.environ, 'PYTHONUNBUFFERED': '1'}, start_new_session=True)
        os.close(own)
        threading.Thread(target=self._listen, args=(self._process, self._terminal, file),
                         daemon=True).start()

    def _listen(self, process: subprocess.Popen[str], terminal: int, file: Path) -> None:
        for line in process.stdout or ():
            self._say(line.rstrip())
        code = process.wait()
        os.close(terminal)
        self._say(_ENDS.get(code, f'Ended with code {code}.'))
        # Steps by hand may have changed it.
        self._mounted.value = Answers.read(file).mounted
        shutil.rmtree(file.parent)

    def _say(self, line: str) -> None:
        self._lines.append(line)
        self._said += 1

    def _answer(self, letter: str) -> None:
        with self._one_click:
            if time.monotonic() >= self._since + _READING:
                self._since = np.inf
                os.write(self._terminal, f'{letter}\n'.encode())

    def _interrupt(self) -> None:
        if self._process is not None and self._running:
            # While it starts, an interruption may be lost, and nothing moves yet.
            self._process.send_signal(signal.SIGINT if self._lines else signal.SIGKILL)
