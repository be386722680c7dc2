# SPDX-License-Identifier: Apache-2.0
"""Which topics a recorder takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.io.strict import Section, load


@dataclass(frozen=True)
class RecorderProfile:
    """What is recorded.

    Attributes:
        topics: Topics by name, relative ones within the namespace.
        types: Types of which every topic in the namespace is recorded.
        needed: Topics without which there is nothing to record.

    """

    topics: tuple[str, ...]
    types: tuple[str, ...]
    needed: tuple[str, ...]

    def chosen(self, there: Mapping[str, Sequence[str]], namespace: str) -> dict[str, str]:
        """Return the topics to record, with their types.

        Args:
            there: Types of every topic of the graph by its full name.
            namespace: Namespace of the robot.

        """
        named = {full_name(name, namespace) for name in (*self.topics, *self.needed)}
        space = full_name('', namespace)
        return {topic: kinds[0] for topic, kinds in there.items() if kinds and (
            topic in named or (kinds[0] in self.types and topic.startswith(space)))}

    def missing(self, there: Mapping[str, Sequence[str]], namespace: str) -> list[str]:
        """Return the needed topics that are not there."""
        return [name for name in (full_name(item, namespace) for item in self.needed)
                if name not in there]


def full_name(name: str, namespace: str) -> str:
    """Return a topic's full name; a relative one is within the namespace."""
    if name.startswith('/'):
        return name
    return f'/{namespace.strip("/")}/{name}'.replace('//', '/')


def read_profile(path: Path) -> RecorderProfile:
    """Read a profile.

    Raises:
        ConfigurationError: If the file cannot be read.
        FileFormatError: If it is no profile.

    """
    try:
        text = path.read_text(encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f"The recorder profile '{path}' cannot be read: {error.strerror}. Correct its name."
        ) from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"'{path}' is not text in UTF-8; expected YAML.") from error
    profile = Section(str(path), '', load(text, str(path)), ('recorder',)).section(
        'recorder', ('topics', 'types', 'needed'))
    return RecorderProfile(*(profile.unique_texts(key) for key in ('topics', 'types', 'needed')))
