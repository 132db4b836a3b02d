"""The chapter *What attention costs*: what it claims, measures, draws and asks."""
