"""Results back into a topic, each exactly once: minutes that are over, and of which nothing more can come."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()

dp.create_sink("revenue", "penstock", {**pipeline.broker, "topic": pipeline.topics["revenue"]})


@dp.append_flow(target="revenue", name="revenue_to_topic")
def revenue_to_topic() -> DataFrame:
    minutes = (
        spark.readStream.table("orders")
        .withWatermark("ordered_at", "10 seconds")
        .groupBy(fn.window("ordered_at", "1 minute"), "product")
        .agg(fn.count("*").alias("orders"), fn.sum(fn.col("quantity") * fn.col("price")).alias("revenue"))
    )
    return minutes.select(
        fn.col("product").alias("key"),
        fn.to_json(fn.struct(fn.col("window.start").alias("minute"), "product", "orders", "revenue")).alias("value"),
    )
