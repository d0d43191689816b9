"""How uncertain the learner's parameters are: along training, and in the long run."""
