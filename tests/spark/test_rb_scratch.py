"""scratch"""
from __future__ import annotations
from typing import Any
import pytest
from pyspark.sql import SparkSession
from headrace.formats.iceberg import commit as committing
from headrace.formats.iceberg.jvm import jvm
from headrace.worker.spark import WarmSpark
from tests.spark.table_stand import NOW_MS, Tasks
from tests.spark.written import MERGE_ON_READ, Written, groups_of
from tests.spark.lake import sql

@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(committing, "SPEND_WAIT_S", 0.0)

@pytest.fixture
def tasks(warm: WarmSpark, warehouse: str) -> Tasks:
    return Tasks(warm, warehouse)

def rows(w, cols="*"):
    return sorted((tuple(map(repr, r)) for r in w.sql(f"SELECT {cols} FROM {{t}}")))

def opt(tasks, w, number=1, rest=True, kind="FULL", cols="*", **more):
    before = rows(w, cols)
    planned = tasks.plan(w, at_least=kind, **more)
    print("PLAN", planned.reason, [len(b.paths) for t in planned.tasks for b in t])
    if planned.reason: return planned
    out = tasks.process(w, planned, number)
    print("OUT", out)
    assert out.outcome == "COMMITTED" and not out.conflicts
    w.sql("REFRESH TABLE {t}")
    assert rows(w, cols) == before
    again = tasks.plan(w, at_least=kind, **more)
    print("AGAIN", again.reason, [[p for p in b.paths] for t in again.tasks for b in t])
    if rest: assert again.reason
    return planned

def many(w, n=4, parts=2):
    for i in range(n): w.append(i*10, partitions=parts)

def test_object_storage_flat(tasks, session, warehouse):
    w = Written(session, warehouse, partitioned="p", properties={"write.object-storage.enabled":"true","write.object-storage.partitioned-paths":"false"})
    many(w); print([f.path for f in w.scan().files][:2]); opt(tasks, w)

def test_object_storage(tasks, session, warehouse):
    w = Written(session, warehouse, partitioned="p", properties={"write.object-storage.enabled":"true"})
    many(w); opt(tasks, w); print([f.path for f in w.scan().files][:2])

def test_duplicates(tasks, session, warehouse):
    w = Written(session, warehouse, properties={"format-version":"3"})
    many(w, 3)
    t = w.table
    task = t.newScan().planFiles().iterator().next()
    t.newAppend().appendFile(task.file()).commit()
    print(len(rows(w))); opt(tasks, w); print(len(w.scan().files))

def test_null_and_null_text(tasks, session, warehouse):
    w = Written(session, warehouse, partitioned="name")
    w.sql("INSERT INTO {t} VALUES (1, 1, null)"); w.sql("INSERT INTO {t} VALUES (2, 1, 'null')")
    opt(tasks, w)

def test_year_10000(tasks, session, warehouse):
    w = Written(session, warehouse, columns="id bigint, at timestamp", partitioned="hours(at)")
    w.sql("INSERT INTO {t} SELECT 1, timestamp_micros(253402300800000000 + 3600000000*24*400)")
    w.sql("INSERT INTO {t} SELECT 2, timestamp_micros(253402300800000000 + 3600000000*24*400)")
    from headrace.protocol.tables import ToEvaluate
    print(tasks.look(w)); opt(tasks, w, cols="id")

def test_case(tasks, session, warehouse):
    session.conf.set("spark.sql.caseSensitive", "true")
    w = Written(session, warehouse, columns="id bigint, ID string, s struct<a:int,A:int>")
    w.sql("INSERT INTO {t} VALUES (1, 'x', struct(1,2))"); w.sql("INSERT INTO {t} VALUES (2, 'y', struct(3,4))")
    opt(tasks, w)

def test_v1(tasks, session, warehouse):
    w = Written(session, warehouse, partitioned="p", properties={"format-version":"1"})
    many(w); opt(tasks, w); many(w, 2)
    # upgraded between plan and commit
    planned = tasks.plan(w, at_least="FULL"); made = tasks.rewrite(w, planned, 2)
    before = rows(w)
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='2')")
    out = tasks.commit(tasks.commit_payload(w, planned, made, 2)); print(out)
    assert out.outcome == "COMMITTED"; assert rows(w) == before
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    w.sql("DELETE FROM {t} WHERE id % 7 = 3"); opt(tasks, w, 3)
    w.sql("DELETE FROM {t} WHERE id % 7 = 4")
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    w.sql("DELETE FROM {t} WHERE id % 7 = 5")
    many(w, 2)
    lin = sorted(map(tuple, w.sql("SELECT id, _row_id FROM {t}"))); print(lin[:4])
    opt(tasks, w, 4)
    assert sorted(map(tuple, w.sql("SELECT id, _row_id FROM {t}"))) == lin

@pytest.mark.parametrize("fmt", ["avro", "orc"])
def test_formats(tasks, session, warehouse, fmt):
    w = Written(session, warehouse, partitioned="p", properties={**MERGE_ON_READ, "write.format.default": fmt})
    many(w); w.sql("DELETE FROM {t} WHERE id in (3, 14)"); w.append(100)
    w.sql("ALTER TABLE {t} ADD COLUMN more string"); 
    opt(tasks, w); print([f.path[-8:] for f in w.scan().files])
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default'='parquet')")
    w.sql("INSERT INTO {t} VALUES (900, 0, 'x', 'y'), (901, 1, 'x', 'z')"); opt(tasks, w, 2)

def test_adopted(tasks, session, warehouse, tmp_path):
    src = tmp_path/"src"
    session.range(0, 20).selectExpr("id", "string(id) as name", "cast(id%2 as int) p").repartition(2).write.partitionBy("p").parquet(str(src))
    w = Written(session, warehouse, columns="id bigint, name string, p int", partitioned="p")
    w.sql(f"CALL headrace.system.add_files(table => '{w.name.split('.',1)[1]}', source_table => '`parquet`.`{src}`')")
    w.sql("ALTER TABLE {t} RENAME COLUMN name TO title"); w.sql("ALTER TABLE {t} ADD COLUMN extra int")
    print(w.sql("SELECT * FROM {t} LIMIT 2"))
    files = sorted(str(p) for p in src.rglob("*.parquet"))
    planned = opt(tasks, w)
    assert sorted(str(p) for p in src.rglob("*.parquet")) == files
    w.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)")
    w.sql("ALTER TABLE {t} DROP PARTITION FIELD p"); opt(tasks, w, 2)

def test_rollback(tasks, session, warehouse):
    w = Written(session, warehouse, properties=MERGE_ON_READ)
    many(w, 3); s = w.scan().snapshot; w.append(100)
    planned = tasks.plan(w, at_least="FULL"); made = tasks.rewrite(w, planned)
    w.sql(f"CALL headrace.system.rollback_to_snapshot('{w.name.split('.',1)[1]}', {s})")
    before = rows(w)
    try:
        out = tasks.commit(tasks.commit_payload(w, planned, made)); print(out)
    finally:
        assert rows(w) == before
    assert out.outcome == "CONFLICT"

def test_rollback_files_stay(tasks, session, warehouse):
    w = Written(session, warehouse, properties=MERGE_ON_READ, partitioned="p")
    many(w, 3); s = w.scan().snapshot; w.append(101, 1)
    planned = tasks.plan(w, at_least="FULL"); made = tasks.rewrite(w, planned)
    w.sql(f"CALL headrace.system.rollback_to_snapshot('{w.name.split('.',1)[1]}', {s})")
    before = rows(w)
    try:
        out = tasks.commit(tasks.commit_payload(w, planned, made)); print(out)
    finally:
        assert rows(w) == before
    print(out)

def test_two_owners_lost_delete(tasks, session, warehouse):
    w = Written(session, warehouse)
    many(w, 3)
    f = w.scan(); paths = sorted(x.path for x in f.files)
    by = {r[0]: r[1] for r in w.sql("SELECT DISTINCT input_file_name(), 1 FROM {t}")}
    first = sorted(f.files, key=lambda x: x.path)
    inputs = w.choose(f, [[first[0].path, first[1].path]])
    made = w.rewrite(inputs)
    names = [r[0] for r in w.sql(f"SELECT name FROM {{t}} WHERE _file = '{first[0].path}' LIMIT 2")]
    w.delete_named(names); w.append(500)
    other = Written.__new__(Written); other.__dict__ = dict(w.__dict__); other.owner = "other"
    f2 = other.scan(); i2 = other.choose(f2, [[first[2].path]]); m2 = other.rewrite(i2)
    print(other.replace(groups_of(i2, m2)))
    before = rows(w)
    print(w.replace(groups_of(inputs, made)))
    assert rows(w) == before

def test_dropped_spec_column(tasks, session, warehouse):
    w = Written(session, warehouse, partitioned="p", properties=MERGE_ON_READ)
    many(w, 3); w.sql("DELETE FROM {t} WHERE id = 4")
    w.sql("ALTER TABLE {t} DROP PARTITION FIELD p"); w.sql("ALTER TABLE {t} DROP COLUMN p")
    w.sql("INSERT INTO {t} VALUES (1000, 'a')"); w.sql("INSERT INTO {t} VALUES (1001, 'b')")
    opt(tasks, w)

def test_special_partitions(tasks, session, warehouse):
    w = Written(session, warehouse, partitioned="name, truncate(2, name)", columns="id bigint, p int, name string, `we.ird na/me` string")
    for k in range(2):
        for i, v in enumerate(["", ".", "..", "a/b", "a%2Fb", "ü~*+ é", "a=b", "x\ty", "日本", "a:b?c#d", " "]):
            session.createDataFrame([(i, k, v, v)], "id bigint, p int, name string, `we.ird na/me` string").coalesce(1).writeTo(w.name).append()
    planned = tasks.plan(w, at_least="FULL"); before = rows(w)
    tasks.rewrite(w, planned)  # lost
    made = tasks.rewrite(w, planned)
    out = tasks.commit(tasks.commit_payload(w, planned, made)); print(out.outcome, out.conflicts)
    assert rows(w) == before
    assert len(w.staged(w.at())) == len(w.scan().files)
    d = tasks.discard(w, planned); print(d); assert rows(w) == before; assert tasks.plan(w, at_least="FULL").reason
