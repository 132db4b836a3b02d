"""The chapter *Many heads*: what it claims, measures, draws and asks."""
