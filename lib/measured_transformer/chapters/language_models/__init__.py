"""The planned chapter `book/language-models/language-models`: its claims."""
