"""A group's properties are shown to everybody: no secret is taken, by its name or in its value."""

from __future__ import annotations

import pytest

from headrace.api.group_views import redacted_properties
from headrace.coordinator.groups.commands import check_properties
from headrace.errors import BadSetting

URI = "spark-conf.spark.sql.catalog.c.uri"
OPTIONS = "spark-conf.spark.driver.extraJavaOptions"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("export.DB_PASSWORD", "hunter2", "'export.DB_PASSWORD' of group 'g' sounds secret"),
        ("spark-conf.spark.x.key", "hunter2", "'spark-conf.spark.x.key' of group 'g' sounds"),
        (URI, "jdbc:postgresql://u:hunter2@db/x", f"'{URI}' of group 'g' has a secret inside"),
        (URI, "jdbc:postgresql://db/x?password=hunter2", "the password of a URI"),
        (OPTIONS, "-Xss4m -Djavax.net.ssl.keyStorePassword=hunter2", "has a secret inside"),
        (OPTIONS, "-Dproxy=ftp://u:hunter2@proxy:80", "has a secret inside"),
        ("warehouse", "s3a://key:hunter2@bucket/x", "'warehouse' of group 'g' has a secret"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(name: str, value: str, said: str) -> None:
    with pytest.raises(BadSetting, match=f"{said}.*; set it for the container, in the file") as no:
        check_properties("g", {"spark-conf.spark.x": "1", name: value})

    assert "hunter2" not in str(no.value)
    assert "hunter2" not in str(
        redacted_properties({name: value})
    )  # a store may have one from before


def test_what_is_no_secret_is_taken_and_shown_as_it_is() -> None:
    plain = {
        URI: "jdbc:postgresql://db:5432/x?user=u",
        OPTIONS: "-Djava.security.auth.login.config=/etc/jaas.conf",
        "image": "registry.example:5000/headrace@sha256:0a1b",
        "master": "spark://h1:7077,h2:7077",
    }

    check_properties("g", plain)

    assert redacted_properties(plain) == plain


def test_of_a_uri_everything_else_is_shown() -> None:
    assert redacted_properties({URI: "jdbc:postgresql://u:hunter2@db/x"}) == {
        URI: "jdbc:postgresql://u:******@db/x"
    }
