"""The processes of a history that are killed: coordinators and workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from headrace.coordinator.context import CoordinatorSettings, TableOptions
from headrace.coordinator.jobs.job_end import KnownJob, known_job
from headrace.coordinator.service import Coordinator
from headrace.errors import HeadraceError, NotLeader, Refused, SyncOvertaken, Unavailable
from headrace.model.jobs.epoch import EpochAt
from headrace.model.jobs.spec import PipelineSpec
from headrace.model.tables.status import OptimizingType
from headrace.model.task import Lane, TaskKind
from headrace.protocol.messages import ForgetPayload, Message, PipelinePayload
from headrace.store.core.engine import reading
from headrace.worker.client import ANSWER_TIMEOUT_S, LeaderClient
from headrace.worker.execution import Execution
from headrace.worker.jvm_monitor import Spark
from headrace.worker.outbox import Outbox
from headrace.worker.pipeline import Pipeline, Plugins
from headrace.worker.runner import TableRunner
from headrace.worker.sinks import check_forgettable
from headrace.worker.sync_loop import SyncLoop
from tests.fakes import PlainRows, registration
from tests.simulation.lake import Lake
from tests.simulation.lake_format import SimulatedFormat
from tests.simulation.network import Network, NoAnswer
from tests.simulation.scenario import GROUP, Scenario
from tests.simulation.stand_ins import awaited
from tests.simulation.target import ModelSink, ModelSource, Target
from tests.simulation.world import Process, World

TTL_S = 3.0
HEARTBEAT_TIMEOUT_S = 6.0
BLOCKED_S = 3
TABLES = TableOptions(break_quota=False, refresh_ms=3000, discover_ms=12_000)
RESTART_S = (0.2, 2.0)  # until a killed process is started again


@dataclass(slots=True)
class Stage:
    """What all actors of a history share."""

    world: World
    network: Network
    target: Target
    lake: Lake
    scenario: Scenario
    folder: Path
    ids: int = 0
    backup: Callable[[], None] = lambda: None  # of the store
    rewind: Callable[[], None] = lambda: None  # restore it, while nobody works

    def new(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"


class CoordinatorActor:
    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self.name = stage, name
        self.address = f"http://{name}"
        self.coordinator: Coordinator | None = None

    def __call__(self, process: Process) -> None:
        options = CoordinatorSettings(
            "sqlite:///simulated",
            self.address,
            ttl_s=TTL_S,
            heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
            retention=self._stage.scenario.retention,
            tables=TABLES,
        )
        coordinator = self.coordinator = Coordinator(options, process, self._stage)
        coordinator.start()
        self._stage.network.serve(
            self.address, process, lambda verb, body: self._handle(coordinator, verb, body)
        )

    def _handle(self, coordinator: Coordinator, verb: str, body: Any) -> Any:
        """As the routes of the API do it, without HTTP."""
        match verb:
            case "sync":
                term = coordinator.leader_term_now()
                if not term.liveness.note_sync(body.worker, body.sync):
                    raise SyncOvertaken(body.worker, body.sync)
                return term.writer.ask(body).result()
            case "wait":
                coordinator.leader_term_now()
                return awaited(coordinator.notifier.wait(**body))
            case "register":
                return coordinator.leader_term().register(body)
            case "goodbye":
                return coordinator.leader_term().goodbye(body)
            case "add catalog":
                return coordinator.tables.catalogs.add(body)
            case "ask":
                return self._ask(coordinator, **body)
            case _:
                return self._command(coordinator, verb, body)

    def _ask(self, coordinator: Coordinator, command: str, table: str) -> object:
        """A command about a table."""
        commands = coordinator.tables
        match command:
            case "optimize":
                return commands.optimize(table, OptimizingType.FULL)
            case "plan":
                return commands.plan(table, None)
            case "block":
                return commands.block(table, "somebody", reason="an import", seconds=BLOCKED_S)
            case "unblock":
                return commands.unblock(table, "somebody")
            case _:
                return getattr(commands, command)(table)

    def _command(self, coordinator: Coordinator, verb: str, body: Any) -> KnownJob:
        match verb:
            case "submit":
                job = coordinator.commands.submit(**body)
            case "cancel":
                job = coordinator.commands.cancel(body)
            case "settle":
                return coordinator.commands.settle(body)
            case "savepoint":
                job = coordinator.commands.savepoint(body)
            case "restore":
                job = coordinator.commands.restore(**body).job
            case "show":
                with reading(coordinator.engine) as conn:
                    return known_job(conn, body)
            case _:
                raise AssertionError(verb)
        coordinator.look_again()
        return job


class Client(LeaderClient):
    """The worker's own client, with the simulated wire in place of HTTP."""

    def __init__(self, network: Network, urls: Sequence[str]) -> None:
        self._network = network
        self._urls, self._at = list(urls), urls[0]

    def close(self) -> None:
        pass

    def hang_up(self) -> None:
        pass

    def _post(self, verb: str, message: Message, kind: Any, **_: object) -> Any:
        return self._call(verb, message, timeout_s=ANSWER_TIMEOUT_S)

    def wait(self, worker: str, group: str, free: Sequence[Lane], *, timeout_s: float) -> bool:
        body = {"worker": worker, "group": group, "free": frozenset(free), "timeout_s": timeout_s}
        return self._call("wait", body, timeout_s=timeout_s + ANSWER_TIMEOUT_S)

    def _call(self, verb: str, body: Any, *, timeout_s: float) -> Any:
        try:
            return self._network.call(self._at, verb, body, timeout_s=timeout_s)
        except NoAnswer as error:
            raise self._try_next_address(str(error)) from error
        except NotLeader as error:
            raise self._follow(error.leader, str(error)) from error
        except SyncOvertaken as error:
            raise Unavailable(str(error)) from error
        except Refused:
            raise
        except HeadraceError as error:
            raise self._try_next_address(str(error)) from error


class WorkerActor:
    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self.name = stage, name
        self.sync_loop: SyncLoop | None = None

    def __call__(self, process: Process) -> None:
        stage, name = self._stage, f"{self.name}.{process.life}"
        addresses = [f"http://{c}" for c in stage.scenario.coordinators]
        home = stage.folder / self.name
        self.sync_loop = SyncLoop(
            registration(
                name, GROUP, slots=stage.scenario.slots, control_slots=2, pid=process.life
            ),
            Client(stage.network, addresses),
            Client(stage.network, addresses),
            lambda posted: Outbox(home / str(process.life), posted=posted),
            self._runs(process),
            Spark(
                alive=lambda: True,
                cancel=lambda _: None,
                rows_written=lambda _: 0,
                tasks_finished=lambda _: (0, 0),
            ),
            process,
        )
        self.sync_loop.run()

    def _runs(self, process: Process) -> Mapping[TaskKind, Any]:
        def run(execution: Execution) -> None:
            self._pipeline(execution, process).run()

        def settle(execution: Execution) -> Any:
            return self._pipeline(execution, process).settle()

        tables = TableRunner(
            lambda _: nullcontext(cast("Any", None)),  # no session: its format needs none
            process,
            warehouse="/simulated",
            formats=[SimulatedFormat(self._stage.lake)],
        )
        return {
            TaskKind.PIPELINE: run,
            TaskKind.SETTLE: settle,
            TaskKind.FORGET: self._forget,
            **tables.runs(),
        }

    def _forget(self, execution: Execution) -> None:
        """As the runner does it, without Spark."""
        payload = ForgetPayload.model_validate(execution.assignment.payload)
        for pipeline in payload.pipelines:
            at = EpochAt(payload.incarnation, pipeline.number, payload.up_to, execution.id)
            for sink in self._sinks(pipeline):
                execution.check()
                check_forgettable(cast("Any", sink), cast("Any", None), at, payload.completed)
                sink.forget(None, at, owners=payload.owners)

    def _pipeline(self, execution: Execution, process: Process) -> Pipeline:
        payload = PipelinePayload.model_validate(execution.assignment.payload)
        stage, spec = self._stage, payload.pipeline
        plugins = Plugins(
            sources=[
                ModelSource(plugin.name, stage.scenario, execution.id) for plugin in spec.sources
            ],
            transforms=(),
            sinks=cast("Any", self._sinks(spec)),
            counting=cast("Any", None),  # every slice says how many rows it has
            carrier=PlainRows(),
        )
        return Pipeline(execution, payload, plugins, cast("Any", None), process)

    def _sinks(self, spec: PipelineSpec) -> Sequence[ModelSink]:
        opens = self._stage.scenario.opens
        return [
            ModelSink(p.name, self._stage.target, self._stage.world.problem, opens=opens)
            for p in spec.sinks
        ]
