"""Nexmark's queries q0 to q8, q11 and q12 as streams of topics. Where Nexmark asks for a total that never ends (q4,
q6), the stream tells each auction once, when it is over, and the total is a query on what it told. Time that Nexmark
takes from the clock (q12) is when the broker took the bid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.nexmark.events import SCHEMAS
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

DELAY = "5 seconds"  # how late an event may come
LONGEST = "20 seconds"  # of an auction
WINDOW, SLIDE, GAP = "10 seconds", "2 seconds", "2 seconds"

Streams = Mapping[str, DataFrame]


@dataclass(frozen=True, slots=True)
class Query:
    topics: tuple[str, ...]
    build: Callable[[Streams], DataFrame]
    finish: Callable[[DataFrame], DataFrame] = lambda rows: rows
    """What to ask of the rows that the stream wrote."""


def streams(spark: SparkSession, options: Mapping[str, str], topics: tuple[str, ...]) -> dict[str, DataFrame]:
    """Each topic as a stream of columns, with `taken`, when the broker took it."""
    found = {}
    for topic in topics:
        reader = spark.readStream.format("penstock").schema("value binary, timestamp timestamp")
        rows = reader.options(**options).option("subscribe", topic).option("startingOffsets", "earliest").load()
        event = fn.from_json(fn.col("value").cast("string"), SCHEMAS[topic]).alias("event")
        typed = rows.select(event, fn.col("timestamp").alias("taken")).select("event.*", "taken")
        found[topic] = typed
    return found


def _timely(rows: DataFrame, time: str = "ts") -> DataFrame:
    return rows.withWatermark(time, DELAY)


def q0(of: Streams) -> DataFrame:
    """All bids."""
    return of["bid"].select("auction", "bidder", "price", "ts")


def q1(of: Streams) -> DataFrame:
    """Bids in euros."""
    return of["bid"].select("auction", "bidder", (fn.col("price") * 908 / 1000).alias("price"), "ts")


def q2(of: Streams) -> DataFrame:
    """Bids for some auctions."""
    return of["bid"].where("auction % 123 = 0").select("auction", "price")


def q3(of: Streams) -> DataFrame:
    """Who sells something of category 10 in three states."""
    sellers = (
        of["person"].where("state IN ('OR', 'ID', 'CA')").select(fn.col("id").alias("person"), "name", "city", "state")
    )
    auctions = of["auction"].where("category = 10").select("id", "seller")
    return auctions.join(sellers, fn.expr("seller = person")).select("name", "city", "state", "id")


def winning_bids(of: Streams) -> DataFrame:
    """The highest bid for each auction, told once, when the auction is over."""
    auctions = _timely(
        of["auction"].select("id", "seller", "category", fn.col("ts").alias("opened"), "expires"), "expires"
    )
    bids = _timely(of["bid"].select("auction", "price", "ts"))
    while_open = f"ts >= opened AND ts <= expires AND ts >= expires - INTERVAL {LONGEST}"
    found = auctions.join(bids, fn.expr(f"id = auction AND {while_open}"))
    return found.groupBy("id", "seller", "category", "expires").agg(fn.max("price").alias("final"))


def average_by_category(rows: DataFrame) -> DataFrame:
    return rows.groupBy("category").agg(fn.avg("final").alias("average"))


def average_of_last_ten(rows: DataFrame) -> DataFrame:
    """For each closed auction of a seller: the average of this and the nine before it."""
    last = Window.partitionBy("seller").orderBy("expires", "id").rowsBetween(-9, 0)
    return rows.select("seller", "id", fn.avg("final").over(last).alias("average"))


def q5(of: Streams) -> DataFrame:
    """The auctions with most bids of the last ten seconds, every two seconds."""
    counted = _timely(of["bid"]).groupBy(fn.window("ts", WINDOW, SLIDE), "auction").agg(fn.count("*").alias("bids"))
    every = counted.groupBy("window").agg(
        fn.max("bids").alias("most"), fn.collect_list(fn.struct("auction", "bids")).alias("all")
    )
    hot = fn.explode(fn.expr("filter(all, x -> x.bids = most)")).alias("hot")
    return every.select(_begin(), hot).select("begin", "hot.auction", "hot.bids")


def q7(of: Streams) -> DataFrame:
    """The highest bid of every ten seconds."""
    highest = fn.max(fn.struct("price", "auction", "bidder")).alias("bid")
    return _timely(of["bid"]).groupBy(fn.window("ts", WINDOW)).agg(highest).select(_begin(), "bid.*")


def q8(of: Streams) -> DataFrame:
    """New people who open an auction within the same ten seconds."""
    people = _timely(of["person"]).select("id", "name", fn.window("ts", WINDOW).alias("window"))
    sellers = _timely(of["auction"]).select("seller", fn.window("ts", WINDOW).alias("of_auction"))
    both = people.join(sellers, fn.expr("id = seller AND window = of_auction"))
    return both.groupBy("window", "id", "name").agg(fn.count("*").alias("auctions")).select("id", "name", _begin())


def q11(of: Streams) -> DataFrame:
    """Bids of each person's sessions: until there is none for two seconds."""
    sessions = _timely(of["bid"]).groupBy(fn.session_window("ts", GAP).alias("window"), "bidder")
    return sessions.agg(fn.count("*").alias("bids")).select(
        "bidder", "bids", _begin(), fn.col("window.end").alias("end")
    )


def q12(of: Streams) -> DataFrame:
    """Bids of each person in every ten seconds of the broker's clock."""
    counted = _timely(of["bid"], "taken").groupBy(fn.window("taken", WINDOW), "bidder").agg(fn.count("*").alias("bids"))
    return counted.select("bidder", "bids", _begin())


def _begin() -> Column:
    return fn.col("window.start").alias("begin")


QUERIES = {
    "q0": Query(("bid",), q0),
    "q1": Query(("bid",), q1),
    "q2": Query(("bid",), q2),
    "q3": Query(("person", "auction"), q3),
    "q4": Query(("auction", "bid"), winning_bids, average_by_category),
    "q5": Query(("bid",), q5),
    "q6": Query(("auction", "bid"), winning_bids, average_of_last_ten),
    "q7": Query(("bid",), q7),
    "q8": Query(("person", "auction"), q8),
    "q11": Query(("bid",), q11),
    "q12": Query(("bid",), q12),
}
