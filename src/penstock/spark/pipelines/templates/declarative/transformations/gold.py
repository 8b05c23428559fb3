"""Results, recomputed from all events in every run, so that they are always consistent."""

import events
import gold
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines import current

pipeline = current()
spark = SparkSession.active()


def gold_view(name: str) -> None:
    @dp.materialized_view(name=f"gold_{name}")
    def result() -> DataFrame:
        clean = {kind: spark.read.table(f"silver_{kind}") for kind in events.SHAPES}
        return gold.results(clean, pipeline)[name]


for each in gold.KEYS:
    gold_view(each)
