"""Edge tests from the clients' least-squares states; runs at the server."""
