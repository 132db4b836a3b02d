"""The chapter *Language models*: what it claims, measures, draws and asks."""
