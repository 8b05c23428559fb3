"""Results back into a topic, exactly once."""

import gold
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()

dp.create_sink("revenue", "penstock", {**pipeline.broker, "topic": pipeline.topics["revenue"]})


@dp.append_flow(target="revenue", name="revenue_to_topic")
def revenue_to_topic() -> DataFrame:
    return gold.records(spark.readStream.table("closed_minutes"), "revenue")
