"""The topics' records as they are: nothing is lost if something below is wrong and has to be computed again."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()


@dp.table
def raw_events() -> DataFrame:
    topics = ",".join((pipeline.topics["orders"], pipeline.topics["page_views"]))
    return (
        spark.readStream.format("penstock")
        .options(**pipeline.broker)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load()
        .drop("timestampType")
    )
