"""The report of a run, state/report.html: input, broken rules, and results."""

from penstock.spark.pipelines import Project
from penstock.spark.pipelines.report import Report

RULES = """
SELECT dataset, rule, action, sum(rows)::BIGINT AS rows, sum(broke)::BIGINT AS broke,
       round(100.0 * sum(broke) / sum(rows), 2) AS percent
FROM bronze_quality GROUP BY ALL ORDER BY dataset, rule
"""
SESSIONS = """
SELECT views || CASE views WHEN 1 THEN ' page' ELSE ' pages' END, count(*) FROM gold_sessions
GROUP BY views ORDER BY views LIMIT 12
"""
FUNNEL = (
    "SELECT unnest(['looked', 'cart', 'ordered', 'paid']), unnest([sum(looked), sum(cart), sum(ordered), sum(paid)])"
)


def report(pipeline: Project) -> Report:
    return (
        Report(pipeline, f"{pipeline.name}: the shop's books")
        .bars("Records by door", "SELECT coalesce(door, 'not said'), count(*) FROM bronze GROUP BY 1 ORDER BY 1")
        .table("Expectations", RULES)
        .lines("Revenue by minute", "SELECT minute, product, revenue FROM gold_revenue")
        .bars("Customers in each minute, added up", f"{FUNNEL} FROM gold_funnel")
        .bars("Sessions by length", SESSIONS)
        .lines("Anomalies by minute", "SELECT minute, anomaly, orders FROM gold_anomalies")
    )
