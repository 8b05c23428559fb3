"""Options of a table in SQL, `CREATE TABLE … USING penstock OPTIONS (…)`. Spark stores them, but passes them to a
source in Python only once: when it asks for the columns of the new table. Whatever the source says about a column then,
Spark stores too, and passes to the source with each read. So the options become metadata of a column.

Queries see this metadata, and Spark puts it into copies of the column, so it has no credentials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.spark.options import CREDENTIALS, OptionRefused, OptionValues

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

METADATA: Final = "penstock.options"
OF_A_TABLE: Final = "option."  # Spark passes the options of a new table under their names, and with this prefix again


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of the source: for a new table, the last one has its options, with null for credentials. Raises
    OptionRefused."""
    given = {name.removeprefix(OF_A_TABLE): text for name, text in options.items() if name.startswith(OF_A_TABLE)}
    if given:
        values = OptionValues(given)
        values.check_names()
        values.connection()
        kept = {name: None if name.startswith(CREDENTIALS) else values.text(name) for name in sorted(values.names())}
        schema.fields[-1].metadata[METADATA] = json.dumps(kept)
    return schema


def all_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a read: those of the query, and those of its table unless the query says where the log is. Raises
    OptionRefused."""
    given = OptionValues(options)
    found = [field.metadata[METADATA] for field in schema.fields if METADATA in field.metadata]
    if not found or "path" in given or "bootstrap.servers" in given:
        return dict(options)
    kept: dict[str, str | None] = {name: text for name, text in json.loads(found[0]).items() if name not in given}
    missing = sorted(name for name, text in kept.items() if text is None)
    if missing:
        raise OptionRefused(
            f"The table was made with {' and '.join(map(repr, missing))}, which it does not keep: whoever reads the "
            f"table would see it. Give it in the query, SELECT … FROM name WITH ('{missing[0]}' = '…'), or CREATE "
            "TEMPORARY VIEW name USING penstock OPTIONS (…)"
        )
    return {name: text for name, text in kept.items() if text is not None} | dict(options)
