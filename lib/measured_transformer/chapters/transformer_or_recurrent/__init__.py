"""The planned chapter `book/language-models/transformer-or-recurrent`: its claims."""
