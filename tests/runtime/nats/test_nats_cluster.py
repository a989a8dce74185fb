"""Signals survive the loss of one server of three."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from tests.support.signal_recorders import SignalRecorder, jetstream

from omoide import Signal
from omoide.runtime.nats import NatsTransport
from omoide.testing import NatsCluster, NatsServer, eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    """Three servers that keep streams together."""
    with NatsCluster(3) as cluster:
        yield cluster


def open_transport(cluster: NatsCluster, first: NatsServer) -> NatsTransport:
    """A transport that knows all servers."""
    urls = [first.url, *(one.url for one in cluster.servers if one is not first)]
    return NatsTransport(urls, replicas=3, connect_timeout=30.0, ack_wait=2.0, request_timeout=60.0)


async def leader(transport: NatsTransport, cluster: NatsCluster) -> NatsServer:
    """The server that leads the stream of signals to agents."""
    info = await jetstream(transport).stream_info(transport.settings.agent_stream)
    return next(one for one in cluster.servers if one.label == info.cluster.leader)


@pytest.mark.parametrize("which", ["leader", "follower"])
async def test_nothing_that_was_accepted_is_lost_with_a_server(cluster: NatsCluster, which: str) -> None:
    """The one that leads the stream, or another: publishers and receivers go on, and none is told twice."""
    recorder, everybody = SignalRecorder(), SignalRecorder()
    published: list[int] = []
    async with (
        open_transport(cluster, cluster.servers[0]) as sender,
        open_transport(cluster, cluster.servers[1]) as receiver,
    ):
        await receiver.subscribe("**", recorder, agent="ada")
        await receiver.subscribe("**", everybody)

        async def publish() -> None:
            for number in range(200):
                await sender.publish(Signal(type="n", data=number), to="ada")
                await sender.publish(Signal(type="n", data=number))
                published.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish)
            await eventually(lambda: len(published) >= 60, timeout=60)
            leads = await leader(sender, cluster)
            victim = leads if which == "leader" else next(one for one in cluster.servers if one is not leads)
            victim.kill()
        await eventually(lambda: len(recorder) >= 200 and len(everybody) >= 200, timeout=60)
        assert recorder.data == everybody.data == [*range(200)]
        victim.start()
        await sender.publish(Signal(type="n", data="after"), to="ada")
        await eventually(lambda: recorder.data[-1] == "after", timeout=30)
