"""Orders and page views with types, and a topic for the rows that are neither."""

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()

# What a row must have goes first: without these it is a dead letter.
SHAPES = {
    "orders": (
        ("order_id", "product", "quantity", "price", "ordered_at"),
        "order_id string, product string, quantity int, price decimal(10,2), ordered_at timestamp, customer string",
    ),
    "page_views": (
        ("view_id", "page", "viewed_at"),
        "view_id string, page string, viewed_at timestamp, customer string, milliseconds int",
    ),
}


def parsed(kind: str) -> tuple[DataFrame, Column]:
    """The rows of a topic with a column `event`, and whether a row is good."""
    needed, shape = SHAPES[kind]
    rows = spark.readStream.table("raw_events").where(fn.col("topic") == pipeline.topics[kind])
    # Not by withColumn: Spark would look at the table at once, and not see that this flow has to wait for another.
    rows = rows.select("*", fn.from_json(fn.col("value").cast("string"), shape).alias("event"))
    good = fn.lit(True)
    for name in needed:
        good = good & fn.col(f"event.{name}").isNotNull()
    return rows, good


@dp.table
def orders() -> DataFrame:
    rows, good = parsed("orders")
    return rows.where(good).select("event.*", "partition", "offset")


@dp.table
def page_views() -> DataFrame:
    rows, good = parsed("page_views")
    return rows.where(good).select("event.*", "partition", "offset")


def letters(kind: str) -> DataFrame:
    """The bytes as they came, and where they came from."""
    rows, good = parsed(kind)
    origin = fn.concat_ws("/", "topic", fn.col("partition").cast("string"), fn.col("offset").cast("string"))
    headers = fn.array(
        fn.struct(fn.lit("origin").alias("key"), origin.cast("binary").alias("value")),
        fn.struct(fn.lit("reason").alias("key"), fn.lit(f"does not look like {kind}").cast("binary").alias("value")),
    )
    return rows.where(~good).select("key", "value", headers.alias("headers"))


dp.create_sink("dead_letters", "penstock", {**pipeline.broker, "topic": pipeline.topics["dead_letters"]})


@dp.append_flow(target="dead_letters", name="bad_orders")
def bad_orders() -> DataFrame:
    return letters("orders")


@dp.append_flow(target="dead_letters", name="bad_page_views")
def bad_page_views() -> DataFrame:
    return letters("page_views")
