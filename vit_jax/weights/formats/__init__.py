"""File formats of arrays: headers first, values on demand."""
