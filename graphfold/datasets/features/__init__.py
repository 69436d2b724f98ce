"""Features: what is learnt from the training part about how data are presented to a model."""
