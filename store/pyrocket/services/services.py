"""Creates the services of an open store on first use and hooks them into its writer."""

from dataclasses import replace
from functools import partial

from pyrocket.base.clock import Clock
from pyrocket.base.config import Retention, StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.engine.cleaner import preview
from pyrocket.engine.engine import Engine, lazy_property
from pyrocket.engine.hooks import Hooks, RecoveryHooks
from pyrocket.engine.sender import Sender
from pyrocket.engine.service_runner import ReaderDelivery, ServiceRunner
from pyrocket.services.consumption import Consumption
from pyrocket.services.delay.schedule_service import ScheduleService
from pyrocket.services.delay.skip_delivered import skip_delivered
from pyrocket.services.delay.timer_index import TimerIndex
from pyrocket.services.delay.timer_recovery import recover_timers
from pyrocket.services.delay.timers import Timers
from pyrocket.services.sink.empty_batches import EmptyBatches
from pyrocket.services.sink.sink import Sink
from pyrocket.services.transactions.transactions import Transactions
from pyrocket.values.admin import CleanReport


def recovery_hooks(layout: Layout, clock: Clock) -> RecoveryHooks:
    """Return the recovery steps of the services, which every writer of a store needs."""
    return RecoveryHooks(
        after_unclean_end=[lambda ms: EmptyBatches(layout, clock).record_unclean_end(ms)],
        after_recovery=[partial(recover_timers, layout), skip_delivered],
        before_cursor_save=[lambda: TimerIndex(layout.timers).sync()],
    )


class Services:
    """The services that share the reader and writer of an open store."""

    def __init__(
        self, layout: Layout, config: StoreConfig, clock: Clock, *, read_only: bool
    ) -> None:
        """Open the directory; a writer recovers it if that is necessary."""
        self.engine = Engine(
            layout,
            config,
            clock,
            read_only=read_only,
            recovery=recovery_hooks(layout, clock),
            hooks=lambda: self.hooks,
        )

    @lazy_property
    def sender(self) -> Sender:
        return Sender(self.engine)

    @lazy_property
    def sink(self) -> Sink:
        return Sink(self.engine)

    @lazy_property
    def consumption(self) -> Consumption:
        return Consumption(self.engine)

    @lazy_property
    def levels(self) -> ScheduleService:
        return ScheduleService(self.engine.layout, self.engine.reader)

    @lazy_property
    def timers(self) -> Timers:
        return Timers(self.engine)

    @lazy_property
    def transactions(self) -> Transactions:
        return Transactions(self.engine, lambda: self.sender)

    @lazy_property
    def runner(self) -> ServiceRunner:
        return ServiceRunner(self.engine, [self.levels, self.timers.service])

    @lazy_property
    def hooks(self) -> Hooks:
        """The functions of all services that the writer calls."""
        hooks = Hooks()
        for service in (self.sink, self.levels, self.timers, self.transactions, self.runner):
            service.hook_into(hooks)
        hooks.holds["changes of consumer groups"] = lambda: self.consumption.held_from()
        return hooks

    @lazy_property
    def reader_delivery(self) -> ReaderDelivery:
        """Lets due messages be delivered while the store is open for reading."""
        return ReaderDelivery(self.engine)

    def clean(self, *, hours: float | None, total_bytes: int | None, dry_run: bool) -> CleanReport:
        """Delete files beyond the limits, or only report them; see `Store.clean`."""
        Retention(hours=hours, total_bytes=total_bytes)  # Raises OptionError.
        if dry_run:
            staged = self.sink.clean_staging(dry_run=True)
            layout, reader = self.engine.layout, self.engine.reader
            report = preview(layout, reader, self.hooks, hours=hours, total_bytes=total_bytes)
        else:
            writer = self.engine.writer
            # Before the writer's cleaning, which deletes staged files without reporting them.
            staged = self.sink.clean_staging()
            report = writer.cleaner.clean(
                partial(writer.exclusive, even_if_full=True), hours=hours, total_bytes=total_bytes
            )
        return replace(report, staged_files=staged.files, staged_bytes=staged.bytes)

    def close(self, *, clean: bool) -> None:
        """Stop threads, then close the reader and the writer."""
        if "runner" in vars(self):
            self.runner.stop()
        self.engine.close(clean=clean)
