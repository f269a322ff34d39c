"""The user of a history: submits jobs, cancels, saves and restores them, and submits others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.errors import NotFound, Refused, Unavailable
from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.store.tables.catalogs import NewCatalog
from tests.simulation.actors import Stage
from tests.simulation.lake import CATALOG, NAMESPACE
from tests.simulation.lake_format import CATALOG_TYPE
from tests.simulation.lake_people import name_of
from tests.simulation.network import NoAnswer
from tests.simulation.scenario import GROUP
from tests.simulation.world import Process

TIMEOUT_S = 5.0
PAUSE_S = 0.5
LOOK_S = 0.1
ASK_S = (0.5, 3.0)  # between two commands about tables
BACKUP_S = (0.1, 4.0)  # from the submission until the store is backed up
REWIND_S = (0.05, 4.0)  # and until that backup is restored
TRIES_MAX = 1000
KNOWN_MAX = 20  # tries to name a table
CLEANED_MAX = 120  # tries to submit under an id that awaits its cleanup
NOT_BEGUN = frozenset({JobStatus.CREATED, JobStatus.PENDING})


class ClientActor:
    """Does to each job of a scenario what it asks for, each command until it is answered."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.accepted: dict[str, str] = {}  # job id by submission key

    def __call__(self, process: Process) -> None:
        if self._stage.scenario.tables:
            place = {"warehouse": "/simulated"}
            catalog = NewCatalog(CATALOG, CATALOG_TYPE, place, GROUP)
            self._until_answered(process, "add catalog", catalog)
        self._submit_all(process)
        for command in self._stage.scenario.asks:
            name = name_of(process.random.randrange(self._stage.scenario.tables))
            self._ask(process, {"command": command, "table": f"{CATALOG}.{NAMESPACE}.{name}"})

    def _ask(self, process: Process, body: dict[str, str]) -> None:
        """A table is known some time after its catalog was added, or after it was made anew."""
        for _ in range(KNOWN_MAX):
            self._stage.world.sleep(process.random.uniform(*ASK_S))
            try:
                self._until_answered(process, "ask", body)
            except Refused as error:
                self._stage.world.tell(str(error), "client")
                if isinstance(error, NotFound) and error.kind == "table":
                    continue
            return

    def _submit_all(self, process: Process) -> None:
        for number in range(1, self._stage.scenario.jobs + 1):
            key, job_id = f"key-{number}", f"job-{number}"
            body = {
                "spec": self._stage.scenario.spec(),
                "submission_key": key,
                "job_id": job_id,
                "group": GROUP,
            }
            first = self._until_answered(process, "submit", body)
            if self._stage.scenario.rewinds:
                self._rewind(process)
            self._save_and_restore(process, body)
            self._cancel(process, job_id)
            if self._stage.scenario.leaves:
                self._until(process, job_id, lambda status: status in JOB_ENDED)
                self._until_answered(process, "settle", job_id)
            if self._stage.scenario.resubmit:
                self._submit_another(process, body, first.incarnation)
            self.accepted[key] = job_id

    def _rewind(self, process: Process) -> None:
        self._stage.world.sleep(process.random.uniform(*BACKUP_S))
        self._stage.backup()
        self._stage.world.sleep(process.random.uniform(*REWIND_S))
        self._stage.rewind()

    def _save_and_restore(self, process: Process, body: dict[str, Any]) -> None:
        scenario, job_id = self._stage.scenario, body["job_id"]
        if scenario.savepoint_after_s is None and scenario.restore_after_s is None:
            return
        if scenario.savepoint_after_s is not None:
            self._save(process, job_id, scenario.savepoint_after_s)
        self._until(process, job_id, lambda status: status in JOB_ENDED)
        if scenario.restore_after_s is not None:
            # A little earlier or later: what is due then has been done, or not.
            self._stage.world.sleep(scenario.restore_after_s * process.random.uniform(0.8, 1.2))
        again = {**body, "submission_key": f"{body['submission_key']}, again"}
        self._unless_refused(process, "restore", again)

    def _cancel(self, process: Process, job_id: str) -> None:
        scenario = self._stage.scenario
        if scenario.hasty:
            self._until_answered(process, "cancel", job_id)
        elif scenario.cancel_after_s is not None:
            self._until(process, job_id, lambda status: status not in NOT_BEGUN)
            self._stage.world.sleep(scenario.cancel_after_s)
            self._until_answered(process, "cancel", job_id)

    def _save(self, process: Process, job_id: str, after_s: float) -> None:
        """Ask for a savepoint. A job that ends first has none."""
        self._until(process, job_id, lambda status: status not in NOT_BEGUN)
        self._stage.world.sleep(after_s)
        self._unless_refused(process, "savepoint", job_id)

    def _submit_another(self, process: Process, body: dict[str, Any], first: str) -> None:
        """Refused while the job awaits its cleanup. Who repeats the old key gets the old job."""
        self._until(process, body["job_id"], lambda status: status in JOB_ENDED)
        other = {**body, "submission_key": f"{body['submission_key']}, other"}
        for _ in range(CLEANED_MAX):
            self._same_key_same_job(process, body, first)
            try:
                second = self._until_answered(process, "submit", other)
                break
            except Refused as error:
                self._stage.world.tell(str(error), "client")
                self._stage.world.sleep(PAUSE_S)
        else:
            self._stage.world.problem("nothing_stuck", "a job is never cleaned up")
            return
        self._same_key_same_job(process, body, first)
        self._same_key_same_job(process, other, second.incarnation)
        if second.incarnation == first:
            self._stage.world.problem("same_key_same_job", f"another job got {first}")

    def _same_key_same_job(self, process: Process, body: dict[str, Any], first: str) -> None:
        again = self._until_answered(process, "submit", body)
        if again.incarnation != first:
            what = f"{body['submission_key']} was {first}, is {again.incarnation}"
            self._stage.world.problem("same_key_same_job", what)

    def _until(self, process: Process, job_id: str, met: Callable[[JobStatus], bool]) -> None:
        for _ in range(TRIES_MAX):
            if met(self._until_answered(process, "show", job_id).status):
                return
            self._stage.world.sleep(LOOK_S)

    def _unless_refused(self, process: Process, verb: str, body: Any) -> None:
        """The job may be quicker than the command: then there is nothing to save, or restore."""
        try:
            self._until_answered(process, verb, body)
        except Refused as error:
            self._stage.world.tell(str(error), "client")

    def _until_answered(self, process: Process, verb: str, body: Any) -> Any:
        """A user repeats a command until somebody answers it, at any coordinator."""
        for _ in range(TRIES_MAX):
            address = f"http://{process.random.choice(self._stage.scenario.coordinators)}"
            try:
                return self._stage.network.call(address, verb, body, timeout_s=TIMEOUT_S)
            except (NoAnswer, Unavailable):
                self._stage.world.sleep(PAUSE_S)
        raise AssertionError(f"nobody ever answers {verb}")
