"""The chapter *Does the network store facts?*: what it claims, measures, draws and asks."""
