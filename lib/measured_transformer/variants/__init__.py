"""What takes the place of a part in an experiment.

Preparations for training, most of them: each is given to `train` as its `prepare`, and changes the fresh model
in place.
"""
