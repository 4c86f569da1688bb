"""Commands of this leaf."""
