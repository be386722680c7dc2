# SPDX-License-Identifier: Apache-2.0
"""`robocal run`: call the procedure of a node, show its progress, cancel it on Ctrl-C."""

from __future__ import annotations

import argparse

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
        client.make_active(parameters, options.timeout, configure=options.configure)
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
