# SPDX-License-Identifier: Apache-2.0
"""Runs of a fleet on worker processes: ended, interrupted, killed, and started again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Scheduler
from support.fleet_bags import PARAMETERS, tried, write_runs

from robocal_ros.cli import fleet as command
from robocal_ros.cli.main import main
from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet import run as fleet
from robocal_ros.fleet.bags import BagPlace, Request, find_bags
from robocal_ros.fleet.catalogue import BROKEN, ESTIMATED, REFUSED, Catalogue

OPTIONS = [word for name, value in PARAMETERS for word in ('-p', f'{name}:={value}')]
# Ends a test whose run does not do what it should; no speed is required.
PATIENCE = 300.0


@pytest.fixture(scope='module')
def client() -> Iterator[Client]:
    """Two workers in processes of their own."""
    # Tests of nodes may have started this server, with other modules and settings.
    forkserver._forkserver._stop()
    with fleet.workers(2, '', '') as connected:
        yield connected


@pytest.fixture
def bags(tmp_path: Path) -> Path:
    """Three good bags of two arms, and a corrupt one."""
    for number in range(3):
        arm = tmp_path / 'bags' / f'arm_{number % 2}'
        arm.mkdir(parents=True, exist_ok=True)
        write_runs(arm / f'week_{number}', coulomb=0.5 + 0.1 * number, seed=number,
                   begin=1.7e9 + 6e5 * number)
    (tmp_path / 'bags' / 'corrupt.mcap').write_bytes(b'\x89MCAP0\r\nand nothing else')
    return tmp_path / 'bags'


def estimate(client: Client, places: list[BagPlace], output: Path) -> fleet.Summary:
    request = Request(str(output), overrides=PARAMETERS, robot_from='folder')
    return fleet.estimate(places, request, lambda: nullcontext(client), lambda *_: None)


def wait_for(condition: Callable[[], Any], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def readers(path: Path) -> list[int]:
    """Return the processes that have a file open, without this one."""
    found = []
    for process in Path('/proc').glob('[0-9]*'):
        try:
            held = any(fd.readlink() == path for fd in (process / 'fd').iterdir())
        except OSError:
            continue
        if held and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


@contextmanager
def endless(path: Path) -> Iterator[None]:
    """Make a bag that takes hours to read: a terabyte of zeros, which are not on the disk."""
    path.parent.mkdir()
    path.touch()
    os.truncate(path, 10**12)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def test_all_bags_are_estimated_once(client: Client, bags: Path, tmp_path: Path) -> None:
    places, output = find_bags([str(bags)]), tmp_path / 'out'
    first = estimate(client, places, output)
    assert first.outcomes == {ESTIMATED: 3, REFUSED: 1}
    assert first.verdicts == {'pass': 3}
    catalogue = Catalogue(str(output))
    rows = catalogue.query(
        "SELECT robot, value FROM results WHERE parameter = 'elbow.coulomb_forward' ORDER BY time")
    assert [row['robot'] for row in rows] == ['arm_0', 'arm_1', 'arm_0']
    assert [row['value'] for row in rows] == pytest.approx([0.5, 0.6, 0.7], abs=0.06)
    (failure,) = catalogue.query('SELECT * FROM failures')
    assert failure['bag'] == str(bags / 'corrupt.mcap')
    for table in ('results', 'bags'):
        assert len(list((output / 'catalogue' / table).iterdir())) == 1, 'compacted'

    def no_workers() -> Any:
        raise AssertionError('there is nothing to do')

    request = Request(str(output), overrides=PARAMETERS, robot_from='folder')
    again = fleet.estimate(places, request, no_workers, lambda *_: None)
    assert (again.repeated, again.outcomes) == (4, {})
    retried = fleet.estimate(
        places, request, lambda: nullcontext(client), lambda *_: None, retry=True)
    assert (retried.repeated, retried.outcomes) == (3, {REFUSED: 1})


def test_the_last_workers_that_are_started_may_finish(
    client: Client, bags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, '_CLUSTERS', 1)
    (bags / 'corrupt.mcap').unlink()
    assert estimate(client, find_bags([str(bags)]), tmp_path / 'out').outcomes == {ESTIMATED: 3}


def test_workers_use_one_thread_for_linear_algebra_and_are_silent(client: Client) -> None:
    found = client.run(lambda: (
        os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'],
        os.environ.get('MALLOC_TRIM_THRESHOLD_'), logging.getLogger('distributed').level))
    assert list(found.values()) == [('1', '1', str(1 << 28), logging.CRITICAL)] * 2


def test_a_bag_that_ends_its_worker_is_tried_again_and_given_up(
    bags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endless bags keep their workers in the middle of them until these are killed."""
    (bags / 'corrupt.mcap').unlink()
    hurt, deadly = tmp_path / 'arm_8' / 'hurt.mcap', tmp_path / 'arm_9' / 'deadly.mcap'
    good = find_bags([str(bags)])[0]
    content = next(Path(name) for name in good.files if name.endswith('.mcap'))
    stuck = [BagPlace(str(large), (str(large),), '') for large in (hurt, deadly)]
    killed = []

    def kill() -> None:
        for large in (hurt, deadly, deadly):
            wait_for(lambda large=large: readers(large), f'nobody reads {large.name}')
            (reading,) = readers(large)
            if large == hurt:
                large.unlink()
                large.symlink_to(content)
            os.kill(reading, signal.SIGKILL)
            killed.append(large.name)
            wait_for(lambda pid=reading, large=large: pid not in readers(large), 'it lives on')

    thread = threading.Thread(target=kill, daemon=True)
    with endless(hurt), endless(deadly):
        thread.start()
        # A worker that ends at once may not be replaced, so that the last one is lost.
        monkeypatch.setattr(fleet, 'KILLS', 2)
        monkeypatch.setattr(fleet, '_LOOK', 0.5)
        monkeypatch.setattr(fleet, '_REPLACED', 5.0)
        request = Request(str(tmp_path / 'out'), overrides=PARAMETERS, robot_from='folder')
        summary = fleet.estimate([*stuck, good], request,
                                 lambda: fleet.workers(2, '', ''), lambda *_: None)
        thread.join(PATIENCE)
    assert killed == ['hurt.mcap', 'deadly.mcap', 'deadly.mcap']
    assert summary.outcomes == {ESTIMATED: 2, BROKEN: 1}
    (failure,) = Catalogue(str(tmp_path / 'out')).query('SELECT * FROM failures')
    assert failure['bag'] == str(deadly)
    assert '2 workers were ended' in failure['reason']


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_ended_early_is_continued(
    client: Client, bags: Path, tmp_path: Path, number: signal.Signals
) -> None:
    large = bags / 'arm_2' / 'runs.mcap'
    output = tmp_path / 'out'
    program = [sys.executable, '-m', 'robocal_ros.cli.main', 'fleet', 'estimate', str(bags),
               '-o', str(output), '--workers', '2', '--robot-from', 'folder', *OPTIONS]
    with endless(large), subprocess.Popen(
            program, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True) as process:
        wait_for(lambda: len(list(output.glob('catalogue/bags/part-*.parquet'))) == 4
                 and readers(large), 'the other bags are not finished')
        # A terminal interrupts the workers, too.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        said, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), error
        assert b'Traceback' not in said + error
        wait_for(lambda: not readers(large), 'the workers live on')
    write_runs(tmp_path / 'real')
    (next((tmp_path / 'real').glob('*.mcap'))).rename(large)
    summary = estimate(client, find_bags([str(bags)]), output)
    assert (summary.repeated, summary.outcomes) == (4, {ESTIMATED: 1})


def test_failures_of_one_reason_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.OUT, '_width', 200)
    for number in range(9):
        Catalogue(str(tmp_path)).add(tried(
            1.7e9 + number, REFUSED, bag=f'bags/{number}', kind='payload',
            reason='No mass.' if number else 'Cut off.'))
    assert main(['fleet', 'show', str(tmp_path)]) == 0
    failures = [line for line in capsys.readouterr().out.splitlines() if line.startswith('✗')]
    assert failures == ['✗ bags/8 and 7 more, payload: No mass.', '✗ bags/0, payload: Cut off.']
    assert main(['fleet', 'show', str(tmp_path), '--failures', '1']) == 0
    assert '… and 1 more; robocal fleet show lists them with --failures 2.' in (
        capsys.readouterr().out)


def test_the_catalogue_is_shown(
    bags: Path, tmp_path: Path, client: Client, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / 'out'
    monkeypatch.setattr(command.OUT, '_width', 200)
    monkeypatch.setattr('robocal_ros.fleet.run.workers', lambda *_: nullcontext(client))
    # A parameter of another capability.
    words = ['fleet', 'estimate', str(bags), '-o', str(output), '--robot-from', 'folder',
             '-p', 'known_mass:=1.0']
    assert main([*words, *OPTIONS]) == 1
    said = capsys.readouterr().out
    assert '4 bags; 3 new results (3 pass).' in said
    assert 'corrupt.mcap: Bag' in said
    assert main(['fleet', 'show', str(output)]) == 0
    said = capsys.readouterr().out
    assert [line.split()[:3] for line in said.splitlines() if 'arm_' in line] == [
        ['arm_0', 'friction', '2'], ['arm_1', 'friction', '1']]
    assert 'corrupt.mcap' in said
    assert main(['fleet', 'show', str(output), '--robot', 'arm_1', '--parameter',
                 'elbow.coulomb_*']) == 0
    said = capsys.readouterr().out
    assert said.count('arm_1') == 2
    assert main(['fleet', 'show', str(output), '--parameter', 'mass']) == 2
    assert 'there are: coulomb_backward' in capsys.readouterr().err
    assert main(['fleet', 'show', str(output), '--robot', 'arm_l']) == 2
    assert "No robot is named 'arm_l'; 'arm_1' is the nearest name" in capsys.readouterr().err
    assert main(['fleet', 'show', str(tmp_path)]) == 2
    assert 'holds no catalogue' in capsys.readouterr().err


def test_what_cannot_work_is_refused(
    bags: Path, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="'much' is no size"), fleet.workers(1, 'much',
                                                                                    ''):
        pass
    monkeypatch.setattr(fleet, '_ANSWER', '0.2s')
    with pytest.raises(ConfigurationError, match='No scheduler of Dask answers'), fleet.workers(
            1, '', 'tcp://127.0.0.1:1'):
        pass
    with fleet._alone(str(tmp_path)), pytest.raises(ConfigurationError, match='Another run'):
        estimate(client, find_bags([str(bags)]), tmp_path)
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigurationError, match='cannot be written'):
        estimate(client, find_bags([str(bags)]), tmp_path / 'file')


def test_an_existing_scheduler_is_used(client: Client) -> None:
    with fleet.workers(None, '', client.scheduler.address) as other:
        assert len(other.scheduler_info()['workers']) == 2
    assert isinstance(client.cluster.scheduler, Scheduler)
    assert client.run_on_scheduler(lambda: 'still there') == 'still there'
