# SPDX-License-Identifier: Apache-2.0
"""Nodes' parameter files, read without ROS."""

from __future__ import annotations

from pathlib import Path

import pytest

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError
from robocal_ros.estimators import estimator
from robocal_ros.offline import read_parameters
from robocal_ros.payload.parameters import PayloadParameters

CONFIG = Path(__file__).parents[2] / 'config'
NODE = 'payload_identification'


def read(tmp_path: Path, *texts: str, namespace: str = '', **overrides: str) -> PayloadParameters:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f'{number}.yaml')
        files[-1].write_text(text)
    return read_parameters(PayloadParameters, NODE, files, overrides, namespace)


@pytest.mark.parametrize('name', registry.estimators())
def test_the_files_of_the_package_are_the_defaults(name: str) -> None:
    item = estimator(name)
    assert read_parameters(item.table, item.node, [CONFIG / f'{item.node}.yaml']) == item.table()


@pytest.mark.parametrize('key', [
    NODE, f'/{NODE}', '/**', '/*', f'/**/{NODE}', '"**"'])
def test_names_that_fit_the_node(tmp_path: Path, key: str) -> None:
    assert read(tmp_path, f'{key}:\n  ros__parameters: {{poses: 9}}').poses == 9


@pytest.mark.parametrize(('key', 'namespace', 'fits'), [
    (f'/left/{NODE}', '/left', True), (f'/left/{NODE}', '/right', False),
    (f'/left/{NODE}', '', False), (NODE, '/left', False), (f'/**/{NODE}', '/a/b', True),
    (f'/*/{NODE}', '/a/b', False), ('/**', '/a/b', True), ('other', '', False)])
def test_namespaces(tmp_path: Path, key: str, namespace: str, fits: bool) -> None:
    values = read(tmp_path, f'{key}:\n  ros__parameters: {{poses: 9}}', namespace=namespace)
    assert (values.poses == 9) is fits


def test_nested_namespaces(tmp_path: Path) -> None:
    text = f'left:\n  {NODE}:\n    ros__parameters: {{poses: 9}}'
    assert read(tmp_path, text, namespace='left').poses == 9


def test_later_files_and_the_command_line_win(tmp_path: Path) -> None:
    texts = [f'{NODE}:\n  ros__parameters: {{poses: {n}, dwell: {n}.0}}' for n in (7, 8)]
    values = read(tmp_path, *texts, dwell='2.5', method='static_poses', joints='[a, b]')
    assert (values.poses, values.dwell) == (8, 2.5)
    assert (values.method, values.joints) == ('static_poses', ['a', 'b'])


def test_texts_stay_texts(tmp_path: Path) -> None:
    assert read(tmp_path, robot_name='12').robot_name == '12'


@pytest.mark.parametrize(('text', 'words'), [
    ('poses: 9.0', "'poses' is 9.0; it must be an integer"),
    ('dwell: 2', "'dwell' is 2; it must be a number with a point"),
    ('gravity: [0, 0, -9.81]', 'a list whose elements are each a number with a point'),
    ('method: [a]', 'it must be a string'), ('use_friction: 1', 'true or false'),
    ('poses: 3', 'expected 6 … 100'), ('method: weigh', "one of 'two_plane'"),
    ('known_mass: .nan', "'known_mass' is nan"), ('known_mass: 1.0e151', '1e+151'),
])
def test_values_that_do_not_fit(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f'{NODE}:\n  ros__parameters:\n    {text}')
    assert words in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='cannot be read'):
        read_parameters(PayloadParameters, NODE, [tmp_path / 'none.yaml'])


def test_unknown_names_of_the_command_line_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'mass' is not a parameter .*of .*known_mass"):
        read(tmp_path, mass='2.0')
