"""Records that appear later, that can be cancelled until then, and that are not shown any more after a while."""

import sys
import time

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with penstock.connect(address) as db:
    db.produce("reminders", "now")
    db.produce("reminders", "in a moment", delay=0.3)
    tomorrow = db.produce("reminders", "tomorrow", delay=86_400)
    db.produce("reminders", "one-time code 1234", ttl=0.2)

    db.cancel(tomorrow)
    print("at once:", [record.text for record in db.consume("reminders", follow=False)])

    time.sleep(0.3)  # the code has expired, and the delayed record is there as soon as it is due
    with db.consume("reminders", start=1) as consumer:
        print("later:", consumer.poll(timeout=5)[0].text)
