# SPDX-License-Identifier: Apache-2.0
"""`robocal run`: call the procedure of a node, show its progress, cancel it on Ctrl-C."""

from __future__ import annotations

import argparse
from typing import Any

from robocal_ros import registry
from robocal_ros.cli.console import ERRORS, ProgressView, print_line
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import ConfigurationError
from robocal_ros.parameters import given_value


def run(options: argparse.Namespace) -> int:
    """Run the procedure.

    Returns:
        0 if the node answers success, 1 otherwise.

    Raises:
        RobocalError: If the node is not running or not active.
        KeyboardInterrupt: After the procedure was cancelled.

    """
    procedure = registry.procedures()[options.capability]
    name = f'{options.namespace.rstrip("/")}/{options.node or procedure.node}'
    parameters = {given: given_value(given, value) for given, value in options.param}
    if parameters and not options.configure:
        raise ConfigurationError('Parameters are read when a node is configured: give '
                                 '--configure too.')
    with RosSession('robocal_run') as session:
        verb = options.verb or procedure.verb
        client = NodeClient(session, name, verb)
        client.wait_until_there(options.timeout)
        make_active(client, parameters, configure=options.configure, timeout=options.timeout)
        with ProgressView(options.capability.replace('_', ' ')) as view:
            try:
                answer = client.call(verb, view.update)
            except KeyboardInterrupt:
                # The call has cancelled the procedure and received the answer.
                print_line(f"Cancelled. The node reports: {client.status.message or 'nothing'}",
                           console=ERRORS)
                raise
    print_line(answer.message, 'green' if answer.success else 'red')
    return 0 if answer.success else 1


def make_active(
    client: NodeClient, parameters: dict[str, Any], *, configure: bool, timeout: float
) -> None:
    """Activate a node, with a new configuration if there are parameters.

    One with ``autostart`` that was just launched is waited for [s].

    Raises:
        ConfigurationError: If it is not active and must not be configured.

    """
    if parameters:
        client.check_names(parameters)
    state = client.state() if configure else client.await_autostart(timeout)
    if state == 'active' and not parameters:
        return
    if not configure:
        why = client.status.message
        raise ConfigurationError(
            f"Node '{client.name}' is {state}, not active.{f' {why}' if why else ''} Give "
            f"--configure, or call 'ros2 lifecycle set {client.name} configure' and "
            f"'ros2 lifecycle set {client.name} activate'.")
    if client.running:
        raise ConfigurationError(
            f"A procedure of node '{client.name}' is under way ({client.running}), and a new "
            "configuration would end it. Wait for its end, or call '~/cancel'.")
    if parameters:
        client.lead_to('unconfigured')
        client.set_parameters(parameters)
    client.lead_to('active')
