"""Tables of topics: which jobs the table worker gets, and what came of them."""
