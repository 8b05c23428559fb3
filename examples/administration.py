"""Administration: topics and their settings, users, keys, access lists, schemas, and groups."""

import secrets
import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with penstock.connect(address) as db:
    admin = db.admin
    print("version", admin.info().version, "- doors:", ", ".join(door.name for door in admin.doors()))

    admin.topics.create("invoices", partitions=3, retention_seconds=30 * 86_400)
    admin.topics.set("invoices", expiry_seconds=86_400)
    print("invoices:", admin.topics.get("invoices").settings["expiry_seconds"], "seconds")

    # Records that do not fit its schema are refused.
    admin.schemas.register("invoice", '{"type": "object", "required": ["total"]}')
    admin.topics.set("invoices", schema="invoice")
    try:
        db.produce("invoices", '{"amount": 3}')
    except penstock.PenstockError as error:
        print("refused:", error)

    # People log in with a password, programs with a key. With security off, all of this is kept for later.
    admin.users.create("ann", secrets.token_urlsafe(), roles=["consumer"])
    admin.acls.set("invoices", users=["ann"], restrict=True)
    key = admin.keys.create("billing", ["read", "write"], topics=["invoices"])
    print("key", key.key.id, "begins with", key.secret[:3])
    admin.keys.revoke(key.key.id)
    print("users:", [user.name for user in admin.users.list()])

    admin.acls.delete("invoices")
    admin.users.delete("ann")
    admin.topics.delete("invoices")
    admin.schemas.delete("invoice")
