"""Tables of topics with the REST API of Unity Catalog, read-only: `/api/2.1/unity-catalog/…`. Spark's catalog for it
(`io.unitycatalog.spark.UCSingleCatalog`), Delta's own client and other readers of Unity Catalog find tables here.

The catalog `penstock` is the caller's tenant, schemas are its namespaces, and tables are those of topics, with the
topic's name, and typed tables, with the names they have in SQL and Flight. Start at `routes.py`."""
