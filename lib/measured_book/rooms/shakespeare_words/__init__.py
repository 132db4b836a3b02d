"""The exercise sheet's language models on its own text: what is claimed and measured."""
