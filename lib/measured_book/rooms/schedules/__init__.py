"""The chapter *Training schedules*: what it claims, measures, draws and asks."""
