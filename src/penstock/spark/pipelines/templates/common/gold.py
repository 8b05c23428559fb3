"""Results from silver events: the same code for streams and for tables. In a stream, a minute is emitted when it is
over."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from penstock.spark.pipelines import Project

KEYS = {"revenue": "product", "sessions": "customer", "funnel": "minute", "anomalies": "anomaly"}  # of records


def results(events: dict[str, DataFrame], pipeline: Project) -> dict[str, DataFrame]:
    orders, page_views, payments = events["orders"], events["page_views"], events["payments"]
    return {
        "revenue": revenue(orders, pipeline),
        "sessions": sessions(page_views, pipeline),
        "funnel": funnel(orders, page_views, payments, pipeline),
        "anomalies": anomalies(orders, payments, pipeline),
    }


def revenue(orders: DataFrame, pipeline: Project) -> DataFrame:
    totals = orders.groupBy(minute("ordered_at", pipeline), "product").agg(
        fn.count("*").alias("orders"), fn.sum(fn.col("quantity") * fn.col("price")).alias("revenue")
    )
    return totals.select(fn.col("window.start").alias("minute"), "product", "orders", "revenue")


def sessions(page_views: DataFrame, pipeline: Project) -> DataFrame:
    """Visits: page views of a customer without a pause longer than `session_gap`."""
    visits = page_views.groupBy(
        fn.session_window("viewed_at", pipeline.settings["session_gap"]).alias("session"), "customer"
    ).agg(fn.count("*").alias("views"), fn.bool_or(fn.col("page") == "/cart").alias("reached_cart"))
    return visits.select(
        "customer",
        fn.col("session.start").alias("began"),
        fn.col("session.end").alias("ended"),
        "views",
        "reached_cart",
    )


def funnel(orders: DataFrame, page_views: DataFrame, payments: DataFrame, pipeline: Project) -> DataFrame:
    """Customers per minute who viewed pages, filled the cart, ordered and paid."""
    step = fn.when(fn.col("page") == "/cart", "cart").otherwise("looked")
    steps = page_views.select(fn.col("viewed_at").alias("at"), "customer", step.alias("step"))
    for rows, time, name in ((orders, "ordered_at", "ordered"), (payments, "paid_at", "paid")):
        steps = steps.unionByName(rows.select(fn.col(time).alias("at"), "customer", fn.lit(name).alias("step")))

    def customers(name: str) -> Column:
        return fn.size(fn.collect_set(fn.when(fn.col("step") == name, fn.col("customer")))).alias(name)

    counted = steps.groupBy(minute("at", pipeline)).agg(*map(customers, ("looked", "cart", "ordered", "paid")))
    return counted.select(fn.col("window.start").alias("minute"), "looked", "cart", "ordered", "paid")


def anomalies(orders: DataFrame, payments: DataFrame, pipeline: Project) -> DataFrame:
    """Orders per minute that were not paid within `payment_time`, or with a wrong amount."""
    bills = orders.select("order_id", "ordered_at", (fn.col("quantity") * fn.col("price")).alias("due"))
    paid = payments.select(fn.col("order_id").alias("paid_order"), "paid_at", "amount")
    in_time = f"paid_at BETWEEN ordered_at AND ordered_at + INTERVAL {pipeline.settings['payment_time']}"
    found = bills.join(paid, fn.expr(f"order_id = paid_order AND {in_time}"), "left_outer")
    anomaly = fn.when(fn.col("amount").isNull(), "unpaid").when(fn.col("amount") != fn.col("due"), "wrong amount")
    wrong = found.select("ordered_at", "due", "amount", anomaly.alias("anomaly")).where("anomaly IS NOT NULL")
    counted = wrong.groupBy(minute("ordered_at", pipeline), "anomaly").agg(
        fn.count("*").alias("orders"), fn.sum(fn.col("due") - fn.coalesce("amount", fn.lit(0))).alias("difference")
    )
    return counted.select(fn.col("window.start").alias("minute"), "anomaly", "orders", "difference")


def minute(time: str, pipeline: Project) -> Column:
    return fn.window(time, pipeline.settings["window"]).alias("window")


def records(rows: DataFrame, name: str) -> DataFrame:
    """Results as records for a topic."""
    return rows.select(fn.col(KEYS[name]).cast("string").alias("key"), fn.to_json(fn.struct("*")).alias("value"))
