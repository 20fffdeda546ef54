"""A server for all tests of a file, and clients: of it by each address, of a session, and of local:."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402  (Server)
import reduced  # noqa: E402


@pytest.fixture(scope="session")
def server():
    running = harness.Server()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def remote(server):
    with reduced.connect(server.unix, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def local():
    with reduced.connect("local:") as client:
        yield client


@pytest.fixture(scope="session", params=["unix", "tcp", "session", "ring", "local"])
def client(request, server):
    if request.param == "local":
        with reduced.connect("local:") as connected:
            yield connected
        return
    with reduced.connect(server.tcp if request.param == "tcp" else server.unix, timeout=60) as connected:
        if request.param in ("session", "ring"):
            with connected.session(via=request.param) as session:
                assert session.via == request.param
                yield session
        else:
            yield connected
