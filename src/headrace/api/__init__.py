"""The HTTP API of a coordinator: routes and views, the request guard, and the server process."""
