"""Publications: records staged by many tasks that become part of the log together and exactly once."""
