from __future__ import annotations
from headrace.formats.iceberg.jvm import jvm
from headrace.model.tables.files import Partition
from tests.spark.test_rb_scratch import opt, rows, many, tasks, quick
from tests.spark.test_rb_scratch2 import test_dropped_spec_column_plain, test_data_path
from tests.spark.written import MERGE_ON_READ, Written

def test_types(tasks, session, warehouse):
    cols = "id int, d decimal(20,3), b binary, n timestamp_ntz, t timestamp, s struct<x:int,y:struct<z:float,k:string>>, l array<struct<e:int>>, m map<string,struct<v:int>>, f float, bo boolean, name string"
    w = Written(session, warehouse, columns=cols, properties={**MERGE_ON_READ, "write.metadata.compression-codec":"gzip", "self-optimizing.target-size":"9223372036854775807"}, partitioned="truncate(1, b)")
    def ins(i):
        w.sql(f"INSERT INTO {{t}} VALUES ({i}, {i}.125, X'00FF', timestamp_ntz'2020-01-0{i+1} 00:00:00.123456', timestamp'1901-01-01 00:00:00.{i}', named_struct('x',{i},'y',named_struct('z',float({i}.5),'k',null)), array(named_struct('e',{i}),null), map('a',named_struct('v',{i})), float('NaN'), null, '{i}')")
    for i in range(3): ins(i)
    for q in ("RENAME COLUMN s.y.z TO zz","ALTER COLUMN id TYPE bigint","ALTER COLUMN d TYPE decimal(30,3)","ALTER COLUMN f TYPE double","ADD COLUMN l.element.g string","DROP COLUMN l.element.e","ADD COLUMN l.element.e string","ALTER COLUMN name FIRST", "DROP COLUMN bo", "ADD COLUMN bo int"):
        w.sql("ALTER TABLE {t} " + q)
    w.sql("DELETE FROM {t} WHERE id = 1")
    opt(tasks, w)
    print(w.sql("SELECT * FROM {t}"))

def test_lineage(tasks, session, warehouse):
    w = Written(session, warehouse, partitioned="p", properties={**MERGE_ON_READ, "format-version":"3"})
    cols = "id, p, name, _row_id, _last_updated_sequence_number"
    many(w, 2); opt(tasks, w, 1, cols=cols)
    w.sql("UPDATE {t} SET name='u' WHERE id IN (3, 4)"); many(w, 1); w.sql("DELETE FROM {t} WHERE id = 9")
    opt(tasks, w, 2, cols=cols)
    w.sql("ALTER TABLE {t} WRITE ORDERED BY name"); w.sql("ALTER TABLE {t} REPLACE PARTITION FIELD p WITH bucket(3, id)")
    w.append(50); opt(tasks, w, 3, cols=cols)
    w.sql("DELETE FROM {t} WHERE id = 8")
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.spark.accept-any-schema'='true')")
    opt(tasks, w, 10, cols=cols)
    got = [r[3] for r in w.rows(cols)]; assert len(set(got)) == len(got) and None not in got

def test_eq_dropped(tasks, session, warehouse):
    w2 = Written(session, warehouse, properties=MERGE_ON_READ)
    many(w2, 2); w2.delete_named(["3", "14"]); w2.sql("ALTER TABLE {t} DROP COLUMN name")
    print(len(rows(w2)))
    p = tasks.plan(w2, at_least="FULL"); print(tasks.rewrite(w2, p))
    try: print(w2.sql(f"CALL headrace.system.rewrite_data_files(table => '{w2.name}', options => map('rewrite-all', 'true'))"), len(rows(w2)))
    except Exception as e: print("ICEBERG", str(e)[:1500])

def test_time_and_ns(tasks, session, warehouse):
    T = jvm(session).org.apache.iceberg.types.Types
    for name, kind in (("time", T.TimeType.get()), ("ns", T.TimestampNanoType.withoutZone())):
        w = Written(session, warehouse, properties={"format-version":"3"})
        many(w, 2)
        w.table.updateSchema().addColumn("x", kind).commit()
        print(name, tasks.look(w).pending)
        p = tasks.plan(w, at_least="FULL"); print(name, tasks.rewrite(w, p))
