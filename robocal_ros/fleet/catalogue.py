# SPDX-License-Identifier: Apache-2.0
"""Catalogue of a fleet's results: Parquet files, written in parts, queried with DuckDB.

In the output folder of a fleet::

    results/<robot>/<kind>-<inputs>.yaml    result files
    catalogue/results/*.parquet             one row per parameter and result, `RESULTS`
    catalogue/bags/*.parquet                one row per bag, robot and kind tried, `BAGS`

Each result and each bag adds a part of its own, so that writers need no lock and an interrupted
one leaves nothing half-written. `Catalogue.compact` merges the parts of a table into one file.
Rows that occur twice are read once: an interrupted compaction leaves nothing double.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

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

# Rows of a table in a file that are read or skipped together.
_GROUP = 1 << 17


class _Table(NamedTuple):
    """One table: its folder, schema, what distinguishes rows, which are newer, and their order."""

    folder: str
    schema: pa.Schema
    key: str
    newest: str
    order: str


_TABLES = {
    'all_results': _Table('results', RESULTS, 'result, parameter', 'version',
                          'robot, kind, parameter, time'),
    'bags': _Table('bags', BAGS, 'bag, request_sha256, robot, kind, inputs_sha256', 'tried',
                   'bag, robot, kind, tried')}

DATED = 1e9
"""Times before this are not of a clock that shows the date [s since 1970]."""

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
    SELECT * REPLACE (CASE WHEN epoch(time) >= {DATED} THEN time END AS time)
    FROM all_results WHERE result NOT IN (
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
        temperature = temperatures.get(joint, mean)
        rows.append({
            'robot': result.robot.name, 'kind': result.kind, 'method': result.method,
            'verdict': result.verdict.value, 'parameter': item.name, 'joint': joint,
            'quantity': quantity, 'unit': item.unit, 'value': item.value, 'std': item.std,
            'freedom': item.freedom, 'state': item.state.value, 'time': utc(time),
            'temperature': None if temperature is None or not math.isfinite(temperature)
            else temperature,
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
    return datetime.fromtimestamp(seconds, timezone.utc)


class Catalogue:
    """Catalogue in the output folder of a fleet."""

    def __init__(self, output: str) -> None:
        """Set the folder, which is created by the first part.

        Args:
            output: Path or URI of the output folder.

        """
        self.output = storage.absolute(output)

    def _folder(self, table: _Table) -> str:
        return storage.joined(self.output, 'catalogue', table.folder)

    # ---------------------------------------------------------------------- writing

    def add(self, rows: pa.Table) -> None:
        """Add rows of `RESULTS` or `BAGS` as a part; adding the same again changes nothing.

        Raises:
            OSError: If it cannot be written.

        """
        table = _TABLES['bags' if 'fingerprint' in rows.column_names else 'all_results']
        self._write('part', table, [rows.select(table.schema.names)])

    def compact(self) -> None:
        """Merge the parts of each table into one file; call it from one process at a time.

        Rows that occur twice are written once. Readers may go on reading.
        """
        for name, table in _TABLES.items():
            folder = self._folder(table)
            names = storage.names_in(folder)
            if len(names) < 2:
                continue
            with self._connection() as connection:
                whole = self._write('whole', table, (
                    pa.Table.from_batches([batch]) for batch in connection.sql(
                        f'SELECT * FROM {name} ORDER BY {table.order}').to_arrow_reader(_GROUP)))
            storage.remove(storage.joined(folder, item) for item in names if item != whole)

    def _write(self, kind: str, table: _Table, groups: Iterable[pa.Table]) -> str:
        """Write groups of rows to a file that is named by its content; return its name."""
        buffer = pa.BufferOutputStream()
        with pq.ParquetWriter(buffer, table.schema, compression='zstd') as writer:
            for rows in groups:
                writer.write_table(rows.cast(table.schema), _GROUP)
        content = buffer.getvalue().to_pybytes()
        name = f'{kind}-{hashlib.sha256(content).hexdigest()[:24]}.parquet'
        storage.write_bytes(storage.joined(self._folder(table), name), content)
        return name

    # ---------------------------------------------------------------------- reading

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the rows of an SQL query on the catalogue's views; times are of UTC.

        The views: ``results`` (schema `RESULTS`: the newest estimate from each bag, robot and
        kind; its time is null where it is no date), ``all_results`` (those of earlier versions and
        parameters, too, with times as they are), ``bags`` (schema
        `BAGS`), ``attempts`` (its newest rows), and ``failures`` (bag, robot, kind, reason,
        outcome, tried, version).

        Raises:
            ConfigurationError: If a file of the catalogue cannot be read.

        """
        with self._connection() as connection:
            # DuckDB's own fetchall needs a further library for times with a zone.
            return connection.sql(sql, params=list(parameters)).to_arrow_table().to_pylist()

    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        if not storage.is_local(self.output):
            connection.register_filesystem(storage.opened(self.output)[0])
        try:
            for name, table in _TABLES.items():
                folder = self._folder(table)
                files = [storage.joined(folder, item) for item in storage.names_in(folder)]
                if len(files) > 1:
                    connection.read_parquet(files).create_view(f'{name}_of_parts')
                    connection.execute(
                        f'CREATE VIEW {name} AS SELECT * FROM {name}_of_parts QUALIFY row_number()'
                        f' OVER (PARTITION BY {table.key} ORDER BY {table.newest} DESC) = 1')
                elif files:
                    connection.read_parquet(files).create_view(name)
                else:
                    connection.register(name, table.schema.empty_table())
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            connection.close()
            raise ConfigurationError(
                f'The catalogue in {self.output} cannot be read: {error}. If another run is '
                'compacting it, try again; otherwise remove the file named.') from error
        connection.execute(_VIEWS)
        return connection
