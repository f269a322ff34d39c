"""Another program that writes to lake tables, with a Spark of its own:
python -m tests.crash.lake_writer WAREHOUSE JVM_LOG

Each line that it reads is a statement as a JSON string; for each it writes one line, a JSON object
with the rows, or with the error. It ends with its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headrace.config import Settings
from headrace.spark.jvm_bridge import JAVA_ERRORS
from headrace.worker.warm_session import WarmSpark, start_spark

FEW = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.iceberg.distribution-mode": "none",  # each task of a statement writes a file
}


def serve(spark: WarmSpark) -> None:
    session: Any = spark.session
    for line in sys.stdin:
        try:
            rows = [row.asDict() for row in session.sql(json.loads(line)).collect()]
            told: dict[str, object] = {"rows": rows}
        except JAVA_ERRORS as error:
            told = {"error": str(error)}
        sys.stdout.write(json.dumps(told, default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    warm = start_spark(
        Settings(), warehouse=sys.argv[1], master="local[1]", conf=FEW, log_file=Path(sys.argv[2])
    )
    serve(warm)
    warm.stop(at_once=True)
