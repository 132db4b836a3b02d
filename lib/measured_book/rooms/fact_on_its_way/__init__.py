"""The chapter *A fact on its way*: where SmolLM2-135M-Instruct keeps facts, and what changes them."""
