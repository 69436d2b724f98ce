"""Uncertainty: functions from predictions to predictions, which say how sure these are."""
