"""How accurate the models are: tables of runs, beside published figures and chemprop."""
