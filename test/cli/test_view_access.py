# SPDX-License-Identifier: Apache-2.0
"""`robocal view`: only its own page, loaded with the access token, is served."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from support.domains import free_port

from robocal_ros.cli.arguments import build_parser
from robocal_ros.errors import ConfigurationError

viser = pytest.importorskip('viser')
from websockets.exceptions import InvalidStatus  # noqa: E402
from websockets.sync.client import connect  # noqa: E402
from websockets.typing import Origin, Subprotocol  # noqa: E402

from robocal_ros.cli.view_access import GuardedServer  # noqa: E402


@pytest.fixture(scope='module')
def guarded() -> Iterator[GuardedServer]:
    made = GuardedServer('127.0.0.1', free_port())
    yield made
    made.close()


def first_message(address: str, origin: str | None, to: str = '127.0.0.1') -> object:
    """Return the first message that a WebSocket receives; addresses as in a browser."""
    port = urlsplit(address).port
    with (
        socket.create_connection((to, port), 10.0) as stream,
        connect(address.replace('http:', 'ws:'), sock=stream, proxy=None,
                origin=None if origin is None else Origin(origin),
                subprotocols=[Subprotocol(f'viser-v{viser.__version__}')]) as client,
    ):
        return client.recv(10.0)


def refused(address: str, origin: str | None) -> str:
    with pytest.raises(InvalidStatus) as caught:
        first_message(address, origin)
    assert caught.value.response.status_code == 403
    return caught.value.response.body.decode()


def origin_of(address: str) -> str:
    return address.rpartition('/')[0].rpartition('/')[0]


def test_the_page_of_the_printed_address_is_served(guarded: GuardedServer) -> None:
    assert first_message(guarded.address, origin_of(guarded.address))


@pytest.mark.parametrize('name', ['localhost', socket.gethostname()])
def test_names_of_this_machine_and_ports_of_a_tunnel_are_served(
    guarded: GuardedServer, name: str
) -> None:
    address = guarded.address.replace('127.0.0.1', name)
    assert first_message(address, origin_of(address))
    # What `ssh -L 9999:localhost:8080` sends.
    port = guarded.server.get_port()
    with socket.create_connection(('127.0.0.1', port), 10.0) as stream, connect(
            address.replace('http:', 'ws:').replace(str(port), '9999'), sock=stream, proxy=None,
            origin=Origin(f'http://{name}:9999'),
            subprotocols=[Subprotocol(f'viser-v{viser.__version__}')]) as client:
        assert client.recv(10.0)


@pytest.mark.parametrize('origin', [
    'http://evil.example', 'http://127.0.0.1', 'http://127.0.0.1:1', 'null', '', None])
def test_pages_of_other_origins_are_refused(guarded: GuardedServer, origin: str | None) -> None:
    told = refused(guarded.address, origin)
    assert 'robocal view prints' in told
    assert 'token' in told
    assert guarded.address.split('/')[-2] not in told


def test_a_stranger_s_name_that_points_at_this_machine_is_refused(
    guarded: GuardedServer
) -> None:
    address = guarded.address.replace('127.0.0.1', 'evil.example')
    refused(address, origin_of(address))


@pytest.mark.parametrize('token', ['', 'wrong/', '%ff/', 'é/'.encode().decode('latin-1')])
def test_a_missing_or_wrong_token_is_refused(guarded: GuardedServer, token: str) -> None:
    origin = origin_of(guarded.address)
    refused(f'{origin}/{token}', origin)
    refused(guarded.address[:-2], origin)


def get(guarded: GuardedServer, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection('127.0.0.1', guarded.server.get_port(), timeout=10.0)
    connection.request('GET', path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_files_need_the_token_too(guarded: GuardedServer) -> None:
    path = urlsplit(guarded.address).path
    status, page = get(guarded, path)
    assert status == 200
    assert b'<!doctype html>' in page
    assert get(guarded, f'{path}?darkMode')[0] == 200
    assert get(guarded, f'{path}%2e%2e/%2e%2e/__init__.py')[0] == 404
    for wrong in ('/', '/index.html', f'/x{path}', f'/{path}'):
        assert get(guarded, wrong)[0] == 403
    assert get(guarded, path, Origin='http://evil.example')[0] == 403
    assert get(guarded, path, Host='evil.example')[0] == 403
    assert get(guarded, path, Host='[')[0] == 403
    # A protocol that viser does not take for a WebSocket is no way around the origin.
    assert get(guarded, path, Upgrade='WebSocket', Connection='Upgrade')[0] == 403


def test_the_default_is_this_machine_alone() -> None:
    options = build_parser().parse_args(['view'])
    made = GuardedServer(options.host, free_port())
    try:
        with pytest.raises(ConnectionRefusedError):
            first_message(made.address, None, to='127.0.0.2')
    finally:
        made.close()


def test_served_everywhere_it_accepts_each_address_of_this_machine() -> None:
    made = GuardedServer('0.0.0.0', free_port())
    try:
        assert urlsplit(made.address).hostname == socket.gethostname().lower()
        address = made.address.replace(socket.gethostname(), '127.0.0.2')
        assert first_message(address, origin_of(address), to='127.0.0.2')
        with pytest.raises(InvalidStatus):
            first_message(address, origin_of(address), to='127.0.0.3')
    finally:
        made.close()


def test_tokens_differ() -> None:
    tokens = set()
    for _ in range(2):
        made = GuardedServer('127.0.0.1', free_port())
        tokens.add(urlsplit(made.address).path)
        made.close()
    assert len(tokens) == 2
    assert all(len(token) > 40 for token in tokens)


def test_a_viser_that_cannot_be_guarded_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = pytest.importorskip('websockets.asyncio.server').serve
    made = []

    class Other(viser.ViserServer):
        """Opens its port with another function than the one that is wrapped."""

        def __init__(self, *arguments: object, **others: object) -> None:
            monkeypatch.setattr('websockets.asyncio.server.serve', serve)
            super().__init__(*arguments, **others)
            made.append(self.get_port())

    monkeypatch.setattr('viser.ViserServer', Other)
    with pytest.raises(ConfigurationError, match=r'cannot guard.*pip install viser=='):
        GuardedServer('127.0.0.1', free_port())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(('127.0.0.1', made[0]), 5.0)
