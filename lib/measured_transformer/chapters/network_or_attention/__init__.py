"""The chapter *Is the network as critical as attention?*: what it claims, measures, draws and asks."""
