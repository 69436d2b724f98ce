"""Types of the values that flow between blocks: what they are, and how they are inferred."""
