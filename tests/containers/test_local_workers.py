"""The command line of a worker that runs here, with a cluster and without one."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from headrace.containers.container import ContainerSetting
from headrace.containers.detached import SECRETS, DetachedWorkers
from headrace.containers.local import local_workers, spark_workers
from tests.containers.launches import PATHS, STAND_IN, ended_after, launch_of, wait_until_works

SECRET_KEY = "spark-conf.spark.hadoop.fs.s3a.secret.key"


def spark(home: Path, **properties: str) -> DetachedWorkers:
    made = {"master": "spark://h:7077", "export.PYTHONPATH": PATHS, **properties}
    return spark_workers(ContainerSetting("c", made, "f:1", home), program=STAND_IN)


def process_of(container: DetachedWorkers, **properties: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a worker, as everybody, or its owner, sees them."""
    launch = launch_of(1, **properties)
    with ended_after(container, launch):
        container.start(launch)
        found = psutil.Process(wait_until_works(container, launch)[0])
        return found.cmdline(), found.environ()


def test_a_worker_on_a_cluster_has_its_master_and_the_settings_of_container_and_group(
    tmp_path: Path,
) -> None:
    container = spark(
        tmp_path,
        **{
            "spark-conf.spark.executor.memory": "4g",
            "spark-conf.spark.executor.cores": "2",
            "export.TZ": "UTC",
        },
    )

    line, told = process_of(container, **{"spark-conf.spark.executor.memory": "8g"})

    assert line[line.index("--spark-master") + 1] == "spark://h:7077"
    conf = {line[place + 1] for place, word in enumerate(line) if word == "--conf"}
    assert conf == {
        "spark.driver.memory=512m",
        "spark.executor.memory=8g",  # the group's wins
        "spark.executor.cores=2",
    }
    assert line[line.index("--home") + 1] == str(tmp_path)
    assert line[line.index("--launch-dir") + 1] == str(tmp_path / "containers/c/r1/1")
    assert told["TZ"] == "UTC"


def test_the_spark_of_the_user_is_taken_when_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "spark" / "bin").mkdir(parents=True)
    (tmp_path / "spark" / "bin" / "spark-submit").touch()

    _, told = process_of(spark(tmp_path, **{"spark-home": str(tmp_path / "spark")}))

    assert told["SPARK_HOME"] == str(tmp_path / "spark")


def test_a_secret_of_spark_goes_by_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    container, launch = spark(tmp_path, **{SECRET_KEY: "a b=\\c"}), launch_of()
    path = tmp_path / "containers/c/r1/1" / SECRETS
    with ended_after(container, launch):
        container.start(launch)
        worker = psutil.Process(wait_until_works(container, launch)[0])
        line, told = worker.cmdline(), worker.environ()

        assert path.read_text() == "spark.hadoop.fs.s3a.secret.key=a\\ b\\=\\\\c\n"
        assert path.stat().st_mode & 0o777 == 0o600
    assert "a b" not in " ".join(line)
    assert told["PYSPARK_SUBMIT_ARGS"] == (
        f"--properties-file {path} --load-spark-defaults pyspark-shell"
    )


def test_a_setting_with_a_secret_inside_goes_by_that_file_as_well(tmp_path: Path) -> None:
    container = spark(
        tmp_path,
        **{
            "spark-conf.spark.sql.catalog.c.uri": "jdbc:postgresql://u:hidden@db/x",
            "spark-conf.spark.sql.catalog.d.uri": "jdbc:postgresql://db/y",
            # The worker has to see it, to add its own; and a JVM shows its options anyway.
            "spark-conf.spark.driver.extraJavaOptions": "-Xss4m -Dx.password=seen",
        },
    )
    launch, path = launch_of(), tmp_path / "containers/c/r1/1" / SECRETS
    with ended_after(container, launch):
        container.start(launch)
        line = psutil.Process(wait_until_works(container, launch)[0]).cmdline()

        written = "spark.sql.catalog.c.uri=jdbc\\:postgresql\\://u\\:hidden@db/x\n"
        assert path.read_text() == written
    assert "hidden" not in " ".join(line)
    assert "spark.sql.catalog.d.uri=jdbc:postgresql://db/y" in line
    assert "spark.driver.extraJavaOptions=-Xss4m -Dx.password=seen" in line


def test_a_worker_without_a_cluster_takes_as_many_cores_as_threads(tmp_path: Path) -> None:
    made = ContainerSetting("local", {"export.PYTHONPATH": PATHS}, "f:1", tmp_path)

    line, _ = process_of(local_workers(made, program=STAND_IN))

    assert line[line.index("--spark-master") + 1] == "local[3]"
    assert line[line.index("--slots") + 1] == "3"
    assert line[0] == sys.executable
