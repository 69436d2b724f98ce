"""The engines: fast, plain and the reference run a pass; rounds run over a relation."""
