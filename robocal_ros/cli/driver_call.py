# SPDX-License-Identifier: Apache-2.0
"""Call of the service by which a driver takes a payload, its confirmation, and what undoes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from robocal_ros.cli.console import print_line
from robocal_ros.cli.node_client import RosSession
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.files import read_text, write_output

_CALL = 'ros2 service call '
# Longest waits for a service and for its answer [s], and time in which a second one follows the
# first: that of another arm.
_FOUND, _ANSWERED, _MORE = 5.0, 10.0, 1.0
# Ends a call that may have been taken.
_UNKNOWN = '  # not answered'


def send(lines: Iterable[str], sent: Path) -> None:
    """Call the service of a driver, and show its answer and what undoes it.

    Args:
        lines: Lines that contain its call, in the forms of all versions of its type.
        sent: File of the calls that were sent, to which this one is added.

    Raises:
        ConfigurationError: If the service or its type is not there.
        RobocalError: If the driver does not answer, or refuses the values.

    """
    calls = [line for line in lines if line.startswith(_CALL)]
    forms = [shlex.split(call.removeprefix(_CALL)) for call in calls]
    if len({(name, kind) for name, kind, _ in forms}) != 1:
        raise ConfigurationError(
            '--send needs an arm whose driver is recognised by its URDF and has a service for '
            'payloads. Enter the values above by hand.')
    name, kind, _ = forms[0]
    package, _, own = kind.partition('/srv/')
    earlier = read_text(sent, 'file of calls').splitlines() if sent.exists() else []
    with RosSession('robocal_apply') as session:
        def served() -> list[str]:
            return [found for found, _ in session.node.get_service_names_and_types()
                    if found.endswith(name)]

        session.spin_until(lambda: bool(served()), _FOUND)
        session.spin_until(lambda: len(served()) > 1, _MORE)
        if len(found := served()) != 1:
            raise ConfigurationError(
                f"Expected one service '{name}' in this ROS domain, got {len(found)}"
                f'{": " if found else ""}{", ".join(found)}. Start the driver of this arm alone, '
                'or call it as above.')
        try:
            service = getattr(import_module(f'{package}.srv'), own)
        except ModuleNotFoundError:
            raise ConfigurationError(f'{package} is not installed here. Source the workspace of '
                                     'the driver, or call it as above.') from None
        requests = [(call, service.Request()) for call in calls]
        fitting = [(call, request) for (call, request), form in zip(requests, forms, strict=True)
                   if filled(request, yaml.safe_load(form[2]))]
        if not fitting:
            raise ConfigurationError(f'{kind} has other fields here than in the calls above.')
        call, request = fitting[0]
        client: Any = session.node.create_client(service, found[0])
        # An answer to a client that the driver does not know yet is lost.
        session.spin_until(client.service_is_ready, _FOUND)
        future = client.call_async(request)
        if not session.spin_until(future.done, _ANSWERED):
            write_output(sent, '\n'.join((*earlier, call + _UNKNOWN)) + '\n', 'file of calls')
            raise RobocalError(f"'{found[0]}' has not answered within {_ANSWERED:.0f} s: whether "
                               'it has taken the payload is not known. See the log of the driver.')
        answer = future.result()
    said = str(getattr(answer, 'message', getattr(answer, 'error', '')))
    # UFACTORY's answers have 0 for success.
    if not getattr(answer, 'success', getattr(answer, 'ret', 0) == 0):
        raise RobocalError(f"'{found[0]}' has refused the payload: {said or answer}.")
    print_line(f"\n'{found[0]}' has taken the payload{f': {said}' if said else ''}.", 'green')
    answered = [number for number, line in enumerate(earlier) if not line.endswith(_UNKNOWN)]
    # Those after the newest one that was taken may have been, too.
    if before := earlier[answered[-1] if answered else 0:]:
        print_line('\n  '.join((
            'To undo it, send the one of before:' if len(before) == len(answered[-1:]) else
            'To undo it, send the one that the driver had; which one is not known, because it has '
            'not answered each:', *before)))
    else:
        print_line(f'What the driver had before is not known; it is in its own settings. The next '
                   f'--send shows how to return to this one, which is noted in {sent}.')
    write_output(sent, '\n'.join((*earlier, call)) + '\n', 'file of calls')


def filled(message: Any, values: Mapping[str, Any]) -> bool:
    """Set fields of a message; return whether it has them all."""
    for name, value in values.items():
        if not hasattr(message, name):
            return False
        if isinstance(value, Mapping):
            if not filled(getattr(message, name), value):
                return False
        elif isinstance(value, list):
            setattr(message, name, list(map(float, value)))
        else:
            setattr(message, name, type(getattr(message, name))(value))
    return True
