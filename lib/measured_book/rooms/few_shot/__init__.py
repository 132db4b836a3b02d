"""Curves over the number of examples, in the chapter *Repeats and rules*: what they claim and measure."""
