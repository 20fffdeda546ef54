"""A TCP proxy that does to connections what networks do: it cuts, resets and holds them up."""

import selectors
import socket
import struct
import threading

DEADLINE_S = 60


class FaultProxy:
    """Passes on what clients send to a server, and what the server answers.

    The fault comes once `after` bytes have come from a client; of each of the first `times` connections, None: of all.
    The bytes before it are passed on, those after it are not.

    hold   passes on no more of what the client sends, until `go_on` or `close`; the server's answers still pass
    stall  the same in both directions
    close  closes both connections as if each side had closed its own
    reset  resets both connections
    """

    def __init__(self, address, after, fault="hold", times=None):
        host, port = address.rsplit(":", 1)
        self._server = (host, int(port))
        self._after, self._fault = after, fault
        self._faulty = float("inf") if times is None else times
        self.reached = threading.Event()  # set when the first fault comes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wake, self._told = socket.socketpair()
        self._selector.register(self._told, selectors.EVENT_READ, self._obey)
        self._peers = {}  # of each open socket
        self._room = {}  # of each client: how many bytes pass before the fault
        self._held = set()
        self._open = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def go_on(self):
        self._wake.send(b"g")

    def close(self):
        """Ends all connections; gives whether that worked."""
        try:
            self._wake.send(b"c")
        except OSError:
            pass  # it is closed
        self._thread.join(DEADLINE_S)
        self._wake.close()
        return not self._thread.is_alive()

    # All that follows runs on the thread.

    def _run(self):
        while self._open:
            for key, _ in self._selector.select():
                if self._open and key.fd >= 0 and key.fileobj.fileno() >= 0:
                    key.data()
        for one in (*self._peers, self._listener, self._told):
            one.close()
        self._selector.close()

    def _obey(self):
        orders = self._told.recv(64)
        if b"c" in orders:
            self._open = False
            return
        for one in self._held:
            self._selector.register(one, selectors.EVENT_READ, lambda one=one: self._pass(one))
            self._room.pop(one, None)
        self._held.clear()

    def _accept(self):
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._server, DEADLINE_S)
        except OSError:
            client.close()
            return
        self._peers.update({client: server, server: client})
        for one in (client, server):
            one.settimeout(DEADLINE_S)
            self._selector.register(one, selectors.EVENT_READ, lambda one=one: self._pass(one))
        if self._faulty > 0:
            self._faulty -= 1
            self._room[client] = self._after
            if self._after == 0:
                self._fail(client)

    def _pass(self, source):
        if source not in self._peers or source in self._held:
            return
        room = self._room.get(source, float("inf"))
        try:
            piece = source.recv(min(1 << 16, room))
            self._peers[source].sendall(piece)
        except OSError:
            piece = b""
        if not piece:
            self._drop(source, reset=False)
        elif source in self._room:
            self._room[source] -= len(piece)
            if self._room[source] == 0:
                self._fail(source)

    def _fail(self, client):
        if self._fault in ("hold", "stall"):
            for one in (client,) if self._fault == "hold" else (client, self._peers[client]):
                self._selector.unregister(one)
                self._held.add(one)
        else:
            self._drop(client, reset=self._fault == "reset")
        self.reached.set()

    def _drop(self, one, reset):
        for each in (one, self._peers[one]):
            if each not in self._held:
                self._selector.unregister(each)
            self._held.discard(each)
            self._room.pop(each, None)
            del self._peers[each]
            if reset:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
