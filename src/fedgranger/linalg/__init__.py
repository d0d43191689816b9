"""Linear algebra shared by all layers."""
