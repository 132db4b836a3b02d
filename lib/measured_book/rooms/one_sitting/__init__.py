"""The chapter *A Transformer in one sitting*: what it claims, measures, draws and asks."""
