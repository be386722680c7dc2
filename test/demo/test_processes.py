# SPDX-License-Identifier: Apache-2.0
"""Child processes of the demo: start, log, and end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.fake_procedure import Running

from demo import domains
from demo.domains import own_domain
from demo.processes import Children
from robocal_ros.cli.doctor import chosen_domain
from robocal_ros.errors import ConfigurationError, RobocalError

SLEEP = [sys.executable, '-c', 'import time; print("up"); time.sleep(60)']
STUBBORN = [sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGINT, '
            'signal.SIG_IGN); print("up"); time.sleep(60)']


def wait_for(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
    return state != 'Z'


def test_children_end_with_the_block(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        processes = [children.start(name, SLEEP).process for name in 'ab']
        children.check()
    assert all(process.poll() is not None for process in processes)


def test_children_end_when_the_block_fails(tmp_path: Path) -> None:
    children = Children(tmp_path)
    process = children.start('a', SLEEP).process

    def interrupted() -> None:
        with children:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert process.poll() is not None


def test_a_child_that_ignores_sigint_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('demo.processes._PATIENCE', 0.2)
    with Children(tmp_path) as children:
        child = children.start('a', STUBBORN)
        wait_for(lambda: 'up' in child.tail())
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_that_exits_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, '-c', 'print("one\\ntwo"); raise SystemExit(3)']
    with Children(tmp_path) as children:
        child = children.start('worker', command)
        child.process.wait(10.0)
        with pytest.raises(RobocalError, match=r"'worker' exited.*code 3[^$]*one\ntwo"):
            children.check()


def test_children_get_their_environment(tmp_path: Path) -> None:
    command = [sys.executable, '-c', 'import os; print(os.environ["ROS_DOMAIN_ID"])']
    with Children(tmp_path, {'ROS_DOMAIN_ID': '42'}) as children:
        child = children.start('a', command)
        child.process.wait(10.0)
    assert child.tail() == '42'


def test_a_node_gets_its_parameters_from_a_file(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start_node('platform', 'my_node', {'seed': 3, 'method': 'two_plane'})
        arguments = child.process.args
    assert isinstance(arguments, list)
    file = Path(arguments[-1])
    assert yaml.safe_load(file.read_text()) == {
        'my_node': {'ros__parameters': {'seed': 3, 'method': 'two_plane'}}}
    assert arguments[-6:-1] == [sys.executable, '-m', 'platform', '--ros-args', '--params-file']


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigurationError, match=r'cannot be created.*\.$'):
        Children(tmp_path / 'file' / 'logs')


def test_children_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    code = (
        'import sys, time; from pathlib import Path; '
        'from demo.processes import Children; '
        f'child = Children(Path({str(tmp_path)!r})).start("a", {SLEEP!r}); '
        'print(child.process.pid, flush=True); time.sleep(60)'
    )
    parent = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    wait_for(lambda: 'up' in (tmp_path / 'a.log').read_text())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not alive(pid))


DOMAIN = int(os.environ['ROS_DOMAIN_ID'])


def test_a_chosen_domain_with_nodes_is_refused() -> None:
    fake = Running(DOMAIN)
    try:
        assert chosen_domain() == DOMAIN
        with pytest.raises(ConfigurationError, match=f'domain {DOMAIN}.*: /[a-z_]+[.,]'):
            own_domain()
    finally:
        fake.close()


def test_a_domain_without_nodes_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def nodes_on(domain: int) -> list[str]:
        looked.append(domain)
        return ['/somebody'] if len(looked) < 3 else []

    monkeypatch.setattr(domains, '_nodes_on', nodes_on)
    monkeypatch.delenv('ROS_DOMAIN_ID')
    domain = own_domain()
    assert domain == looked[2]
    assert os.environ['ROS_DOMAIN_ID'] == str(domain)
    assert len(set(looked)) == 3
    monkeypatch.setattr(domains, '_nodes_on', lambda _: ['/somebody'])
    monkeypatch.delenv('ROS_DOMAIN_ID')
    with pytest.raises(ConfigurationError, match='all have nodes'):
        own_domain()
