"""The parts of a Transformer: attention, positions, norms, feed-forward, block, tap."""
