"""The chapter *Positional encoding*: what it claims, measures, draws and asks."""
