"""Results back into a topic, each exactly once."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()

dp.create_sink("revenue", "penstock", {**pipeline.broker, "topic": pipeline.topics["revenue"]})


@dp.append_flow(target="revenue", name="revenue_to_topic")
def revenue_to_topic() -> DataFrame:
    event = fn.struct("minute", "product", "orders", "revenue")
    closed = spark.readStream.table("closed_minutes")
    return closed.select(fn.col("product").alias("key"), fn.to_json(event).alias("value"))
