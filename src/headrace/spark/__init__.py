"""What all Spark code shares: JVM bridge, errors, row counts, queries, file systems, jars."""
