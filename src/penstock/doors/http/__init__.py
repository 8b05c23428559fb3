"""HTTP for all services over it: sessions on h11 (`session`), immediate, deferred and streamed replies (`replies`), a
table of routes (`router`), authentication (`login`), and errors as JSON (`errors`). It defines no paths:
`penstock.admin` does, and doors that serve HTTP besides their own protocol. Imports broker and log. Start at
`router.py`."""
