"""The chapter *How many heads can go?*: what it claims, measures, draws and asks."""
