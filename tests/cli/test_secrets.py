"""Secrets at rest, seen from outside: the bytes of the store while a job runs and after its end,
the key beside it, and the commands that change it."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.errors import KeyRefused
from headrace.store.core import engine
from headrace.store.core.engine import reading, writing
from headrace.store.core.keyring import KeyFile, KeySource, SecretKey, own_file
from headrace.store.migrate import prepare_store
from headrace.store.tables.catalogs import NewCatalog, add, secrets_of
from tests.cli import stand_in
from tests.cli.jobs.test_run import Commands
from tests.cli.machine import COMMAND_MAX_S, environment, headrace, one_line_of
from tests.coordinator.specs import SECRET
from tests.postgresql import PostgreSQL
from tests.stores import KEY, KEYS, open_store
from tools.tree import ROOT

pytestmark = pytest.mark.timeout(180)

OF_SOURCE, OF_ENV = "geheim-of-the-source", "geheim-of-the-env"
PASSWORDS = (SECRET, OF_SOURCE, OF_ENV)
WAY = 'url = "jdbc:postgresql://db/x", driver = "org.postgresql.Driver", user = "u"'
JOB = """
env { job.mode = "BATCH", "spark.hadoop.password" = "OF_ENV" }
source {
  FakeSource { plugin_output = "t", row.num = ROWS, schema { fields { id = "int" } } }
  Jdbc { plugin_output = "u", WAY, password = "OF_SOURCE", query = "select id from u" }
}
sink { Jdbc {
  plugin_input = ["t", "u"], WAY, password = "OF_SINK"
  generate_sink_sql = true, database = "x", table = "t"
} }
"""
OF_SINK = ["Jdbc-2.password", "Jdbc-2.url"]


def job_file(folder: Path, rows: int) -> str:
    path = folder / f"secret-{rows}.conf"
    text = JOB.replace("ROWS", str(rows)).replace("WAY", WAY).replace("OF_ENV", OF_ENV)
    path.write_text(text.replace("OF_SOURCE", OF_SOURCE).replace("OF_SINK", SECRET))
    return path.name


def stored(home: Path) -> bytes:
    """Every byte of the store: its file, the log before it, and what SQLite has beside them."""
    return b"".join(path.read_bytes() for path in sorted(home.glob("store.db*")))


def logged(folder: Path) -> bytes:
    files = [*folder.glob("out-*"), *folder.glob("err-*"), *folder.glob(".headrace/logs/*")]
    return b"".join(path.read_bytes() for path in files)


def check_clean(folder: Path) -> None:
    for password in PASSWORDS:
        assert password.encode() not in stored(folder / ".headrace")
        assert password.encode() not in logged(folder)


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.close()


@pytest.mark.req("C2")
def test_no_password_is_in_the_store_while_a_job_runs_and_no_secret_after_a_run(
    commands: Commands,
) -> None:
    started = commands.start("run", job_file(commands.folder, stand_in.WAITS))
    started.says("running")
    assert b"sealed" in stored(commands.home)
    check_clean(commands.folder)
    assert stat.S_IMODE((commands.home / "store.db.key").stat().st_mode) == 0o600
    for pid in (*commands.children("coordinator"), *commands.children("worker")):
        process = psutil.Process(pid)
        assert KEY.text not in " ".join(process.cmdline())
        assert "HEADRACE_SECRET_KEY" not in process.environ()
    (commands.home / "go").touch()

    started.ends(0)

    used = json.loads((commands.home / stand_in.FORGOTTEN).read_text())
    assert (sorted(used), used[OF_SINK[0]]) == (OF_SINK, SECRET)
    check_clean(commands.folder)
    assert b'"sealed"' not in stored(commands.home), "nor in the log that SQLite writes ahead"
    assert "the store keeps" not in started.err


def test_a_run_that_can_not_settle_its_targets_says_what_remains(
    commands: Commands,
) -> None:
    commands.home.mkdir(mode=0o700)
    (commands.home / stand_in.SINK_AWAY).touch()
    started = commands.start("run", job_file(commands.folder, stand_in.FINISHES))

    started.ends(0)

    said = " ".join(started.err.split())
    assert f"the store keeps {', '.join(OF_SINK)}, encrypted" in said
    assert "the made-up sink is away" in said
    check_clean(commands.folder)


def test_a_worker_is_not_given_the_key(commands: Commands) -> None:
    file = job_file(commands.folder, stand_in.WAITS)
    started = commands.start("run", file, HEADRACE_SECRET_KEY=KEY.text)
    started.says("running")
    [coordinator], [worker] = commands.children("coordinator"), commands.children("worker")
    assert psutil.Process(coordinator).environ()["HEADRACE_SECRET_KEY"] == KEY.text
    assert "HEADRACE_SECRET_KEY" not in psutil.Process(worker).environ()
    (commands.home / "go").touch()
    started.ends(0)
    assert (commands.home / "store.db.key").exists(), "a SQLite store has a key of its own"


def test_a_coordinator_on_postgresql_needs_the_stores_key(
    postgresql_url: str, tmp_path: Path
) -> None:
    without = headrace("coordinator", "--store", postgresql_url, cwd=tmp_path)
    assert without.returncode == 2
    line = one_line_of(without)
    assert "--secret-key-file FILE" in line
    assert "HEADRACE_SECRET_KEY" in line

    other = SecretKey.new()
    env = environment(HEADRACE_SECRET_KEY=other.text, HEADRACE_STORE=postgresql_url)
    refused = headrace("coordinator", cwd=tmp_path, env=env)
    assert refused.returncode == 2
    assert f"is encrypted under key {KEY.id}" in one_line_of(refused)

    for text in ("geheim", f"{KEY.text}x"):
        env = environment(HEADRACE_SECRET_KEY=text, HEADRACE_STORE=postgresql_url)
        wrong = headrace("coordinator", cwd=tmp_path, env=env)
        assert wrong.returncode == 2
        assert "HEADRACE_SECRET_KEY can not be used" in one_line_of(wrong)
        assert text not in wrong.stderr


def test_a_file_that_all_may_read_is_refused(postgresql_url: str, tmp_path: Path) -> None:
    KeyFile(tmp_path / "keys").write([KEY])
    (tmp_path / "keys").chmod(0o644)
    arguments = ("coordinator", "--store", postgresql_url, "--secret-key-file", "keys")
    done = headrace(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "chmod 600 keys" in one_line_of(done)


def test_the_doctor_looks_for_the_key_and_makes_none(postgresql_url: str, tmp_path: Path) -> None:
    def store_finding(**env: str) -> tuple[str, str]:
        done = headrace("doctor", "--output", "json", cwd=tmp_path, env=environment(**env))
        [found] = [each for each in json.loads(done.stdout) if each["subject"] == "store"]
        return found["verdict"], found["text"]

    verdict, text = store_finding(HEADRACE_STORE=postgresql_url)
    assert (verdict, "--secret-key-file" in text) == ("fail", True)
    good = store_finding(HEADRACE_STORE=postgresql_url, HEADRACE_SECRET_KEY=KEY.text)
    assert good[0] == "ok"
    assert store_finding()[0] == "ok"
    assert list(tmp_path.rglob("*.key")) == []


@pytest.mark.processes
def test_the_key_of_a_sqlite_store_is_changed_by_one_command(
    sqlite_url: str, store_folder: Path, tmp_path: Path
) -> None:
    env = environment(HEADRACE_STORE=sqlite_url)
    done = headrace("store", "change-key", "--output", "json", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    [key] = own_file(store_folder / "store.db").read()
    assert json.loads(done.stdout) == {"key": key.id, "encrypted": 0}
    assert key != KEY
    assert key.text not in done.stdout + done.stderr


def test_whose_secrets_a_lost_key_takes_along_is_listed_before_they_are_deleted(
    postgresql_url: str, tmp_path: Path
) -> None:
    store = open_store(postgresql_url)
    with writing(store) as conn:
        made = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": SECRET})
        assert add(conn, made, now_ms=1)
    store.dispose()
    env = environment(HEADRACE_STORE=postgresql_url, HEADRACE_SECRET_KEY=SecretKey.new().text)

    listed = headrace("store", "forget-secrets", cwd=tmp_path, env=env)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines()[0] == "catalog lake: lake.token"
    assert "nothing was changed" in listed.stdout

    done = headrace("store", "forget-secrets", "--yes", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "headrace catalog set NAME" in done.stdout
    key = SecretKey.read(env["HEADRACE_SECRET_KEY"]).id
    assert f"the store is under key {key} now" in done.stdout
    again = headrace("store", "forget-secrets", "--yes", cwd=tmp_path, env=env)
    assert again.stdout == f"there were no secrets; the store is under key {key} as before\n"


def test_an_empty_store_has_no_key_to_change(postgresql: PostgreSQL, tmp_path: Path) -> None:
    name = postgresql.create_database(template="template1")
    env = environment(HEADRACE_STORE=postgresql.url(name), HEADRACE_SECRET_KEY=KEYS.keys[0].text)
    done = headrace("store", "change-key", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "is empty" in one_line_of(done)
    postgresql.drop_database(name)


HOW_TO = ROOT / "docs" / "how-to" / "change-the-key-of-secrets.md"


def commands_of(page: Path, section: str) -> list[str]:
    """What stands in the fenced blocks of a section."""
    part = page.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    fenced = re.findall(r"^ *```\n(.*?)^ *```$", part, re.DOTALL | re.MULTILINE)
    return ["\n".join(line.strip() for line in block.splitlines()) for block in fenced]


def shell(block: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    program = f'headrace() {{ {sys.executable} -m headrace "$@"; }}\nset -e\n{block}'
    return subprocess.run(
        ["bash", "-c", program],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=COMMAND_MAX_S,
        check=False,
    )


def kept(url: str, keys: KeySource) -> object:
    store = engine.open_store(url, keys=keys)
    try:
        prepare_store(store)
        with reading(store) as conn:
            return secrets_of(conn, "lake")
    finally:
        store.dispose()


def test_the_how_to_changes_the_key_of_a_postgresql_store(
    postgresql_url: str, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "headrace.key")
    file.write([KEY])
    running = engine.open_store(postgresql_url, keys=file)  # a coordinator, which is not restarted
    with writing(running) as conn:
        made = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": SECRET})
        assert add(conn, made, now_ms=1)

    for block in commands_of(HOW_TO, "On PostgreSQL"):
        done = shell(block, tmp_path, HEADRACE_STORE=postgresql_url)
        assert done.returncode == 0, done.stderr
        with reading(running) as conn:
            assert secrets_of(conn, "lake") == {"lake.token": SECRET}, block

    [key] = file.read()
    assert key != KEY
    assert kept(postgresql_url, file) == {"lake.token": SECRET}
    with pytest.raises(KeyRefused):
        kept(postgresql_url, KEYS)
    running.dispose()


@pytest.mark.processes
def test_the_how_to_changes_the_key_of_a_sqlite_store_and_survives_the_loss_of_it(
    sqlite_url: str, store_folder: Path
) -> None:
    [block] = commands_of(HOW_TO, "On SQLite")
    (store_folder / ".headrace").mkdir()
    for name in ("store.db", "store.db.key"):
        (store_folder / name).rename(store_folder / ".headrace" / name)
    done = shell(block, store_folder)
    assert done.returncode == 0, done.stderr
    file = own_file(store_folder / ".headrace" / "store.db")
    assert file.read() != [KEY]
    file.path.unlink()

    [block] = commands_of(HOW_TO, "If the key is lost")
    assert "0 would lose their secrets" in shell(block, store_folder).stdout
    assert not file.exists()
    done = shell(f"{block.strip()} --yes", store_folder)
    assert done.returncode == 0, done.stderr
    assert file.exists()
