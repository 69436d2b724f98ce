"""Files as records with places: lines of text, rows of tables, cells of a target."""
