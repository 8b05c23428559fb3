"""What each request does, one module for each family."""
