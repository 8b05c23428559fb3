"""HTTP for whatever is served over it: sessions on h11 (`session`), replies at once, later or in pieces (`replies`), a
table of routes (`router`), who is asking (`login`), and errors as JSON (`errors`). It knows no path: those are listed
by `penstock.admin` and by doors that speak HTTP beside their own protocol. Imports broker and log. Start at
`router.py`.
"""
