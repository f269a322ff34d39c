"""Commands about lake tables and catalogs, and `headrace inspect`."""
