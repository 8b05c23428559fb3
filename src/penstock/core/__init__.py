"""What all protocols share: topics, records, groups, access. Knows no protocol and no socket."""
