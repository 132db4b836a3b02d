"""The chapter *Heads and grammar*: what it claims, measures, draws and asks."""
