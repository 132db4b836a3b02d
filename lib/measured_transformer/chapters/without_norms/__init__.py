"""The chapter *Life without norms*: what it claims, measures, draws and asks."""
