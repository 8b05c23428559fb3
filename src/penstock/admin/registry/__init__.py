"""The schema registry with Confluent's API: `/subjects`, `/schemas`, `/compatibility`, `/config`, `/mode`, `/contexts`.
Subjects and ids are those of the broker's schemas; `/api/v1/schemas` shows the same. Start at `routes.py`."""
