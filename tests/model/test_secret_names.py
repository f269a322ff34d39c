"""Which properties of a container are taken for secrets, by their names."""

from __future__ import annotations

import pytest

from headrace.model.text import holds_secret, redacted, sounds_secret

SECRET = """
export.AZURE_STORAGE_KEY
export.AZURE_STORAGE_KEY_2
export.AZURE_STORAGE_CONNECTION_STRING
export.AWS_SECRET_ACCESS_KEY
export.GOOGLE_API_KEY
export.KEY
export.PGPASSWORD
export.SIGNING-KEY
export.SIGNING_KEY_2
export.storageKey
export.dbPwd
KEY
spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net
spark.hadoop.fs.azure.sas.c.acct.blob.core.windows.net
spark.hadoop.fs.cosn.userinfo.secretKey
spark.hadoop.fs.gs.auth.service.account.private.key
spark.hadoop.fs.s3a.access.key
spark.hadoop.fs.s3a.encryption.key
spark.sql.catalog.lake.header.Authorization
spark.sql.catalog.lake.s3.sse.key
spark.sql.catalog.lake.credential
spark.sql.catalog.lake.my-key
"""
PLAIN = """
export.HADOOP_CONF_DIR
export.KEYS
export.KMS_KEY_ID
spark.x.cacheKey
export.MONKEY
export.PYTHONPATH
export.SSH_PUBLIC_KEY
export.SSL_KEYSTORE
export.TLS_KEY_FILE
image
spark.hadoop.fs.s3a.encryption.key-id
spark.hadoop.partition.key
spark.sql.catalog.lake.primary.key.columns
spark.sql.catalog.lake.primary-key
spark.sql.catalog.lake.primaryKey
spark.sql.catalog.lake.kms.key.id
spark.sql.catalog.lake.uri
spark.sql.shuffle.partitions
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_a_name_that_sounds_secret_is_taken_as_one(name: str) -> None:
    assert sounds_secret(name)


@pytest.mark.parametrize("name", PLAIN.split())
def test_a_name_that_does_not_is_not(name: str) -> None:
    assert not sounds_secret(name)


def test_the_key_of_a_storage_account_is_kept_out_of_what_others_said() -> None:
    said = redacted("export AZURE_STORAGE_KEY=abc== storageKey: def kms_key_id=ghi")

    assert "abc" not in said
    assert "def" not in said
    assert "kms_key_id=ghi" in said


def test_a_value_may_hold_a_secret_under_a_plain_name() -> None:
    assert holds_secret("uri", "jdbc:postgresql://ann:hush@db/x")
    assert holds_secret("password", "x")
    assert not holds_secret("uri", "jdbc:postgresql://db/x")
