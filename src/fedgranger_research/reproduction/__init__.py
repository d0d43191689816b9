"""The figures and the table of the paper's synthetic experiments, computed again."""
