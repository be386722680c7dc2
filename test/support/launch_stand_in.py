# SPDX-License-Identifier: Apache-2.0
"""A stand-in for `launch` and `launch_ros`, which are not on PyPI.

It evaluates a launch file and notes what would be started, where the real one starts it. Only
what the launch files of this package use is there, under the names and with the meaning that
launch 3.4 (Jazzy) gives it; anything else is an ImportError or a TypeError.
"""

from __future__ import annotations

import runpy
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import xacro
import yaml

from support import ROOT


@dataclass
class Started:
    """A process that launch would start, with its parameters, remappings and arguments."""

    package: str
    executable: str
    name: str
    namespace: str
    files: list[str]
    values: dict[str, Any]
    remappings: dict[str, str]
    arguments: list[str]
    action: Any


@dataclass
class Context:
    """Replacement of launch.LaunchContext that records the actions."""

    launch_configurations: dict[str, str]
    is_shutdown: bool = False
    started: list[Started] = field(default_factory=list)
    included: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    handlers: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    def visit(self, entities: Iterable[Any] | None) -> None:
        """Execute actions and the actions that they return."""
        for entity in entities or ():
            condition = entity.options.get('condition')
            if condition is None or condition(self):
                self.visit(entity.execute(self))

    def process(self, executable: str) -> Started:
        """Return the only process of an executable."""
        (found,) = [item for item in self.started if item.executable == executable]
        return found


def text(item: Any, context: Context) -> str:
    """Return the text of a substitution, or of a list of them joined."""
    if isinstance(item, str):
        return item
    if isinstance(item, Sequence):
        return ''.join(text(part, context) for part in item)
    return str(item.perform(context))


def _substitution(perform: Callable[..., str]) -> Callable[..., Any]:
    """Return a substitution class from its perform function."""
    class Substitution:
        def __init__(self, *args: Any, **options: Any) -> None:
            self._args, self._options = args, options

        def perform(self, context: Context) -> str:
            return perform(context, *self._args, **self._options)

    return Substitution


@cache
def _expanded(file: str, mappings: tuple[tuple[str, str], ...]) -> str:
    return str(xacro.process_file(file, mappings=dict(mappings)).toxml())


def _command(context: Context, command: Any, *, on_stderr: str) -> str:
    program, file, *pairs = shlex.split(text(command, context))
    assert (program, on_stderr) == ('xacro', 'warn')
    assert all(':=' in pair for pair in pairs)
    return _expanded(file, tuple(tuple(pair.split(':=', 1)) for pair in pairs))  # type: ignore[misc]


def _true(value: str) -> bool:
    return {'true': True, '1': True, 'false': False, '0': False}[value.lower()]


SUBSTITUTIONS = {
    'LaunchConfiguration': lambda context, name: context.launch_configurations[name],
    'PathJoinSubstitution': lambda context, parts: '/'.join(text(p, context) for p in parts),
    'PythonExpression': lambda context, parts: str(eval(text(parts, context), {})),
    'EqualsSubstitution': lambda context, a, b: str(text(a, context) == text(b, context)),
    'NotEqualsSubstitution': lambda context, a, b: str(text(a, context) != text(b, context)),
    'AndSubstitution': lambda context, a, b: str(
        _true(text(a, context)) and _true(text(b, context))),
    'IfElseSubstitution': lambda context, condition, this, other: text(
        this if _true(text(condition, context)) else other, context),
    'Command': _command,
}


class Action:
    """Base of all actions: arguments and condition."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.args, self.options = args, options

    def execute(self, context: Context) -> Iterable[Any] | None:
        """Execute the action; return further actions."""
        raise NotImplementedError


class DeclareLaunchArgument(Action):
    """Sets the default; refuses values that are not among the choices."""

    def execute(self, context: Context) -> None:
        (name,) = self.args
        value = context.launch_configurations.setdefault(name, self.options['default_value'])
        choices = self.options.get('choices')
        if choices and value not in choices:
            raise RuntimeError(f'Argument "{name}" provided value "{value}" is not valid.')


class SetLaunchConfiguration(Action):
    def execute(self, context: Context) -> None:
        name, value = self.args
        context.launch_configurations[name] = text(value, context)


class OpaqueFunction(Action):
    def execute(self, context: Context) -> Iterable[Any] | None:
        function: Callable[..., Iterable[Any] | None] = self.options['function']
        return function(context, *self.options.get('args', ()))


class GroupAction(Action):
    def execute(self, context: Context) -> Iterable[Any]:
        assert self.options['scoped'] is False
        return list(self.options['actions'])


class LogInfo(Action):
    def execute(self, context: Context) -> None:
        context.said.append(text(self.options['msg'], context))


class RegisterEventHandler(Action):
    def execute(self, context: Context) -> None:
        context.handlers.append(*self.args)


class EmitEvent(Action):
    def execute(self, context: Context) -> None:
        context.events.append(self.options['event'])


class Shutdown(Action):
    def execute(self, context: Context) -> None:
        context.events.append(self)


class IncludeLaunchDescription(Action):
    def execute(self, context: Context) -> None:
        context.included.append((text(self.args[0], context), {
            name: text(value, context) for name, value in self.options['launch_arguments']}))


class ExecuteProcess(Action):
    def execute(self, context: Context) -> None:
        program, *words = (text(word, context) for word in self.options['cmd'])
        context.started.append(Started('', program, '', '', [], {}, {}, words, self))


class Node(Action):
    def execute(self, context: Context) -> None:
        options = dict(self.options)
        known = {name: text(options.get(name, ''), context)
                 for name in ('package', 'executable', 'name', 'namespace')}
        files, values = [], {}
        for entry in options.get('parameters', ()):
            if isinstance(entry, Mapping):
                values = {name: _value(value, context) for name, value in entry.items()}
            else:
                assert not values, 'a file behind the values'
                files.append(text(entry, context))
        context.started.append(Started(
            **known, files=files, values=values, action=self,
            remappings={old: text(new, context) for old, new in options.get('remappings', ())},
            arguments=[text(word, context) for option in ('arguments', 'ros_arguments')
                       for word in options.get(option, ())]))


class LifecycleNode(Node):
    """A lifecycle node."""


@dataclass(frozen=True)
class ParameterValue:
    """A parameter whose type is known."""

    value: Any
    value_type: type[Any]


def _value(value: Any, context: Context) -> Any:
    if isinstance(value, ParameterValue):
        return value.value_type(text(value.value, context))
    return value if isinstance(value, bool) else yaml.safe_load(text(value, context))


class Options:
    """Arguments of an event handler or event."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.args, self.options = args, options


def _share(context: Context, package: str) -> str:
    return str(ROOT) if package == 'robocal_ros' else f'/share/{package}'


def _launch_description(entities: Iterable[Any]) -> list[Any]:
    return list(entities)


def _modules() -> dict[str, dict[str, Any]]:
    actions = {kind.__name__: kind for kind in (
        DeclareLaunchArgument, SetLaunchConfiguration, OpaqueFunction, GroupAction, LogInfo,
        RegisterEventHandler, EmitEvent, Shutdown, IncludeLaunchDescription, ExecuteProcess)}
    return {
        'launch': {
            'LaunchContext': Context, 'LaunchDescription': _launch_description,
            'Condition': lambda *, predicate: predicate},
        'launch.action': {'Action': Action},
        'launch.actions': actions,
        'launch.conditions': {
            'IfCondition': lambda item: lambda context: _true(text(item, context)),
            'UnlessCondition': lambda item: lambda context: not _true(text(item, context))},
        'launch.event_handlers': {'OnProcessExit': Options},
        'launch.events': {'matches_action': lambda action: action},
        'launch.events.process': {'ProcessExited': Options},
        'launch.substitutions': {
            name: _substitution(perform) for name, perform in SUBSTITUTIONS.items()},
        'launch_ros': {},
        'launch_ros.actions': {'Node': Node, 'LifecycleNode': LifecycleNode},
        'launch_ros.event_handlers': {'OnStateTransition': Options},
        'launch_ros.events': {},
        'launch_ros.events.lifecycle': {'ChangeState': Options},
        'launch_ros.parameter_descriptions': {'ParameterValue': ParameterValue},
        'launch_ros.substitutions': {'FindPackageShare': _substitution(_share)},
    }


def launched(monkeypatch: pytest.MonkeyPatch, name: str, **arguments: str) -> Context:
    """Evaluate a launch file and return the recorded context."""
    for module_name, content in _modules().items():
        module = ModuleType(module_name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, module_name, module)
    file = runpy.run_path(str(ROOT / 'launch' / name))
    context = Context(dict(arguments))
    context.visit(file['generate_launch_description']())
    return context
