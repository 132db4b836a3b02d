"""The planned chapter `book/encoder-decoder/encoder-decoder`: its claims."""
