"""The chapter *Superposition*: what it claims, measures, draws and asks."""
