# SPDX-License-Identifier: Apache-2.0
"""`robocal calibrate` on the simulated arm: plan, interruption, the rest of it, and the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.domains import free_port
from support.friction_results import hidden_payload, identity
from support.live_cell import COMPLIANCE, PAYLOAD, compliance_node, live_cell
from support.live_graph import TRUTH, Client, payload_node

from robocal_ros.cli.calibrate import Answers
from robocal_ros.cli.main import build_parser, main
from robocal_ros.cli.node_client import RosSession
from robocal_ros.cli.view import View
from robocal_ros.results.store import ResultStore, read_result


def test_an_ft_sensor_leads_to_the_payload_without_gains(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = tmp_path / 'answers.yaml'
    Answers(tool='gripper', mass=2.0, removable=False).write(answers)
    command = ['calibrate', '--duration', '1', '--yes', str(answers)]
    with live_cell(client, tmp_path, payload_node, PAYLOAD, arm={'seed': 3}, poses=6, dwell=0.7,
                   sensor_frame='ft_wrist', max_velocity=2.0, max_acceleration=6.0,
                   state_timeout=5.0) as cell:
        assert main([*command, '--dry-run']) == 0
        told = capsys.readouterr().out
        assert '1. payload by the F/T sensor at rest, ' in told
        assert 'asked for: the payload' in told
        assert 'Needs the bare arm in motion: arm with the weighed tool' in told
        assert 'Known already: drive gains by the weighed tool' in told
        assert 'Nothing was moved.' in told
        assert client.travel() < 1e-3
        assert client.parameter(PAYLOAD, 'tool') == ''
        (printed,) = [yaml.safe_load(part) for part in [told[told.index('tool: gripper'):]]]
        assert printed == yaml.safe_load(answers.read_text())
        begun_and_cancelled_in_the_browser(client, cell.results)
        assert main(command) == 0
        told = capsys.readouterr().out
        assert "Fit for: the tool's weight in the driver." in told
        result = read_result(cell.results / 'payload.yaml')
        assert result.method == 'static_poses'
        assert result.settings['tool'] == 'gripper'
        page = (cell.results / 'calibrate.html').read_text(encoding='utf-8')
        assert 'robocal apply' in page
        assert not (cell.results / 'calibrate.answers').exists()
        # The node runs as before again.
        assert client.parameter(PAYLOAD, 'method') == 'two_plane'
        assert re.search(r'Took \d+ s, planned \d+ s\.', told)
        # Nothing is left to be done.
        assert main(command) == 0
        assert 'Used: payload of 0.0 hours ago (static_poses)' in capsys.readouterr().out


def begun_and_cancelled_in_the_browser(client: Client, results: Path) -> None:
    """Ask for the payload of a gripper, see the plan, begin, and cancel while the arm moves."""
    options = build_parser().parse_args(
        ['view', '--allow-motion', '--port', str(free_port()), '--results-dir', str(results)])
    with RosSession('robocal_view') as session:
        view = View(session, options)
        panel = view._plan

        def until(condition: Callable[[], object]) -> None:
            def shown() -> object:
                view.refresh()
                return condition()

            client.until(shown, timeout=120.0)

        try:
            panel._tool.value, panel._mass.value = 'gripper', 2.0
            panel._floor.value = 'low'
            panel._start()
            until(lambda: 'is no number; expected one such as 0.5' in panel._log.content)
            assert not panel._running
            panel._floor.value = ''
            panel._start()
            until(lambda: panel._yes.visible)
            assert 'Clear the cell. Begin? [y/n]' in panel._log.content
            assert not panel._begin.visible
            assert client.travel() < 1e-3
            panel._answer('y')
            # A second click says nothing.
            panel._answer('y')
            until(lambda: client.travel() > 0.05)
            panel._interrupt()
            until(lambda: not panel._running and 'the arm is held' in panel._log.content)
            until(lambda: panel._begin.visible and not panel._cancel.visible)
            assert panel._mounted.value
            assert (results / 'calibrate.answers').exists()
        finally:
            view.close()


def test_accuracy_takes_a_tracker_and_the_payload_only_where_it_is_mounted(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ResultStore(tmp_path / 'results', identity())
    store.save(replace(hidden_payload(TRUTH), settings={'tool': 'gripper'}))
    answers = tmp_path / 'answers.yaml'
    command = ['calibrate', '--for', 'accuracy', '--dry-run', '--duration', '1', '--yes',
               str(answers)]
    with live_cell(
        client, tmp_path, compliance_node, COMPLIANCE, load_mass=0.0, posture_count=12,
    ), payload_node(tmp_path / 'payload.log', tmp_path / 'results'):
        client.until(lambda: client.state(PAYLOAD) == 'active')
        for tool, mounted in (('gripper', "The payload result is the tool (payload_is is 'tool')"),
                              ('', "The payload result is not used (payload_is is 'unused')")):
            Answers(tool=tool).write(answers)
            assert main(command) == 0
            told = ' '.join(capsys.readouterr().out.split())
            assert mounted in told
            assert f'1. frames of the joints{" with the tool" if tool else ""}, ' in told
            assert 'asked for: the frames of all joints' in told
            assert 'Needs a test load of known mass: postures without the test load' in told
            # Whatever is mounted next, the node reckons with it as before.
            assert client.parameter(COMPLIANCE, 'payload_is') == 'auto'
