# SPDX-License-Identifier: Apache-2.0
"""Access control of `robocal view`: who may read its page, and press its buttons."""

from __future__ import annotations

import io
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any

import viser
from websockets.asyncio import server as websockets_server
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from robocal_ros.errors import ConfigurationError

_EVERYWHERE = ('', '0.0.0.0', '::')
_REFUSED = (
    'Refused. Only the address that robocal view prints is served: it contains an access token, '
    'and connections are accepted from its own page alone.\n')

_Handler = Callable[[ServerConnection, Request], 'Response | None']


class GuardedServer:
    """Server of viser behind an access token, and closed to pages of other origins.

    A request is answered if all of these hold; otherwise it gets 403:

    - Its path begins with the token. The page connects to the path that it was loaded from.
    - Its ``Host`` is an address or name of this machine, so that no name of a stranger can be
      pointed at this machine (DNS rebinding).
    - Its ``Origin`` is that host. Pages of other origins, which may connect to WebSockets
      anywhere, differ; only requests for the page itself may lack it.

    Attributes:
        server: The server of viser.
        address: Address of the page, with the token.

    """

    def __init__(self, host: str, port: int) -> None:
        """Start the server.

        Args:
            host: Address or name to serve at.
            port: First port to try.

        Raises:
            ConfigurationError: If no port is available, or viser cannot be guarded.

        """
        self._token = secrets.token_urlsafe(32)
        this = socket.gethostname()
        self._names = {name.lower() for name in (host, this, f'{this}.local', 'localhost')}
        self._guards = False
        # viser has no parameter for it, and a proxy would leave viser's own port open.
        serve = websockets_server.serve
        websockets_server.serve = partial(self._serve, serve)  # type: ignore[assignment,misc]
        try:
            # It prints its addresses, of which a user needs one.
            with redirect_stdout(io.StringIO()):
                self.server = viser.ViserServer(host, port, verbose=False)
        except OSError as error:
            raise ConfigurationError(
                f'Port {port} of {host} is not available ({error.strerror}). '
                'Choose another with --port.') from error
        finally:
            websockets_server.serve = serve  # type: ignore[misc]
        if not self._guards:
            self.close()
            raise ConfigurationError(
                f'viser {viser.__version__} accepts connections in a way that robocal view cannot '
                "guard. Install a version that was tested: 'pip install viser==1.1.1'.")
        shown = this if host in _EVERYWHERE else f'[{host}]' if ':' in host else host
        self.address = f'http://{shown}:{self.server.get_port()}/{self._token}/'

    def close(self) -> None:
        """End the server."""
        with redirect_stdout(io.StringIO()):
            self.server.stop()

    def _serve(
        self, serve: Callable[..., Any], *arguments: Any, process_request: _Handler, **others: Any
    ) -> Any:
        self._guards = True
        return serve(*arguments, process_request=partial(self._process, process_request), **others)

    def _process(
        self, answer: _Handler, connection: ServerConnection, request: Request
    ) -> Response | None:
        token, _, rest = request.path.removeprefix('/').partition('?')[0].partition('/')
        hosts, origins = (request.headers.get_all(name) for name in ('Host', 'Origin'))
        own = {*self._names, connection.local_address[0]} - {''}
        names = {re.sub(r':\d+$', '', host).strip('[]').lower() for host in hosts}
        if not (secrets.compare_digest(token.encode(), self._token.encode())
                and len(hosts) == 1 and names <= own
                and (origins == [f'http://{hosts[0]}']
                     or not (origins or 'Upgrade' in request.headers))):
            return connection.respond(HTTPStatus.FORBIDDEN, _REFUSED)
        return answer(connection, replace(request, path=f'/{rest}'))
