"""How often false edges appear on a user's own recordings, where the truth is known by design."""
