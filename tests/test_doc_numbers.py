"""A number that stands in the code and in the docs, or in the code twice, is the same in both."""

from __future__ import annotations

import re

import pytest
from annotated_types import Le

from headrace.api import connections, request_guard, server
from headrace.api.routes import groups as group_routes
from headrace.api.routes import jobs, worker_protocol
from headrace.cli import exits, serve_options
from headrace.cli import groups as group_commands
from headrace.cli.jobs import commands as job_commands
from headrace.cli.jobs import watch
from headrace.cli.local import supervisor
from headrace.cli.tables import commands as table_commands
from headrace.client import client
from headrace.client import groups as group_calls
from headrace.connectors.files import arrivals as file_source
from headrace.containers import detached
from headrace.containers.kubernetes import api as kubernetes_api
from headrace.containers.kubernetes import manifest
from headrace.coordinator import context
from headrace.coordinator.groups import container_calls, launcher, snapshot
from headrace.coordinator.jobs import attempts, cleanup, reconciler
from headrace.coordinator.leadership import leader, term
from headrace.coordinator.tables import catalogs, commands, evaluation, processes
from headrace.jobfile.env import ENV
from headrace.model import text
from headrace.model.groups import THREADS_MAX, AutoRestart, KeepSetting
from headrace.model.jobs import epoch
from headrace.model.jobs.spec import LOST_WORKERS_MAX
from headrace.model.tables import schedule
from headrace.model.task import POISON_WORKERS
from headrace.protocol import messages
from headrace.spark.installation import JAVA_VERSIONS_ACCEPTED
from headrace.store import lookups
from headrace.store.core import engine
from headrace.store.jobs import history, job_logs
from headrace.worker import outbox, sync_loop
from headrace.worker import service as worker_service
from tests.test_docs import page
from tools.tree import ROOT

SETTINGS, PROTOCOL, CONTAINERS, ERRORS, ADR_26 = (
    "reference/settings",
    "reference/protocol",
    "reference/containers",
    "reference/errors",
    "adr/0026-the-story-outlives-the-state",
)
RUN, WORKERS, TABLES, FILES, STATES = (
    "how-to/run-a-job",
    "how-to/keep-workers-running",
    "how-to/optimize-tables",
    "how-to/read-files-as-they-arrive",
    "explanation/state-machines",
)
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
WORDS = ("no", "one", "two", "three", "four", "five")
RESTART, KEEP = AutoRestart(), KeepSetting()
GRACE_MIN = RESTART.grace_ms // MINUTE_MS
CHECK_MIN = KEEP.check_interval_ms // MINUTE_MS
RETRY = {name: option.default for option in ENV.declared for name in option.names}
(CONTROL_SLOTS_MAX,) = (
    limit.le
    for limit in messages.Register.model_fields["control_slots"].metadata
    if isinstance(limit, Le)
)
NUMBERS = [
    (PROTOCOL, f"say to each other, version {messages.PROTOCOL_VERSION}."),
    (PROTOCOL, f"A body has at most {request_guard.BODY_BYTES_MAX:,} bytes (413)"),
    (PROTOCOL, f"within {connections.BODY_S:g} s of its head (408)"),
    (PROTOCOL, f"at most {worker_protocol.WAIT_S_MAX:g} s |"),
    (PROTOCOL, f"`slots` (1 to {THREADS_MAX})"),
    (
        PROTOCOL,
        f"at most {messages.REPORTS_PER_SYNC_MAX}, and "
        f"{messages.REPORT_BYTES_PER_SYNC_MAX:,} bytes",
    ),
    (PROTOCOL, f"oldest first; at most {messages.LINES_PER_SYNC_MAX} |"),
    (PROTOCOL, f"at most {messages.LINE_CHARS_MAX:,} characters"),
    (PROTOCOL, f"keeps the last {outbox.LINES_BUFFERED_MAX:,} and says"),
    (PROTOCOL, f"the last {job_logs.LOG_LINES_KEPT:,}, of all jobs"),
    (PROTOCOL, f"the last {epoch.JOB_LOG_LINES_MAX:,}, and each line"),
    (PROTOCOL, f"its last {outbox.ENDS_REMEMBERED_MAX:,} ends"),
    (PROTOCOL, f"at most {messages.PAYLOAD_BYTES_MAX:,} bytes each"),
    (SETTINGS, f"| head of a request | {connections.HEAD_S:g} s "),
    (SETTINGS, f"| body of a request | {connections.BODY_S:g} s "),
    (SETTINGS, f"| answer that nobody takes | {connections.ANSWER_S:g} s |"),
    (SETTINGS, f"nothing is asked | {server.KEEP_ALIVE_S} s |"),
    (SETTINGS, f"| size of a head | {connections.HEAD_BYTES_MAX:,} bytes "),
    (SETTINGS, f"| size of a body | {request_guard.BODY_BYTES_MAX:,} bytes |"),
    (SETTINGS, f"| connections | {connections.FILES_KEPT} fewer than files"),
    (SETTINGS, f"up to {connections.FILES_WANTED:,} or"),
    (SETTINGS, f"`Retry-After: {connections.RETRY_AFTER_S}`"),
    (SETTINGS, f"long poll of a worker ({worker_protocol.WAIT_S_MAX:g} s at most)"),
    (
        SETTINGS,
        f"`--state-cleanup-delay-ms` | {serve_options.STATE_CLEANUP_DELAY_MS} milliseconds",
    ),
    (
        SETTINGS,
        f"`--history-job-expire-minutes` | {serve_options.HISTORY_EXPIRE_MIN} minutes",
    ),
    (SETTINGS, f"`--job-log-expire-minutes` | {serve_options.JOB_LOG_EXPIRE_MIN} minutes"),
    (SETTINGS, f"`--savepoint-expire-hours` | {serve_options.SAVEPOINT_EXPIRE_H} hours"),
    (SETTINGS, f"`--commit-deadline` | {serve_options.COMMIT_DEADLINE_S:g} seconds"),
    (SETTINGS, f"beyond {job_logs.LOG_LINES_KEPT:,} lines of a job"),
    (SETTINGS, f"beyond {epoch.JOB_LOG_LINES_MAX:,} of all jobs"),
    (
        "requirements",
        f"`history-job-expire-minutes` ({serve_options.HISTORY_EXPIRE_MIN}: 7 days)",
    ),
    ("requirements", f"`job-log-expire-minutes` ({serve_options.JOB_LOG_EXPIRE_MIN})"),
    ("requirements", f"at most {job_logs.LOG_LINES_KEPT:,} lines of a job"),
    ("requirements", f"and {epoch.JOB_LOG_LINES_MAX:,} in all"),
    (
        "how-to/end-of-a-job",
        f"`--history-job-expire-minutes` {serve_options.HISTORY_EXPIRE_MIN} |",
    ),
    (
        "how-to/end-of-a-job",
        f"`--job-log-expire-minutes` {serve_options.JOB_LOG_EXPIRE_MIN} |",
    ),
    ("how-to/end-of-a-job", f"logs?tail={jobs.LINES_AT_ONCE}`"),
    ("how-to/run-a-job", f"About the last {job_logs.LOG_LINES_KEPT:,} lines"),
    (ADR_26, f"batches of {job_logs.EXPIRED_AT_ONCE_MAX:,} lines"),
    (ADR_26, f"batches of {history.EXPIRED_AT_ONCE_MAX:,}."),
    (ADR_26, f"{cleanup.COUNTED_AT_ONCE:,} in each pass"),
    (PROTOCOL, f"`control_slots` (1 to {CONTROL_SLOTS_MAX})"),
    (
        PROTOCOL,
        f"asks again every {sync_loop.TURN_PAUSE_S:g} s "
        f"for the first {sync_loop.TURN_MAX_S / 60:g} minutes",
    ),
    (PROTOCOL, f"--execution-stall-timeout`, {serve_options.STALL_TIMEOUT_S / 60:g} minutes)"),
    (PROTOCOL, f"`checkpoint.timeout` ({epoch.CHECKPOINT_TIMEOUT_MS / 1000:g} s)"),
    (SETTINGS, f"| `--ttl` | {serve_options.LEASE_TTL_S:g} |"),
    (SETTINGS, f"| `--heartbeat-timeout` | {serve_options.HEARTBEAT_TIMEOUT_S:g} |"),
    (SETTINGS, f"| `--execution-stall-timeout` | {serve_options.STALL_TIMEOUT_S:g} |"),
    (SETTINGS, f"set by more than {leader.JUMP_MIN_MS / 1000:g} seconds"),
    (SETTINGS, f"{catalogs.AWAY_MAX_MS // MINUTE_MS} minutes for a catalog that fails"),
    (SETTINGS, f"{schedule.WAIT_MAX_MS // HOUR_MS} hours for a table that fails"),
    (SETTINGS, f"{commands.BLOCK_MAX_S // 3600} hours for a blocker"),
    (SETTINGS, f"| `--refresh-tables-interval` | {serve_options.REFRESH_TABLES_S:g} seconds |"),
    (SETTINGS, f"| `--refresh-catalogs-interval` | {serve_options.REFRESH_CATALOGS_S:g} seconds |"),
    (SETTINGS, f"within {evaluation.COMMIT_NOTICE_PAUSE_MS / 1000:g} seconds anyway"),
    (SETTINGS, f"| `--auto-restart-max-retries` | {RESTART.max_retries} |"),
    (SETTINGS, f"grace period, {RESTART.max_retries * GRACE_MIN} minutes with the defaults"),
    (SETTINGS, f"| `--auto-restart-grace-period` | {RESTART.grace_ms // 1000} seconds |"),
    (SETTINGS, f"| `--min-parallelism-check-interval` | {KEEP.check_interval_ms // 1000} seconds"),
    (SETTINGS, f"| `--max-keeping-attempts` | {KEEP.max_attempts} |"),
    (
        SETTINGS,
        f"{' + '.join(str(n + 1) for n in range(KEEP.max_attempts))} check intervals, "
        f"{sum(range(KEEP.max_attempts + 1)) * CHECK_MIN} minutes with the defaults",
    ),
    (CONTAINERS, f"claimed its launch, and waits {detached.CLAIM_WAIT_MAX_S:g} s for that"),
    (CONTAINERS, f"The folders of the last {detached.LAUNCHES_KEPT_MAX} launches"),
    (CONTAINERS, f"nothing was written there for {detached.KEEP_FOLDERS_DAYS} days"),
    (CONTAINERS, f"of up to {detached.RESOURCES_SWEPT_MAX} other resources"),
    (CONTAINERS, f"Its pod then has {manifest.STOP_GRACE_S} s"),
    (CONTAINERS, f"made once, and has {kubernetes_api.REQUEST_TIMEOUT_S:g} s."),
    (CONTAINERS, f"tried again every {container_calls.ASK_PAUSE_S:g} s."),
    (CONTAINERS, f"| `memory` | `{manifest.MEMORY_PER_THREAD_MB}` |"),
    (CONTAINERS, f"| `extra.jvm.heap.ratio` | `{manifest.HEAP_RATIO}` |"),
    (CONTAINERS, f"not ended after {snapshot.START_MAX_MS // MINUTE_MS} minutes is taken for lost"),
    (CONTAINERS, f"is not stopped within {launcher.LANDS_MAX_S:g} s."),
    (ERRORS, f"{exits.BUG} a bug in Headrace"),
    (ERRORS, f"{exits.SPARK_DIED} that the JVM of a worker has died"),
    (ERRORS, f"{exits.LAUNCH_OVER} that the launch a worker was started for"),
    (ERRORS, f"known to be gone, for {sync_loop.TURN_MAX_S / 60:g} minutes"),
    (ERRORS, f"by themselves, at most {WORDS[supervisor.RESTARTS_MAX]} times"),
    (ERRORS, f"install Java {' or '.join(map(str, JAVA_VERSIONS_ACCEPTED))}"),
    (RUN, f"no coordinator answers for {watch.LEAVE_SILENCE_MAX_S:g} seconds"),
    (RUN, f"`job.retry.interval.seconds` ({RETRY['job.retry.interval.seconds']})"),
    (RUN, f"more than `job.retry.times` ({RETRY['job.retry.times']}) errors"),
    (RUN, f"`job.lost-workers.max` ({LOST_WORKERS_MAX}) workers lost in a row"),
    (RUN, f"running on {WORDS[POISON_WORKERS]} different workers"),
    (RUN, f"in all sinks or {reconciler.SETTLE_DEADLINE_S / 60:g} minutes are over"),
    (RUN, f"attempt 5 of {attempts.SETTLE_TRIES_MAX} in"),
    (RUN, f"runs nothing ends within {worker_service.LEAVE_IDLE_MAX_S + 1:g} seconds of SIGTERM"),
    (WORKERS, f"the heartbeat timeout ({serve_options.HEARTBEAT_TIMEOUT_S:g} s)"),
    (WORKERS, f"With the defaults ({RESTART.max_retries} and {RESTART.grace_ms // 1000} s)"),
    (WORKERS, f"comes {RESTART.max_retries * GRACE_MIN} minutes after the first detection"),
    (WORKERS, f"given up {GRACE_MIN} minutes later"),
    (WORKERS, f"asked for {container_calls.AT_ONCE_MAX} things at a time"),
    (WORKERS, f"More than {THREADS_MAX} threads"),
    (WORKERS, f"check intervals ({KEEP.check_interval_ms // 1000} s). After {KEEP.max_attempts} "),
    (WORKERS, f"holds nothing ({snapshot.DRAIN_MAX_MS // MINUTE_MS} minutes at most)"),
    (TABLES, f"by themselves, every {serve_options.REFRESH_CATALOGS_S / 60:g} minutes"),
    (TABLES, f"processes for {epoch.Retention().process_expire_ms // DAY_MS} days"),
    (TABLES, f"again after {schedule.FIRST_WAIT_MS // MINUTE_MS} minute, then 2, 4 and so on"),
    (TABLES, f"up to {schedule.WAIT_MAX_MS // HOUR_MS} hours"),
    (TABLES, f"took part in {WORDS[schedule.FILE_FAILURES_MAX]} failures"),
    ("explanation/self-optimizing", f"{processes.SETTLE_TIMEOUT_S // 60} minutes at the longest"),
    (FILES, f"more than {file_source.SEEN_MAX:,} files"),
    (FILES, f"names of more than {file_source.SEEN_BYTES_MAX:,} bytes"),
    (FILES, f"files as have names of {file_source.SLICE_BYTES_MAX:,} bytes"),
    (FILES, f"at most {WORDS[file_source.LATE_MAX_MS // HOUR_MS]} hour before the newest file"),
    (FILES, f"within {WORDS[file_source.SETTLE_MS // 1000]} seconds after it was last written"),
    (STATES, f"| the next pass, {term.PASS_INTERVAL_S:g} s |"),
    (STATES, f"on a worker that answers | {reconciler.STOP_DEADLINE_S / 60:g} min;"),
    (STATES, f"in a group without workers | {reconciler.SETTLE_ALONE_DEADLINE_S:g} s |"),
    (STATES, f"tried again and again | {reconciler.SETTLE_DEADLINE_S / 60:g} min |"),
    (STATES, f"does not come to an end | {reconciler.SETTLE_HELD_DEADLINE_S / 3600:g} h |"),
    (STATES, f"| `job.retry.times`, {RETRY['job.retry.times']} |"),
]


@pytest.mark.parametrize(("name", "said"), NUMBERS, ids=[said for _, said in NUMBERS])
def test_a_number_in_the_docs_is_that_of_the_code(name: str, said: str) -> None:
    assert said in page(name)


def test_the_options_and_what_they_are_by_themselves_agree() -> None:
    kept, options = epoch.Retention(), serve_options

    assert kept.history_expire_ms == options.HISTORY_EXPIRE_MIN * options.MINUTE_MS
    assert kept.job_log_expire_ms == options.JOB_LOG_EXPIRE_MIN * options.MINUTE_MS
    assert kept.state_cleanup_delay_ms == options.STATE_CLEANUP_DELAY_MS
    assert kept.savepoint_expire_ms == options.SAVEPOINT_EXPIRE_H * options.HOUR_MS
    assert kept.commit_deadline_s == epoch.COMMIT_DEADLINE_S == options.COMMIT_DEADLINE_S
    assert options.LEASE_TTL_S == engine.TTL_S
    assert options.STALL_TIMEOUT_S == context.STALL_TIMEOUT_S
    assert options.REFRESH_TABLES_S * 1000 == schedule.BASE_INTERVAL_MS
    assert options.REFRESH_CATALOGS_S * 1000 == schedule.DISCOVER_INTERVAL_MS


def test_the_options_of_groups_and_what_they_are_by_themselves_agree() -> None:
    options = serve_options.GroupSettings()

    assert options.auto_restart_max_retries == RESTART.max_retries
    assert options.auto_restart_grace_period * 1000 == RESTART.grace_ms
    assert options.min_parallelism_check_interval * 1000 == KEEP.check_interval_ms
    assert options.max_keeping_attempts == KEEP.max_attempts
    assert options.task_ack_timeout == context.ACK_TIMEOUT_S
    assert options.task_execute_timeout == context.EXECUTE_TIMEOUT_S


def test_commands_ask_for_as_much_as_coordinators_answer_with() -> None:
    assert job_commands.TAIL_MAX == job_logs.LOG_LINES_KEPT
    assert job_commands.HISTORY_MAX == jobs.HISTORY_LISTED_MAX
    assert job_commands.HISTORY_SHOWN == client.HISTORY_SHOWN
    assert job_commands.WORKER_CHARS == text.WORKER_CHARS
    assert group_commands.LINES_MAX == group_routes.LINES_MAX
    assert group_commands.LINES_SHOWN == group_calls.LOG_LINES_SHOWN
    assert table_commands.BLOCK_MAX_S == commands.BLOCK_MAX_S
    assert client.ID_DIGITS == lookups.ID_DIGITS


def test_a_worker_sends_no_more_than_a_coordinator_takes() -> None:
    assert messages.REPORT_BYTES_PER_SYNC_MAX < request_guard.BODY_BYTES_MAX
    assert messages.PAYLOAD_BYTES_MAX < messages.REPORT_BYTES_PER_SYNC_MAX


def test_every_front_page_names_the_same_python_and_java() -> None:
    declared = re.search(
        r'^requires-python = ">=(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert declared is not None
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    for said in (readme, page("tutorial"), makefile):
        assert f"{declared[1]} or newer" in said
        assert f"Java {JAVA_VERSIONS_ACCEPTED[0]}" in said
