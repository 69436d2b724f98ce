"""What others do in the same run: libraries, and code written by hand."""
