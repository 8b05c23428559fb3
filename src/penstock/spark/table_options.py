"""Options of a table in SQL, `CREATE TABLE … USING penstock OPTIONS (…)`. Spark passes them to a source in Python only
once: when it asks for the columns of the new table. Metadata of these columns is stored by Spark, and passed to the
source with each read. So the options become metadata of a column.

Credentials are refused: Spark stores all options of a table, and everybody who may read the table sees the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.spark.options import (
    CONNECTION,
    CREDENTIALS,
    ENDING,
    READING,
    SELECTING,
    STARTING,
    OptionRefused,
    OptionValues,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

METADATA: Final = "penstock.options"
COLUMN: Final = "timestampType"  # in every table, and rarely copied elsewhere with its metadata
OF_A_TABLE: Final = "option."  # Spark passes the options of a new table under their names, and with this prefix again,
LOCATION: Final = "location"  # except `path`, which is the table's location: `path` and this, as a URL

INSTEAD: Final = (SELECTING, STARTING, ENDING, ("user", "api.key"))
"""Options of which a query gives one instead of another one of the table."""

_KEPT: Final = {name.lower() for name in (*CONNECTION, *SELECTING, *STARTING, *ENDING, *READING)}


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of the source: those of a new table have its options. Raises OptionRefused."""
    given = {name.removeprefix(OF_A_TABLE): text for name, text in options.items() if name.startswith(OF_A_TABLE)}
    if LOCATION in options and "path" in options:
        given["path"] = options["path"].removeprefix("file:")
    if given:
        schema[COLUMN].metadata[METADATA] = json.dumps(_checked(OptionValues(given)))
    return schema


def _checked(given: OptionValues) -> dict[str, str]:
    """The options to keep. The topic may be left to queries."""
    given.check_names()
    for name in given.names():
        if name.startswith(CREDENTIALS):
            raise OptionRefused(
                f"Option {name!r} may be a credential, and Spark stores the options of a table, for all its readers. "
                f"Leave it out of CREATE TABLE, and give it in the query, SELECT … FROM name WITH ('{name}' = '…'); or "
                "CREATE TEMPORARY VIEW name USING penstock OPTIONS (…), which ends with the session"
            )
    names = [name for name in sorted(given.names()) if name in _KEPT or name.startswith("tls.")]
    kept = {name: given.text(name) or "" for name in names}
    OptionValues({name: text for name, text in kept.items() if name != "user"}).connection()  # its password is missing
    return kept


def all_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a read: those of the query, and those of its table that they do not replace. A query with the
    address of a log has all options itself."""
    found = [field.metadata[METADATA] for field in schema.fields if METADATA in field.metadata]
    given = OptionValues(options)
    if not found or "path" in given or "bootstrap.servers" in given:
        return dict(options)
    replaced = set(given.names())
    for group in INSTEAD:
        if any(name in given for name in group):
            replaced.update(name.lower() for name in group)
    return {name: text for name, text in json.loads(found[0]).items() if name not in replaced} | dict(options)
