"""What runs at a client's site."""
