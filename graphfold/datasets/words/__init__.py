"""Words: vectors from files, characters, and features of whole sentences."""
