"""The chapter *Inside one layer*: what it claims, measures, draws and asks."""
