"""The schema registry as Confluent's clients know it: `/subjects`, `/schemas`, `/compatibility`, `/config`, `/mode`,
`/contexts`. The subjects are our schemas, the ids theirs; `/api/v1/schemas` shows the same ones."""
