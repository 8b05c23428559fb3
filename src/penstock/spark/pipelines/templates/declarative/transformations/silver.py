"""Events to count on: typed, each once, none that breaks a rule or comes too late. They are read from the topics, as
bronze is: for a watermark Spark looks at the columns at once, and a table of this pipeline may not be there yet."""

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
