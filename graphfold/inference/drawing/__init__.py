"""Pictures of graphs with predictions in colour, as SVG."""
