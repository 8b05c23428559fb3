"""Reading records: what is visible, waiting for more, filters, and views for readers in other processes."""
