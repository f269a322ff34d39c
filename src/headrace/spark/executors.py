"""The Python of Spark's executors: whether it finds the modules it needs, and rows for it as Arrow.

Code that runs in executors is imported there. Where it can't be, Spark fails a task with the
traceback of an unpickling, four times over. So the executors are asked before, by functions of
Python's own library, which each of them has: nothing of ours is sent.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import functions as vectorized
from pyspark.util import PythonEvalType

from headrace.errors import Refused
from headrace.spark.jvm_bridge import JAVA_ERRORS, java_message, java_messages

_MACHINE = "reflect('java.net.InetAddress', 'getLocalHost')"  # as an executor's JVM knows it

_NO_PYTHON = "Cannot run program"  # what Java says of an interpreter that is not there
_lock = threading.Lock()
_found: set[tuple[str, tuple[str, ...]]] = set()  # by application


def check_executors(session: SparkSession, modules: Iterable[str], *, needed_by: str) -> None:
    """Raise `Refused` that names the modules an executor misses, and its machine.

    Asked once for each application, of as many tasks as run at a time: an executor that is added
    later is not asked. Only the packages are looked for, and nothing is imported.
    """
    packages = tuple(sorted({module.partition(".")[0] for module in modules}))
    key = (str(session.sparkContext.applicationId), packages)
    with _lock:
        if not packages or key in _found:
            return
    missing = _missing(session, packages, needed_by)
    if missing:
        where = "; ".join(f"{', '.join(names)} on {on}" for on, names in sorted(missing.items()))
        raise Refused(
            f"{needed_by}: the Python of Spark's executors does not find {where}; install it there "
            "for the interpreter that PYSPARK_PYTHON names, or spark.pyspark.python"
        )
    with _lock:
        _found.add(key)


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str
) -> DataFrame:
    """`DataFrame.mapInArrow`: each partition as an iterator of `pyarrow.RecordBatch`.

    Spark's own method asks for pandas, which neither it nor the executors use for that.
    `function` is best one of a module, or a partial of one: it is sent by its name.
    """
    make: Any = vectorized
    udf = make.vectorized_udf(
        function, returnType=schema, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = udf(*[frame[name] for name in frame.columns])
    java: Any = frame._jdf  # noqa: SLF001  # pyright: ignore
    mapped = java.mapInArrow(column._jc, False, None)  # noqa: FBT003, SLF001 - barrier, profile
    return DataFrame(mapped, frame.sparkSession)


def _missing(
    session: SparkSession, packages: Sequence[str], needed_by: str
) -> Mapping[str, Sequence[str]]:
    """The packages that are missing, by machine."""
    tasks = session.sparkContext.defaultParallelism
    names = ", ".join(f"'{package}'" for package in packages)
    frame = session.range(0, tasks, 1, tasks)
    frame = frame.selectExpr(f"{_MACHINE} AS machine", f"explode(array({names})) AS package")
    asked = frame.selectExpr("struct(machine, package) AS key", "package AS value")
    rows: Any = asked.rdd  # its methods have types that can't be inferred
    try:
        answers = rows.mapValues(importlib.util.find_spec).mapValues(bool).collect()
    except JAVA_ERRORS as error:
        if _NO_PYTHON not in java_messages(error):
            raise  # an executor that was lost, say, which another attempt may not meet
        raise Refused(
            f"{needed_by}: the Python of Spark's executors does not start: {java_message(error)}"
        ) from error
    missing: dict[str, list[str]] = {}
    for (machine, package), is_there in dict(answers).items():
        if not is_there:
            missing.setdefault(str(machine), []).append(str(package))
    return missing
