-- Minutes that are over, and of which nothing more can come: each once. The last ones stay open until later orders come.
CREATE STREAMING TABLE closed_minutes AS
SELECT window.start AS minute, product, count(*) AS orders, sum(quantity * price) AS revenue
FROM STREAM silver_orders WATERMARK ordered_at DELAY OF INTERVAL 10 SECONDS
GROUP BY window(ordered_at, '1 minute'), product;
