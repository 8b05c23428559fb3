"""Clean events: typed, deduplicated, without those that break a rule or arrive too late. They are read from the topics,
like bronze: for a watermark Spark analyzes the columns immediately, when a table of this pipeline may not exist yet."""

import events
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()


def silver_table(kind: str) -> None:
    @dp.table(name=f"silver_{kind}")
    def silver() -> DataFrame:
        return events.silver(events.bronze(spark, pipeline, kind), pipeline, kind)


for each in events.SHAPES:
    silver_table(each)
