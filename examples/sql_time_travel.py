"""SQL over topics, with parameters, and as of an earlier position of the log."""

import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with penstock.connect(address, timeout=60) as db:
    for product, price in (("anvil", 40), ("bell", 7), ("anvil", 45)):
        db.produce("sales", f'{{"product": "{product}", "price": {price}}}')

    by_product = "SELECT product, sum(price) AS total FROM sales WHERE price > $1 GROUP BY product ORDER BY total"
    for product, total in db.sql(by_product, [5]):
        print(product, total)

    # The log has one position, which counts everything. A statement can look at what was there before.
    position = db.admin.info().position
    db.produce("sales", '{"product": "crane", "price": 900}')
    print("now:", db.sql("SELECT count(*) FROM sales").scalar())
    print("then:", db.sql("SELECT count(*) FROM sales", at=position).scalar())
