"""The chapter *Does the position survive?*: what it claims, measures, draws and asks."""
