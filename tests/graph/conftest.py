"""Graph backends of the tests: in this process, and on two servers."""

from collections.abc import Iterator

import pytest
from tests.support import sparql_servers as servers
from tests.support.sparql_servers import Server

from omoide.graph.backend import GraphBackend
from omoide.graph.endpoint import EndpointBackend
from omoide.graph.oxigraph import OxigraphBackend


@pytest.fixture(scope="session")
def oxigraph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.oxigraph(tmp_path_factory.mktemp("oxigraph")) as server:
        yield server


@pytest.fixture(scope="session")
def rdflib_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.rdflib(tmp_path_factory.mktemp("rdflib")) as server:
        yield server


@pytest.fixture(scope="session")
def remotes(oxigraph_server: Server, rdflib_server: Server) -> tuple[EndpointBackend, ...]:
    """One graph on each server; who uses them names graphs of its own, or empties them first."""
    return EndpointBackend(*oxigraph_server), EndpointBackend(*rdflib_server)


@pytest.fixture(params=["embedded", "oxigraph", "rdflib"])
def backend(request: pytest.FixtureRequest) -> Iterator[GraphBackend]:
    """An empty graph of each kind."""
    if request.param == "embedded":
        kept: GraphBackend = OxigraphBackend()
    else:
        kept = EndpointBackend(*request.getfixturevalue(f"{request.param}_server"))
        kept.drop(kept.graphs())
    yield kept
    kept.close()
