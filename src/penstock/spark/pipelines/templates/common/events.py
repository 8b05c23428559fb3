"""The shop's events: their schemas, their quality rules, and the transformation of raw records (bronze) to clean events
(silver)."""

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from penstock.spark.pipelines import Project
from penstock.spark.pipelines.expectations import rules

SHAPES = {
    "orders": (
        "order_id string, customer string, product string, quantity int, price decimal(10,2), ordered_at timestamp,"
        " via string"
    ),
    "page_views": "view_id string, customer string, page string, milliseconds int, viewed_at timestamp, via string",
    "payments": (
        "payment_id string, order_id string, customer string, amount decimal(10,2), paid_at timestamp, via string"
    ),
}
IDS = {"orders": "order_id", "page_views": "view_id", "payments": "payment_id"}
TIMES = {"orders": "ordered_at", "page_views": "viewed_at", "payments": "paid_at"}

# A row that breaks a rule is counted and kept (warn), sent to the topic of dead letters (drop), or ends the run (fail).
EXPECTATIONS = {
    "orders": rules(
        ("has an id and a time", "order_id IS NOT NULL AND ordered_at IS NOT NULL", "drop"),
        ("sells something", "product IS NOT NULL AND quantity > 0 AND price >= 0", "drop"),
        ("knows the customer", "customer IS NOT NULL", "warn"),
    ),
    "page_views": rules(
        ("has an id and a time", "view_id IS NOT NULL AND viewed_at IS NOT NULL", "drop"),
        ("has a page", "page LIKE '/%'", "drop"),
        ("is quick", "milliseconds < 1000", "warn"),
    ),
    "payments": rules(
        ("has an id and a time", "payment_id IS NOT NULL AND paid_at IS NOT NULL", "drop"),
        ("pays an order", "order_id IS NOT NULL AND amount IS NOT NULL", "drop"),
        ("is not negative", "amount >= 0", "drop"),
    ),
}


def bronze(spark: SparkSession, pipeline: Project, *kinds: str) -> DataFrame:
    """The unchanged records of topics, with their origin. `door` is how they were written: the protocol, `http`, …"""
    records = (
        spark.readStream.format("penstock")
        .options(**pipeline.broker)
        .option("subscribe", ",".join(pipeline.topics[kind] for kind in kinds or SHAPES))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", pipeline.settings["batch"])
        .option("includeDoor", "true")
        .load()
    )
    return records.select(
        fn.lit(pipeline.broker.get("tenant", "default")).alias("tenant"),
        *("door", "topic", "partition", "offset", "timestamp", "key", "value"),
        fn.to_date("timestamp").alias("date"),
    )


def typed(raw: DataFrame, pipeline: Project, kind: str, *others: str) -> DataFrame:
    """The records of one kind as columns; null for unparsable values."""
    rows = raw.where(fn.col("topic") == pipeline.topics[kind])
    event = fn.from_json(fn.col("value").cast("string"), SHAPES[kind]).alias("event")
    origin = ("topic", "partition", "offset", *others)
    return rows.select(event, *origin).select("event.*", *origin)


def silver(raw: DataFrame, pipeline: Project, kind: str) -> DataFrame:
    """Events that meet the rules, deduplicated, and without those that arrive later than `lateness` allows."""
    rows = EXPECTATIONS[kind].enforce(typed(raw, pipeline, kind))
    return rows.withWatermark(TIMES[kind], pipeline.settings["lateness"]).dropDuplicatesWithinWatermark([IDS[kind]])


def quality(raw: DataFrame, pipeline: Project) -> DataFrame:
    """The number of rows, and of those that broke each rule."""
    counts = (
        EXPECTATIONS[kind].count(typed(raw, pipeline, kind)).select(fn.lit(kind).alias("dataset"), "*")
        for kind in SHAPES
    )
    return reduce(DataFrame.unionByName, counts).where("rows > 0")


def rejected(raw: DataFrame, pipeline: Project) -> DataFrame:
    """Dropped rows as records for a topic: the original bytes, their origin, and the reason."""
    headers = [
        header("origin", "concat_ws('/', topic, partition, offset)"),
        header("reason", "concat_ws(', ', broken)"),
    ]
    broken = (
        EXPECTATIONS[kind]
        .broken(typed(raw, pipeline, kind, "key", "value"))
        .select("key", "value", fn.array(*headers).alias("headers"))
        for kind in SHAPES
    )
    return reduce(DataFrame.unionByName, broken)


def header(name: str, text: str) -> Column:
    return fn.struct(fn.lit(name).alias("key"), fn.expr(text).cast("binary").alias("value"))
