"""The planned chapter `book/encoder-decoder/metric-traps`: its claims."""
