"""The chapter *Metric traps*: what it claims, measures, draws and asks."""
