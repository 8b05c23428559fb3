"""Orders and page views, as they come: typed tables, revenue by minute as a table and as a topic, dead letters."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.pipelines import Project, delta

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

TIMES = {"orders": "ordered_at", "page_views": "viewed_at"}


def start(spark: SparkSession, pipeline: Project) -> list[StreamingQuery]:
    """Called once. Each query has a checkpoint of its own, by its name, and goes on there after any kind of end."""
    return [
        typed_table(spark, pipeline, "orders"),
        typed_table(spark, pipeline, "page_views"),
        dead_letters(spark, pipeline),
        revenue_table(spark, pipeline),
        revenue_topic(spark, pipeline),
    ]


def typed_table(spark: SparkSession, pipeline: Project, kind: str) -> StreamingQuery:
    """A column that is added to the shape is added to the table. No value is changed to fit, and files of each day are
    kept apart."""
    rows = typed(spark, pipeline, kind).withColumn("date", fn.to_date(TIMES[kind]))
    table = delta.append(pipeline.table(kind), app=kind, policy="add_columns", partition_by=("date",))
    return begin(rows, pipeline, kind, foreach=table)


def dead_letters(spark: SparkSession, pipeline: Project) -> StreamingQuery:
    """The bytes as they came, and where they came from."""
    topic = fn.col("topic")
    origin = fn.concat_ws("/", topic, fn.col("partition").cast("string"), fn.col("offset").cast("string"))
    headers = fn.array(fn.struct(fn.lit("origin").alias("key"), origin.cast("binary").alias("value")))
    good = fn.lit(False)
    for kind in SHAPES:
        good = good | ((topic == pipeline.topics[kind]) & fits(event(kind), kind))
    rows = records(spark, pipeline, *SHAPES).where(~good).select("key", "value", headers.alias("headers"))
    return begin(rows, pipeline, "dead_letters", topic=pipeline.topics["dead_letters"])


def revenue_table(spark: SparkSession, pipeline: Project) -> StreamingQuery:
    """Minutes that are still open are in it too, and change with every order."""
    rows = by_window(spark, pipeline)
    upsert = delta.upsert(pipeline.table("revenue_by_minute"), keys=("minute", "product"), app="revenue_by_minute")
    return begin(rows, pipeline, "revenue_by_minute", foreach=upsert, mode="update")


def revenue_topic(spark: SparkSession, pipeline: Project) -> StreamingQuery:
    """Each minute once, when it is over."""
    rows = by_window(spark, pipeline)
    letters = rows.select(fn.col("product").alias("key"), fn.to_json(fn.struct(*rows.columns)).alias("value"))
    return begin(letters, pipeline, "revenue", topic=pipeline.topics["revenue"])


def by_window(spark: SparkSession, pipeline: Project) -> DataFrame:
    orders = typed(spark, pipeline, "orders").withWatermark("ordered_at", pipeline.settings["lateness"])
    grouped = orders.groupBy(fn.window("ordered_at", pipeline.settings["window"]), "product")
    totals = grouped.agg(fn.count("*").alias("orders"), fn.sum(fn.col("quantity") * fn.col("price")).alias("revenue"))
    return totals.select(fn.col("window.start").alias("minute"), "product", "orders", "revenue")


def typed(spark: SparkSession, pipeline: Project, kind: str) -> DataFrame:
    """The records of a topic that fit, as columns."""
    rows = records(spark, pipeline, kind).withColumn("event", event(kind)).where(fits(fn.col("event"), kind))
    return rows.select("event.*", "partition", "offset")


def records(spark: SparkSession, pipeline: Project, *kinds: str) -> DataFrame:
    return (
        spark.readStream.format("penstock")
        .options(**pipeline.broker)
        .option("subscribe", ",".join(pipeline.topics[kind] for kind in kinds))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200_000)
        .load()
    )


def event(kind: str) -> Column:
    return fn.from_json(fn.col("value").cast("string"), SHAPES[kind][1])


def fits(of: Column, kind: str) -> Column:
    """Whether a record has all that it must have; false, and not null, if it is no JSON at all."""
    good = of.isNotNull()
    for name in SHAPES[kind][0]:
        good = good & of.getField(name).isNotNull()
    return good


def begin(
    rows: DataFrame,
    pipeline: Project,
    name: str,
    *,
    topic: str = "",
    foreach: delta.WriteBatch | None = None,
    mode: str = "append",
) -> StreamingQuery:
    writer = (
        rows.writeStream.queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", pipeline.checkpoint(name))
        .trigger(processingTime=pipeline.settings["trigger"])
    )
    if foreach is not None:
        return writer.foreachBatch(foreach).start()
    return writer.format("penstock").options(**pipeline.broker).option("topic", topic).start()
