"""What to do about a table that can't be read, told by the kinds of error it was met with."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_WAYS_OUT: Sequence[tuple[frozenset[str], str]] = (
    (
        frozenset({"NoSuchTableException", "TableMissing", "NoSuchNamespaceException"}),
        "it was dropped while the catalog was read; inspect again",
    ),
    (
        frozenset(
            {
                "AccessControlException",
                "AccessDeniedException",
                "ForbiddenException",
                "NotAuthorizedException",
                "S3Exception",
            }
        ),
        "let this user read the table's folder and its entry in the catalog, or give --property "
        "the credentials of one who may",
    ),
    (
        frozenset({"NotFoundException", "FileNotFoundException", "NoSuchFileException"}),
        "restore the named file from a backup, or drop the table from the catalog (without purge) "
        "and register its newest metadata file that is whole, with Spark's "
        "`CALL system.register_table`",
    ),
    (
        frozenset(
            {
                "JsonParseException",
                "JsonEOFException",
                "MismatchedInputException",
                "AvroRuntimeException",
                "InvalidAvroMagicException",
                "RuntimeIOException",
                "UncheckedIOException",
                "ValidationException",
                "IllegalArgumentException",
            }
        ),
        "its metadata is damaged: restore the file from a backup, or drop the table from the "
        "catalog (without purge) and register an earlier metadata file with Spark's "
        "`CALL system.register_table`",
    ),
    (
        frozenset({"ClassNotFoundException", "NoClassDefFoundError"}),
        "a jar is missing; add it with --conf spark.driver.extraClassPath=FILE",
    ),
)
_OTHERWISE = (
    "see whether Spark can read it; if it can, inspect again with --verbose and report what it says"
)


def way_out(kinds: Collection[str]) -> str:
    """`kinds`: names of the classes of an error and of its causes."""
    return next((way for known, way in _WAYS_OUT if not known.isdisjoint(kinds)), _OTHERWISE)
