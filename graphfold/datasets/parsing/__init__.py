"""Raw sentences, parsed by other libraries, and their objects as text that adapters read."""
