"""The chapter *Notation*: what it claims, measures, draws and asks."""
