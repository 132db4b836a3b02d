"""Our instruments beside Captum's, TransformerLens' and the models of `transformers`, on the same weights."""
