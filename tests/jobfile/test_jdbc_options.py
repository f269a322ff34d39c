"""What `--check` says of a Jdbc block that no worker could run."""

from __future__ import annotations

import pytest

from tests.jobfile.samples import problem, read

URL = "jdbc:postgresql://h/d"


def from_database(options: str, url: str = URL) -> str:
    return f'source {{\n  Jdbc {{ url = "{url}", {options} }}\n}}\nsink {{ Console {{ }} }}\n'


def to_database(options: str, url: str = URL) -> str:
    fake = "source { FakeSource { schema { fields { id = int } } } }\n"
    return f'{fake}sink {{\n  Jdbc {{ url = "{url}", {options} }}\n}}\n'


@pytest.mark.parametrize("url", ["jdbc:mysql://root:hunter2@h/d", "postgresql://u:hunter2@h/d"])
def test_a_url_without_a_driver_is_refused_and_not_shown(url: str) -> None:
    said = (
        "can't be what it is: it must begin with jdbc:postgresql: so far; for other databases no "
        "driver comes along, and none is built"
    )

    assert problem(to_database("table = t", url)) == (
        f"job.conf:3:16: option 'url' of sink Jdbc {said}"
    )
    assert problem(from_database('query = "SELECT 1"', url)) == (
        f"job.conf:2:16: option 'url' of source Jdbc {said}"
    )


@pytest.mark.parametrize("url", ["jdbc:postgresql:", "jdbc:postgresql://", "jdbc:postgresql:?a=b"])
def test_a_url_without_a_database_is_refused(url: str) -> None:
    assert problem(to_database("table = t", url)) == (
        "job.conf:3:16: option 'url' of sink Jdbc can't be what it is: it names no database: "
        "jdbc:postgresql://host:5432/database"
    )


def test_the_driver_of_another_database_is_refused() -> None:
    said = problem(to_database('table = t, driver = "com.mysql.cj.jdbc.Driver"'))

    assert "option 'driver' of sink Jdbc can't be" in said
    assert said.endswith("is org.postgresql.Driver; leave 'driver' out")
    assert read(to_database('table = t, driver = "org.postgresql.Driver"'))


def test_a_database_that_is_not_the_one_of_the_url_is_refused() -> None:
    url = "jdbc:postgresql://u:hunter2@h:5432/d%20d?x=/y"

    said = problem(to_database("table = t, database = other", url))

    assert said == (
        "job.conf:3:3: sink Jdbc: 'database' is 'other', and the url leads to another one; make "
        "them the same"
    )
    for fits in ('database = "d d"', 'database = "${database_name}"'):
        assert read(to_database(f"table = t, {fits}", url))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "table = t, primary_keys = [id]",
            "3:3: sink Jdbc: 'primary_keys' asks for upserts, which come later; set enable_upsert "
            "= false to insert every row, or leave 'primary_keys' out",
        ),
        (
            'generate_sink_sql = true, query = "INSERT INTO t VALUES (?)"',
            "3:3: sink Jdbc: give 'query' or generate_sink_sql = true, not both",
        ),
        (
            'table = t, query = "INSERT INTO u VALUES (?)"',
            "3:3: sink Jdbc: give 'query' or 'table', not both: the query names the table",
        ),
        (
            'query = "UPDATE t SET a = ?"',
            "3:49: option 'query' of sink Jdbc can't be 'UPDATE t SET a = ?': it must have the "
            "form INSERT INTO t (a, b) VALUES (?, ?); for anything else shape the rows in a "
            "transform, and set generate_sink_sql = true with 'table'",
        ),
        (
            "table = t, use_copy_statement = true",
            "3:52: option 'use_copy_statement' of sink Jdbc with the value true is not built yet",
        ),
    ],
)
def test_a_sink_that_is_not_built_is_refused(options: str, said: str) -> None:
    assert problem(to_database(options)) == f"job.conf:{said}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('query = "SELECT 1", table_path = t', "give 'query' or 'table_path', one of them"),
        (
            "table_path = t, partition_column = id, partition_lower_bound = 1",
            "give both 'partition_lower_bound' and 'partition_upper_bound', or neither",
        ),
        ("table_path = t, partition_num = 4", "'partition_num' needs a 'partition_column'"),
    ],
)
def test_a_source_that_is_not_built_is_refused(options: str, said: str) -> None:
    assert problem(from_database(options)) == f"job.conf:2:3: source Jdbc: {said}"


def test_what_is_built_is_taken() -> None:
    assert read(to_database("table = t, primary_keys = [id], enable_upsert = false"))
    assert read(to_database('query = "INSERT INTO t (id) VALUES (?)"'))
    assert read(from_database("table_path = t, partition_column = id, partition_num = 4"))
