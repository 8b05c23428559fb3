"""The columns that can be written, and their conversion to the log's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from penstock.spark.columns import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

TEXT: Final[tuple[DataType, ...]] = (BinaryType(), StringType())
ALLOWED: Final[dict[str, tuple[DataType, ...]]] = {
    "key": TEXT,
    "value": TEXT,
    "headers": (HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


class ColumnsRefused(ValueError):
    """A DataFrame that cannot be written; the text has the reason and a remedy."""


class RowRefused(ValueError):
    """A row that cannot be written."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """`topic`: of all rows, if set by an option."""
    names = [field.name.lower() for field in schema.fields]
    unknown = [field.name for field in schema.fields if field.name.lower() not in ALLOWED]
    if unknown or len(set(names)) < len(names):
        said = f"{_listed(unknown)} cannot be written" if unknown else f"a column is there twice: {', '.join(names)}"
        raise ColumnsRefused(
            f"{said}; {_allowed()}. To write whole rows as JSON: select(to_json(struct('*')).alias('value')); "
            "to leave columns out: drop(…)"
        )
    if "value" not in names:
        raise ColumnsRefused(f"There is no column 'value'; {_allowed()}")
    if topic is None and "topic" not in names:
        raise ColumnsRefused("No topic: give option('topic', NAME), or a column 'topic' that has it for each row")
    for field in schema.fields:
        kinds = [kind.simpleString() for kind in ALLOWED[field.name.lower()]]
        if _simple(field.dataType) not in kinds:
            raise ColumnsRefused(
                f"Column {field.name!r} is {field.dataType.simpleString()}; {' or '.join(kinds)} is needed: "
                f"{_advice(field.name, kinds)}"
            )


def _simple(kind: DataType) -> str:
    """The simple name of a type; a varchar is a string too."""
    return "string" if isinstance(kind, StringType) else kind.simpleString()


def _advice(name: str, kinds: list[str]) -> str:
    if name.lower() == "headers":
        return "array(struct(lit('name').alias('key'), col(…).cast('binary').alias('value')))"
    return f"withColumn({name!r}, col({name!r}).cast({kinds[-1]!r}))" + (", or to_json(…)" if len(kinds) > 1 else "")


def _listed(names: list[str]) -> str:
    return f"{'Column' if len(names) == 1 else 'Columns'} {', '.join(map(repr, names))}"


def _allowed() -> str:
    return (
        "columns that can be written are value (string or binary), key (string or binary), "
        "headers (array<struct<key:string,value:binary>>), topic (string) and partition (int)"
    )


class SinkConverter:
    """Converts Spark's batches to the log's: our columns in one schema, refusing invalid rows."""

    def __init__(self, schema: StructType, topic: str | None, null_is_empty: bool = False) -> None:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        self._topic = topic
        self._null_is_empty = null_is_empty
        self._places = [index for index, name in enumerate(schema.names) if topic is None or name.lower() != "topic"]
        fields = [schema.fields[index] for index in self._places]
        self.schema: pa.Schema = pa.schema([(it.name.lower(), to_arrow_type(it.dataType)) for it in fields])

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch. Raises RowRefused."""
        import pyarrow as pa
        import pyarrow.compute as pc

        arrays = [batch.column(index) for index in self._places]
        if self._null_is_empty:
            at = self.schema.get_field_index("value")
            empty = "" if pa.types.is_string(arrays[at].type) or pa.types.is_large_string(arrays[at].type) else b""
            arrays[at] = pc.fill_null(arrays[at], pa.scalar(empty, arrays[at].type))
        shaped = pa.RecordBatch.from_arrays(arrays, schema=self.schema)  # casts wider types, if configured in Spark
        self._check(shaped)
        return shaped

    def _check(self, batch: pa.RecordBatch) -> None:
        if self._topic is None and batch.column("topic").null_count:
            raise RowRefused(
                "A row has no topic: its column 'topic' is null; filter such rows out, or give option('topic', NAME)"
            )
        value = batch.column("value")
        if value.null_count:
            row = value.is_null().index(True).as_py()
            topic = self._topic or batch.column("topic")[row].as_py()
            raise RowRefused(
                f"A row for topic {topic!r} has no value: its column 'value' is null, and a log keeps no such records; "
                "filter with where('value IS NOT NULL'), or let an empty value stand for it with "
                "option('nullValues', 'empty')"
            )
