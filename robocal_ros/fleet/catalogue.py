# SPDX-License-Identifier: Apache-2.0
"""Catalogue of a fleet's results: Parquet files, written in parts, queried with DuckDB.

In the output folder of a fleet::

    results/<robot>/<kind>-<inputs>.yaml    result files
    catalogue/results/*.parquet             one row per parameter and result, `RESULTS`
    catalogue/bags/*.parquet                one row per bag, robot and kind tried, `BAGS`

Each result and each bag adds a part of its own, so that writers need no lock and an interrupted
one leaves nothing half-written. `Catalogue.compact` merges the parts of a table into one file. The
metadata of that file name the parts in it: a part that an interrupted compaction did not remove is
not read twice.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet import storage
from robocal_ros.results import CalibrationResult

Query = Callable[..., list[dict[str, Any]]]
"""Returns the rows of an SQL query, columns by name, given the query and its parameters."""

_TYPES = {
    **dict.fromkeys(('value', 'std', 'freedom', 'temperature', 'seconds'), pa.float64()),
    **dict.fromkeys(('time', 'tried'), pa.timestamp('us', 'UTC'))}


def _schema(columns: str) -> pa.Schema:
    """Return a schema; columns are texts unless `_TYPES` has them."""
    return pa.schema([(name, _TYPES.get(name, pa.string())) for name in columns.split()])


RESULTS = _schema(
    'robot kind method verdict parameter joint quantity unit value std freedom state time '
    'temperature bag bag_sha256 urdf_sha256 settings_sha256 inputs_sha256 result version')
"""One row per parameter of a result.

``parameter`` is its full name, ``joint`` and ``quantity`` its two parts (``joint`` is empty for a
parameter of no joint); ``value``, ``std`` and ``freedom`` are null where the result has none;
``time`` is the stamp of the newest sample, ``temperature`` the mean of the joint during the
measurement, or of all joints [°C]; ``result`` is the result file's path within the output folder.
"""

BAGS = _schema('bag fingerprint bag_sha256 request_sha256 robot kind outcome reason inputs_sha256 '
               'result tried seconds version')
"""One row per bag, robot and kind that was tried.

``fingerprint`` is of sizes and dates of the bag's files, ``request_sha256`` of the options;
``robot`` and ``kind`` are empty for what concerns the whole bag. ``outcome`` is `ESTIMATED`,
`REFUSED`, `BROKEN` or `SKIPPED`.
"""

ESTIMATED = 'estimated'
"""There is a result, whatever its verdict."""
REFUSED = 'refused'
"""The bag does not allow an estimate; trying again with the same inputs leads nowhere."""
BROKEN = 'broken'
"""Storage, memory or a worker failed; the next run tries again."""
SKIPPED = 'skipped'
"""The bag answers nothing of what was asked."""

_PART, _WHOLE = 'part-', 'whole-'
_MERGED = b'robocal.merged'
# Rows of a table in a file that are read or skipped together.
_GROUP = 1 << 17

# The newest attempt at each robot and kind of a bag; an attempt at a whole bag is outdated by any
# later one. Results are outdated by those of a later attempt at the same bag, robot and kind.
_VIEWS = f"""
CREATE VIEW attempts AS
    SELECT * FROM bags
    QUALIFY tried = max(tried) OVER (PARTITION BY bag, robot, kind)
        AND (kind <> '' OR tried = max(tried) OVER (PARTITION BY bag));
CREATE VIEW failures AS
    SELECT bag, robot, kind, reason, outcome, tried, version FROM attempts
    WHERE outcome IN ('{REFUSED}', '{BROKEN}');
CREATE VIEW results AS
    SELECT * FROM all_results WHERE result NOT IN (
        SELECT result FROM bags WHERE outcome = '{ESTIMATED}'
        EXCEPT SELECT result FROM attempts WHERE outcome = '{ESTIMATED}')
"""


def rows_of(result: CalibrationResult, time: float, /, **origin: str) -> pa.Table:
    """Return the rows of a result, of schema `RESULTS`.

    Args:
        result: The result.
        time: Time of the measurement, in seconds since 1970.
        **origin: The columns that are not in the result: ``bag`` is the URI of the bag, ``result``
            the path of the result file within the output folder, ``bag_sha256``,
            ``settings_sha256`` and ``inputs_sha256`` hash the bag's content, the parameters, and
            all that the result depends on.

    """
    temperatures: Mapping[str, float] = result.settings.get('temperatures') or {}
    mean = sum(temperatures.values()) / len(temperatures) if temperatures else None
    rows = []
    for item in result.parameters:
        joint, quantity = parts_of(item.name, result.robot.joint_names)
        rows.append({
            'robot': result.robot.name, 'kind': result.kind, 'method': result.method,
            'verdict': result.verdict.value, 'parameter': item.name, 'joint': joint,
            'quantity': quantity, 'unit': item.unit, 'value': item.value, 'std': item.std,
            'freedom': item.freedom, 'state': item.state.value, 'time': utc(time),
            'temperature': _finite(temperatures.get(joint, mean)),
            'urdf_sha256': result.robot.urdf_sha256, 'version': result.software_version,
            **origin})
    return pa.Table.from_pylist(rows, RESULTS)


def parts_of(parameter: str, joint_names: Sequence[str]) -> tuple[str, str]:
    """Return joint and quantity of a parameter's name; the joint is empty if it names none.

    ``a+b.quantity`` belongs to two joints.
    """
    joint, sign, quantity = parameter.rpartition('.')
    if sign and all(name in joint_names for name in joint.split('+')):
        return joint, quantity
    return '', parameter


def utc(seconds: float) -> datetime:
    """Return the instant of seconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


class Catalogue:
    """Catalogue in the output folder of a fleet."""

    def __init__(self, output: str) -> None:
        """Set the folder, which is created by the first part.

        Args:
            output: Path or URI of the output folder.

        """
        self.output = storage.absolute(output)
        self._tables = {
            'all_results': (storage.joined(self.output, 'catalogue', 'results'), RESULTS),
            'bags': (storage.joined(self.output, 'catalogue', 'bags'), BAGS)}

    # ---------------------------------------------------------------------- writing

    def add(self, rows: pa.Table) -> None:
        """Add rows of `RESULTS` or `BAGS` as a part; adding the same again changes nothing.

        Raises:
            OSError: If it cannot be written.

        """
        folder, schema = self._tables[
            'bags' if 'fingerprint' in rows.column_names else 'all_results']
        buffer = pa.BufferOutputStream()
        pq.write_table(rows.select(schema.names).cast(schema), buffer, compression='zstd')
        content = buffer.getvalue().to_pybytes()
        name = f'{_PART}{hashlib.sha256(content).hexdigest()[:24]}.parquet'
        storage.write_bytes(storage.joined(folder, name), content)

    def compact(self) -> None:
        """Merge the parts of each table into one file; call it from one process at a time.

        Rows that occur twice are written once. Readers may go on reading.
        """
        keys = {'all_results': 'result, parameter',
                'bags': 'bag, request_sha256, robot, kind, inputs_sha256'}
        orders = {'all_results': 'robot, kind, parameter, time', 'bags': 'bag, robot, kind, tried'}
        for table, (folder, schema) in self._tables.items():
            names = storage.names_in(folder)
            files = _current(folder, names)
            outdated = [name for name in names if name not in files]
            if len(files) < 2 and not outdated:
                continue
            if len(files) > 1:
                newest = 'tried' if table == 'bags' else 'version'
                with self._connection() as connection:
                    reader = connection.sql(
                        f'SELECT * FROM {table} QUALIFY row_number() OVER '
                        f'(PARTITION BY {keys[table]} ORDER BY {newest} DESC) = 1 '
                        f'ORDER BY {orders[table]}').to_arrow_reader(_GROUP)
                    self._write_whole(folder, reader, schema, names)
                outdated = names
            storage.remove(storage.joined(folder, name) for name in outdated)

    @staticmethod
    def _write_whole(
        folder: str, reader: Any, schema: pa.Schema, merged: Sequence[str]
    ) -> None:
        generation = 1 + max((_generation(name) for name in merged), default=0)
        own = schema.with_metadata({_MERGED: json.dumps(list(merged)).encode()})
        buffer = pa.BufferOutputStream()
        with pq.ParquetWriter(buffer, own, compression='zstd') as writer:
            for batch in reader:
                writer.write_table(pa.Table.from_batches([batch]).cast(own), _GROUP)
        storage.write_bytes(storage.joined(folder, f'{_WHOLE}{generation:08d}.parquet'),
                            buffer.getvalue().to_pybytes())

    # ---------------------------------------------------------------------- reading

    @contextmanager
    def connect(self) -> Iterator[Query]:
        """Open the catalogue; yields a function that returns the rows of a query on its views.

        The views: ``results`` (schema `RESULTS`: the newest estimate from each bag, robot and
        kind), ``all_results`` (those of earlier versions and parameters, too), ``bags`` (schema
        `BAGS`), ``attempts`` (its newest rows), and ``failures`` (bag, robot, kind, reason,
        outcome, tried, version).

        Raises:
            ConfigurationError: If a file of the catalogue cannot be read.

        """
        with self._connection() as connection:
            # DuckDB's own fetchall needs a further library for times with a zone.
            yield lambda sql, parameters=(): connection.sql(
                sql, params=list(parameters)).to_arrow_table().to_pylist()

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the rows of an SQL query on the views of `connect`; times are of UTC."""
        with self.connect() as query:
            return query(sql, parameters)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        if not storage.is_local(self.output):
            connection.register_filesystem(storage.opened(self.output)[0])
        try:
            for table, (folder, schema) in self._tables.items():
                files = [storage.joined(folder, name)
                         for name in _current(folder, storage.names_in(folder))]
                if files:
                    connection.read_parquet(files).create_view(table)
                else:
                    connection.register(table, schema.empty_table())
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            connection.close()
            raise ConfigurationError(
                f'The catalogue in {self.output} cannot be read: {error}. If another run is '
                'compacting it, try again; otherwise remove the file named.') from error
        connection.execute(_VIEWS)
        return connection


def _generation(name: str) -> int:
    number = name.removeprefix(_WHOLE).removesuffix('.parquet')
    return int(number) if name.startswith(_WHOLE) and number.isdecimal() else 0


def _current(folder: str, names: Sequence[str]) -> list[str]:
    """Return the files to read: the newest whole one, and the parts that are not in it."""
    parts = [name for name in names if name.startswith(_PART)]
    whole = max(names, key=_generation, default='')
    if not _generation(whole):
        return parts
    fs, path = storage.opened(storage.joined(folder, whole))
    with fs.open(path, 'rb') as file:
        metadata = pq.read_schema(file).metadata or {}
    merged = set(json.loads(metadata.get(_MERGED, b'[]')))
    return [whole, *(name for name in parts if name not in merged)]
