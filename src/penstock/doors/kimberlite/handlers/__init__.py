"""What each request does, one module for each family; `table` has them all."""
