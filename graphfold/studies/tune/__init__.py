"""Search for good settings: trials, each a training run, chosen by Optuna."""
