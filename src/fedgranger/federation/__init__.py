"""A run between parties that share nothing but messages, on any engine that carries bytes."""
