"""`penstock.spark.decode`: the values of a DataFrame as columns, by a schema in the registry or a given one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.arrow.rows import DECODED, REASON, VALUE, Decode, language
from penstock.broker.schemas.formats import format_of
from penstock.broker.schemas.framing import CONFLUENT
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.flight.errors import TopicMissing
from penstock.flight.log import SchemaText
from penstock.spark.options import OptionValues
from penstock.spark.outage_budget import OutageBudget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REJECT_COLUMNS: Final = ("reason", "subject", "schema_version")  # additional columns of rejected rows


class DecodeRefused(ValueError):
    """A DataFrame or a schema that cannot be decoded; the text has the reason, and a remedy."""


class Decoded(NamedTuple):
    """Two DataFrames that together have every row of the decoded one. Each is a separate query."""

    rows: DataFrame
    """The columns of the schema in place of `value`, and all other columns unchanged."""

    rejected: DataFrame
    """Rows that did not match: all columns unchanged, and `reason`, `subject` and `schema_version`."""


def decode(
    df: DataFrame,
    schema: str | bytes | Mapping[str, Any] | Sequence[Any],
    *,
    format: str | None = None,  # noqa: A002 - as Spark calls it
    version: int | None = None,
    into: str | None = None,
    dates: bool = True,
    framing: str | None = None,
    **options: Any,
) -> Decoded:
    """Turn the column `value` into typed columns.

        orders = decode(df, "order", bootstrap_servers="broker:8815")
        orders.rows.writeStream…, orders.rejected.writeStream…

    `schema` is the name of a schema in the broker's registry, in its current latest version or in `version`; `options`
    are the connection options of `format("penstock")`, with `_` for `.` if you like. With `format` (`json`, `avro` or
    `protobuf`), `schema` is the definition itself, and no broker is needed.

    The columns replace `value`; `into` puts them into one struct of that name instead. With `dates=False` text of JSON
    Schema's formats `date` and `date-time` stays text. With `framing="confluent"` values begin with Confluent's magic
    byte and the id of a schema. Avro values are read with the version of that id and become what `version` would have
    written; other values need only `version`. With a definition ids are not looked up.

    The broker's own validator decides whether a row matches. A row that does not is never an error."""
    if framing not in (None, CONFLUENT):
        raise DecodeRefused(f"framing is {framing!r}; allowed are None and {CONFLUENT!r}")
    versions: tuple[Schema, ...] = ()
    if format is not None:
        described = _given(schema, format, version)
    else:
        described, versions = _registered(schema, version, options, framing)
    struct = _columns(described, dates)
    others = [name for name in df.columns if name != VALUE]
    _check(df, others, struct, into, described)
    fields = [*df.schema.fields, StructField(DECODED, struct), StructField(REASON, StringType())]
    marked = df.mapInArrow(Decode(described, dates, framing, versions), StructType(fields))
    fits = F.col(REASON).isNull()
    taken = F.col(f"{DECODED}.*") if into is None else F.col(DECODED).alias(into)
    reject_columns = (
        F.col(REASON).alias(REJECT_COLUMNS[0]),
        F.lit(described.name).alias(REJECT_COLUMNS[1]),
        F.lit(described.version or None).cast("int").alias(REJECT_COLUMNS[2]),
    )
    return Decoded(
        marked.where(fits).select(*[taken if name == VALUE else _named(name) for name in df.columns]),
        marked.where(~fits).select(*map(_named, df.columns), *reject_columns),
    )


def _named(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")


# -- the schema


def _registered(
    subject: Any, version: int | None, options: Mapping[str, Any], framing: str | None
) -> tuple[Schema, tuple[Schema, ...]]:
    """The schema, and all versions of it if values have to be read with the one that wrote them."""
    from penstock.flight.connect import connect

    if not isinstance(subject, str) or subject.lstrip().startswith(("{", "[", '"', "syntax", "message ")):
        raise DecodeRefused(
            "without 'format', schema is the name of a schema in the registry; for a definition say which language it "
            "is in: format='json', 'avro' or 'protobuf'"
        )
    given = OptionValues({name if "." in name else name.replace("_", "."): value for name, value in options.items()})
    given.check_names()
    log, retries = connect(given.connection()), given.retries()
    budget = OutageBudget(retries.timeout, retries.at_least, retries.interval)
    found = budget.call(lambda: log.schema(subject, version))
    schema = _prepared(subject, found)
    if framing is None or schema.kind is not SchemaKind.AVRO:
        return schema, ()
    latest = budget.call(lambda: log.schema(subject, with_id=True))
    versions = {latest.version: _prepared(subject, latest)}
    for number in range(1, latest.version):
        with suppress(TopicMissing):  # versions can be deleted
            asked = partial(log.schema, subject, number, with_id=True)
            versions[number] = _prepared(subject, budget.call(asked))
    return versions.get(schema.version, schema), tuple(
        each for each in versions.values() if each.kind is SchemaKind.AVRO
    )


def _given(definition: Any, name: str, version: int | None) -> Schema:
    try:
        kind = SchemaKind(name.lower())
    except ValueError:
        raise DecodeRefused(
            f"format is {name!r}; allowed are {', '.join(repr(str(kind)) for kind in SchemaKind)}"
        ) from None
    if isinstance(definition, str):
        text = definition.encode()
        if kind is SchemaKind.AVRO and not definition.lstrip().startswith(("{", "[", '"')):
            text = json.dumps(definition).encode()  # the bare name of a type
    else:
        text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    return _prepared("", SchemaText(kind, text.decode(), version or 0, 0))


def _prepared(name: str, found: SchemaText) -> Schema:
    kind, definition = SchemaKind(found.format), found.definition.encode()
    try:
        return Schema(name, found.version, kind, definition, 0, format_of(kind).prepare(definition), found.id)
    except SchemaInvalid as error:
        raise DecodeRefused(f"The schema cannot be used: {error}") from None


def _columns(schema: Schema, dates: bool) -> StructType:
    try:
        return cast("StructType", from_arrow_type(language(schema, dates).columns.arrow))
    except SchemaInvalid as error:
        raise DecodeRefused(f"The schema cannot be used: {error}") from None


# -- the DataFrame


def _check(df: DataFrame, others: list[str], struct: StructType, into: str | None, schema: Schema) -> None:
    kinds = [field.dataType for field in df.schema.fields if field.name == VALUE]
    if len(kinds) != 1 or not isinstance(kinds[0], BinaryType | StringType):
        raise DecodeRefused(
            f"decode needs one column 'value' of type binary or string; there is {df.schema.simpleString()}"
        )
    twice = [name for name in REJECT_COLUMNS if name in map(str.lower, others)]
    if twice:
        raise DecodeRefused(
            f"rejected rows get the columns {', '.join(REJECT_COLUMNS)}, "
            f"and the DataFrame has {', '.join(twice)} already; "
            "rename with withColumnRenamed before decode"
        )
    names = Counter(name.lower() for name in [*others, *([into] if into is not None else struct.names)])
    clash = [name for name, count in names.items() if count > 1]
    if clash and into is None:
        raise DecodeRefused(
            f"the schema {schema.name!r} and the DataFrame both have, or one has twice: {', '.join(clash)} (Spark does "
            "not tell apart capitals); put the schema's columns into a struct with decode(…, into='name'), or rename "
            "or drop the DataFrame's before"
        )
    if clash:
        raise DecodeRefused(f"the DataFrame has the column {into!r} already; give another name as 'into'")
