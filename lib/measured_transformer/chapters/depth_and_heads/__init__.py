"""The planned chapter `book/encoder-decoder/depth-and-heads`: its claims."""
