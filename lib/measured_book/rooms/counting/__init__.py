"""The chapter *Counting parameters and operations*: what it claims, measures, draws and asks."""
