"""The HTTP API as Python sees it: `client.Client`, and the views that it returns.

Nothing is re-exported: whoever needs the views alone should not load an HTTP client with them.
"""
