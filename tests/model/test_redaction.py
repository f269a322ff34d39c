"""Lines that others wrote lose the values of what sounds secret, and nothing else."""

from __future__ import annotations

from time import process_time

import pytest

from headrace.model.text import blanked, redacted, redacted_to, secret_places

LONG = 50_000  # characters; a pattern that begins again at each of them takes 10 s and more
LONG_S = 5.0  # of the processor, far above what is needed


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("password=hunter2 user=me", "password=****** user=me"),
        ('{"token": "a b", "rows": 7}', '{"token": ******, "rows": 7}'),
        ("spark.hadoop.fs.s3a.secret.key: abc", "spark.hadoop.fs.s3a.secret.key: ******"),
        ("jdbc:postgresql://me:pw@db:5432/x", "jdbc:postgresql://me:******@db:5432/x"),
        ("jdbc:postgresql://me:p@w@db/x", "jdbc:postgresql://me:******@db/x"),
        ("sent Bearer abcdefgh.ijkl", "sent Bearer ******"),
        ("a\0b", "ab"),
        ("s3://b/t/date_key=20240101/part-0.parquet", "s3://b/t/date_key=20240101/part-0.parquet"),
        ("column business_key: string is there", "column business_key: string is there"),
        ("storage_account_key=abc x.key=abc", "storage_account_key=****** x.key=******"),
    ],
)
def test_values_of_secrets_are_left_out(line: str, shown: str) -> None:
    assert redacted(line) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("INFO SparkContext: password=hunter2", "INFO SparkContext: password=******"),
        ("error: token=hunter2", "error: token=******"),
        ("a: b: c=d: pwd: hunter2 e=f", "a: b: c=d: pwd: ****** e=f"),
        (
            "url=jdbc:postgresql://db/x?user=a&password=hunter2",
            "url=jdbc:postgresql://db/x?user=a&password=******",
        ),
        ("options={password=hunter2}", "options={password=******}"),
        ("(spark.x.token=hunter2), next", "(spark.x.token=******), next"),
        (
            "spark.driver.extraJavaOptions=-Djavax.net.ssl.keyStorePassword=hunter2 -Dx=1",
            "spark.driver.extraJavaOptions=-Djavax.net.ssl.keyStorePassword=****** -Dx=1",
        ),
        ("--conf spark.x.password=hunter2", "--conf spark.x.password=******"),
        ("Map(user -> me, password -> hunter2)", "Map(user -> me, password -> ******)"),
        ("password->hunter2", "password->******"),
        (":password => 'hun ter2'", ":password => ******"),
        ("os.environ['PGPASSWORD'] = 'hunter2'", "os.environ['PGPASSWORD'] = ******"),
        ("INFO TokenManager: password: hunter2 a", "INFO TokenManager: ****** ****** a"),
        ("12:11:26 x  password = hunter2", "12:11:26 x  password = ******"),
    ],
)
def test_a_secret_is_found_behind_other_names(line: str, shown: str) -> None:
    assert redacted(line) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"password": "hun ter2", "rows": 7}', '{"password": ******, "rows": 7}'),
        ("{'password': 'hun ter2', 'rows': 7}", "{'password': ******, 'rows': 7}"),
        (r'"password": "hun\"ter2" rows=7', '"password": ****** rows=7'),
        (r"{\"password\": \"hun ter2\", \"rows\": 7}", r"{\"password\": ******, \"rows\": 7}"),
        ('password="hunter2 and the line was cut', "password=******"),
        ("password={hun;ter2};user=me", "password=******;user=me"),
        ('"tokens": ["hun", "ter2"], "rows": 7', '"tokens": ******, "rows": 7'),
        ('"credentials": {"name": "hunter2"}', '"credentials": ******'),
    ],
)
def test_a_value_goes_as_a_whole(line: str, shown: str) -> None:
    assert redacted(line) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Authorization: Bearer abc", "Authorization: ******"),
        ("> authorization: Basic dTpw\n> host: x", "> authorization: ******\n> host: x"),
        ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: ******' x"),
        ('{"Authorization": "Bearer abc"}', '{"Authorization": ******}'),
        ("Authorization: token abc", "Authorization: ******"),
        ("Authorization: abc", "Authorization: ******"),
    ],
)
def test_a_header_loses_its_credentials_with_their_scheme(line: str, shown: str) -> None:
    assert redacted(line) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("x.key=hunter2", "x.key=******"),
        ("fs.s3a.encryption.key=hunter2", "fs.s3a.encryption.key=******"),
        ("SIGNING_KEY: hunter2", "SIGNING_KEY: ******"),
    ],
)
def test_the_key_of_something_is_a_secret(line: str, shown: str) -> None:
    assert redacted(line) == shown


@pytest.mark.parametrize(
    "line",
    [
        "12:11:26,165 INFO registered  worker=67 term=1",
        "primary key: id",
        "reconcile failed  reconciler=groups key=5",
        "partition.key=day sort_key=id primaryKey: id objectKey=part-1 kms_key_id=7",
        "commit_token=9 token_spent=False",
        "INFO SparkContext: Running Spark version 4.1.4",
        "see https://spark.apache.org:443/docs?x=1&y=2",
        "java.lang.IllegalStateException: a -> b, c => d",
        "'unterminated: \"",
        "password=",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert redacted(line) == line


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "a.", "a:", "a=", "a ", " ", "-", "\\", "'", '"', "//a:", "//", "@", "=", "}"),
        *("password", "password=", "password='", "password={", "password={;", "password: "),
        *("bearer ", "basic a", "jdbc:oracle:t:/", "jdbc:oracle:t:", "x='"),
    ],
)
def test_however_long_a_line_is_it_is_read_in_one_go(piece: str) -> None:
    line = piece * (LONG // len(piece))
    began_s = process_time()

    redacted(line)
    redacted(f"password={line}")
    secret_places(line)

    assert process_time() - began_s < LONG_S


def test_a_quote_behind_many_backslashes_is_not_looked_for_at_each_of_them() -> None:
    slashes = "\\" * LONG
    began_s = process_time()

    redacted(f'password={slashes}"{slashes}')

    assert process_time() - began_s < LONG_S


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("jdbc:postgresql://u:hunter2@db/x", "jdbc:postgresql://u:******@db/x"),
        ("jdbc:postgresql://db/x?user=u&password=hunter2", None),
        ("jdbc:sqlserver://db;user=u;password={hun;ter2};x=1", None),
        ("jdbc:mysql://address=(host=h)(password=hunter2)/x", None),
        ("jdbc:oracle:thin:u/hunter2@db:1521/x", "jdbc:oracle:thin:u/******@db:1521/x"),
        ("-Da=1 -Djavax.net.ssl.keyStorePassword=hunter2 -Db=2", None),
        ("-Dproxy=ftp://u:hunter2@proxy:80 -Db=2", "-Dproxy=ftp://u:******@proxy:80 -Db=2"),
        ("ftp://u:hun\tter2@h", "ftp://u:******@h"),
        ("ftp://u:password=hunter2@h", "ftp://u:******@h"),
        ("-Dfs.s3a.encryption.key=hunter2", "-Dfs.s3a.encryption.key=******"),
    ],
)
def test_a_secret_inside_of_a_value_is_found_and_blanked(value: str, shown: str | None) -> None:
    assert secret_places(value)
    assert "ter2" not in blanked(value)
    assert shown is None or blanked(value) == shown


@pytest.mark.parametrize(
    "value",
    [
        "4g",
        "jdbc:postgresql://db:5432/x?user=u",
        "thrift://h1:9083,thrift://h2:9083",
        "registry.example:5000/headrace@sha256:0a1b",
        "-Djava.security.auth.login.config=/etc/jaas.conf -Xss4m",
        "-Djavax.security.auth.useSubjectCredsOnly=false",
        "-Djmxremote.password.file=/etc/jmx -Dauthentication=kerberos -Dx.TokenFile=/t",
        "http://[::1",
        "s3://bucket/key=5/a@b",
        "x?password=",
    ],
)
def test_a_value_without_a_secret_stays_as_it_is(value: str) -> None:
    assert not secret_places(value)
    assert blanked(value) == value


def test_a_beginning_is_redacted_before_it_is_cut() -> None:
    assert redacted_to(12, "password=hunter2 and more") == "password=***"
