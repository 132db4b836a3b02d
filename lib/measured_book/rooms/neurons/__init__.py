"""The chapter *Keys, values and neurons*: what it claims, measures, draws and asks."""
