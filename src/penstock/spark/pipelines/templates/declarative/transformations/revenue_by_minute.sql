-- Computed anew from all orders in every run: always right, whatever came late.
CREATE MATERIALIZED VIEW revenue_by_minute AS
SELECT window.start AS minute, product, count(*) AS orders, sum(quantity * price) AS revenue
FROM orders
GROUP BY window(ordered_at, '1 minute'), product;
