"""A job runs through an upgrade: programs of the last version of the protocol, then ours."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client.client import Client
from headrace.protocol.messages import PROTOCOL_VERSION
from headrace.store.core.engine import open_store, reading
from headrace.store.tasks import workers
from tests.crash.cluster import END_MAX_S, until
from tests.crash.jobs import await_end, job, submit_text
from tests.crash.release import source_of
from tests.crash.stand import SPARK_START_MAX_S, Stand
from tests.crash.test_streaming import assert_whole, await_epochs, endless

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

SPEAKS_4 = "0da325e"  # the last commit whose programs speak protocol 4, and no other


def versions_spoken(store_url: str) -> list[int]:
    """By the registered workers, as a coordinator knows it."""
    engine = open_store(store_url)
    try:
        with reading(engine) as conn:
            return sorted(worker.protocol for worker in workers.registered(conn))
    finally:
        engine.dispose()


@pytest.mark.req("L4")
def test_a_stream_goes_on_while_coordinator_and_worker_are_replaced_one_after_the_other(
    stand: Stand, tmp_path: Path
) -> None:
    """First the coordinator, under the old worker; then the worker. No row is lost or doubled."""
    made, folder = stand.made, stand.made.folder / "rows"
    made.environment["PYTHONPATH"] = str(source_of(SPEAKS_4, tmp_path / "before"))
    stand.start()
    old_worker, old_coordinator = stand.worker, stand.coordinator
    stream = submit_text(stand.url, endless(folder))
    [before] = await_epochs(stand, [stream], above=1)
    held_by = job(stand.url, stream).pipelines[0].worker

    del made.environment["PYTHONPATH"]
    old_coordinator.signal(signal.SIGTERM)
    old_coordinator.popen.wait(END_MAX_S)
    stand.start_coordinator()
    stand.start_worker()

    [during] = await_epochs(stand, [stream], above=before + 1)
    assert job(stand.url, stream).pipelines[0].worker == held_by, "its old worker goes on with it"
    until(
        lambda: versions_spoken(made.store_url) == [4, PROTOCOL_VERSION],
        limit_s=SPARK_START_MAX_S,
        what="both workers are registered, each with its version",
    )
    # The worker alone, as a supervisor does: its JVM may die first otherwise, another exit code.
    old_worker.popen.send_signal(signal.SIGTERM)
    assert old_worker.popen.wait(END_MAX_S) == 0, old_worker.log.read_text()

    [after] = await_epochs(stand, [stream], above=during + 2)
    assert after > during
    assert job(stand.url, stream).pipelines[0].worker != held_by
    assert versions_spoken(made.store_url) == [PROTOCOL_VERSION]
    with closing(Client([stand.url])) as client:
        client.cancel_job(stream)
    await_end(stand.url, stream, "CANCELED")
    assert_whole(stand, stream, folder, [])
