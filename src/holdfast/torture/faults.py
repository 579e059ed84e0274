"""Does to the world what the schedule says: each kind of fault has a beginning and, where it lasts, an end."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping

from holdfast.torture import schedule
from holdfast.torture.power import cut_power
from holdfast.torture.schedule import Fault
from holdfast.torture.world import World

Doing = Callable[[World, Fault], Awaitable[None]]


async def do(world: World, fault: Fault) -> None:
    """Returns when it is over. It may last longer than planned: the next one of its lane waits for it."""
    async with world.lanes[fault.target]:
        await _do(world, fault)


async def _do(world: World, fault: Fault) -> None:
    world.history.fault(fault.number, fault.kind, fault.target, {**fault.details, "seconds": fault.seconds})
    await _FAULTS[fault.kind](world, fault)
    world.history.fault_over(fault.number, fault.kind, fault.target)


# Of a part.


async def _kill(world: World, fault: Fault) -> None:
    part = world.parts[fault.target]
    await part.kill()
    await asyncio.sleep(fault.seconds)
    part.let_run()


async def _power_cut(world: World, fault: Fault) -> None:
    part = world.parts[fault.target]
    await part.kill()
    await asyncio.to_thread(cut_power, part.data, part.synced, random.Random(fault.details["chance"]))
    await asyncio.sleep(fault.seconds)
    part.let_run()


async def _freeze(world: World, fault: Fault) -> None:
    part = world.parts[fault.target]
    part.send_signal(signal.SIGSTOP)
    await asyncio.sleep(fault.seconds)
    part.send_signal(signal.SIGCONT)


async def _disk_full(world: World, fault: Fault) -> None:
    part = world.parts[fault.target]
    part.tell(full=True)
    await asyncio.sleep(fault.seconds)
    part.tell(full=False)


async def _sync_error(world: World, fault: Fault) -> None:
    part = world.parts[fault.target]
    part.tell(sync_fails=True)
    await asyncio.sleep(fault.seconds)
    part.tell(sync_fails=False)


async def _clock(world: World, fault: Fault) -> None:
    """Somebody sets it wrong, and soon right again. A process that starts meanwhile could not know what is right."""
    part = world.parts[fault.target]
    await part.wait_until_up()
    part.tell(clock=fault.details["jump"])
    await asyncio.sleep(fault.seconds)
    part.tell(clock=0)


# Of a hop.


async def _closed(world: World, fault: Fault) -> None:
    world.proxies[fault.target].close_all(reset=fault.details["reset"])


async def _half_open(world: World, fault: Fault) -> None:
    world.proxies[fault.target].stall(*fault.details["directions"])
    await _heal_later(world, fault)


async def _slow(world: World, fault: Fault) -> None:
    world.proxies[fault.target].slow_down(fault.details["delay"])
    await _heal_later(world, fault)


async def _refused(world: World, fault: Fault) -> None:
    world.proxies[fault.target].refuse()
    await _heal_later(world, fault)


async def _torn(world: World, fault: Fault) -> None:
    world.proxies[fault.target].cut_after(fault.details["after"])
    await _heal_later(world, fault)


async def _heal_later(world: World, fault: Fault) -> None:
    await asyncio.sleep(fault.seconds)
    world.proxies[fault.target].heal()


# Of the others.


async def _lying(world: World, fault: Fault) -> None:
    world.endpoint.lie(fault.details["lie"])
    await asyncio.sleep(fault.seconds)
    world.endpoint.lie("")


async def _postgres(world: World, fault: Fault) -> None:
    assert world.postgres
    await world.postgres.end(signal.Signals[fault.details["signal"]])
    await asyncio.sleep(fault.seconds)
    await world.postgres.start()


_FAULTS: Mapping[str, Doing] = {
    schedule.KILL: _kill,
    schedule.POWER_CUT: _power_cut,
    schedule.FREEZE: _freeze,
    schedule.DISK_FULL: _disk_full,
    schedule.SYNC_ERROR: _sync_error,
    schedule.CLOCK: _clock,
    schedule.CLOSED: _closed,
    schedule.HALF_OPEN: _half_open,
    schedule.SLOW: _slow,
    schedule.REFUSED: _refused,
    schedule.TORN: _torn,
    schedule.LYING: _lying,
    schedule.POSTGRES: _postgres,
}
