"""Features: vocabularies and scalers, learnt from the training part."""
