"""The topics' records, unchanged: everything downstream can be recomputed from them. Rows that break a rule are
counted, and sent to the topic of dead letters."""

import events
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()


@dp.table(partition_cols=["date"])
def bronze() -> DataFrame:
    return events.bronze(spark, pipeline)


@dp.materialized_view
def bronze_quality() -> DataFrame:
    return events.quality(spark.read.table("bronze"), pipeline)


dp.create_sink("dead_letters", "penstock", {**pipeline.broker, "topic": pipeline.topics["dead_letters"]})


@dp.append_flow(target="dead_letters", name="rejected")
def rejected() -> DataFrame:
    return events.rejected(spark.readStream.table("bronze"), pipeline)
