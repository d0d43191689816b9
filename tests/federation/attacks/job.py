"""The job object of an altered client: plays along, and calls the other clients on the side."""

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.federation.attacks.altered import SOCKET

BLOATED = "FEDGRANGER_ATTACK_BYTES"
"""Environment variable: so many bytes are sent instead of the first states."""
HELD_KIND = "finish"
HOLD_SECONDS = 150.0
CALL_SECONDS = 5.0


def alter():
    """Replace `handle` of this process's job object; ask `JobHand` what it does then."""
    from nvflare.collab import collab

    from fedgranger.flare.client_job import FlareClient

    answer, hand = FlareClient.handle, JobHand()

    @collab.publish
    def handle(self, payload: bytes) -> bytes:
        hand.meet(payload)
        return hand.bloated(payload) or answer(self, payload)

    FlareClient.handle = handle


class JobHand:
    """Holds the last request of a run until told otherwise, so that there is time to attack."""

    def __init__(self):
        self._requests, self._is_serving = {}, False
        self._free = threading.Event()

    def meet(self, payload):
        """Take note of a request to this client."""
        from nvflare.collab import collab
        from nvflare.collab.api.context import get_call_context

        from fedgranger.federation.codec import decode
        from tests.federation.attacks.altered import serve
        from tests.federation.attacks.wire import Wire

        self._requests[decode(payload).kind] = payload
        if not self._is_serving:
            self._is_serving = True
            context = collab.fl_ctx
            self.job = context.get_job_id()
            cell = context.get_engine().get_cell()
            self._context = get_call_context()
            self._proxies = {proxy.name: proxy for proxy in collab.clients}
            self._wire = Wire(cell, {"own": _own_token(cell)})
            self.send_all, self.name = self._wire.send_all, self._wire.name
            serve("job", self)
        if decode(payload).kind == HELD_KIND:
            self._free.wait(HOLD_SECONDS)

    def bloated(self, payload):
        """Once, instead of the states: as many bytes as the test's environment says."""
        from fedgranger.federation.codec import decode

        size = int(os.environ.get(BLOATED, 0))
        marker = Path(os.environ.get(SOCKET, "")).with_name("bloated")
        if not size or marker.exists() or decode(payload).kind != "upload":
            return b""
        marker.touch()
        return bytes(size)

    def facts(self):
        """The job's name, whom it can call, and which requests it has seen."""
        return {"job": self.job, "others": sorted(self._proxies), "kinds": list(self._requests)}

    def lend(self, tokens):
        """Take tokens of the parent."""
        self._wire.tokens.update(tokens)

    def free(self):
        """Let the run go on."""
        self._free.set()

    def call_all(self, calls):
        """Many calls at once: the method's name here, its words and options; the answers."""
        with ThreadPoolExecutor(len(calls)) as pool:
            made = [pool.submit(getattr(self, what), *words, **options)
                    for what, words, options in calls]  # fmt: skip
            return [one.result() for one in made]

    def call(self, client, kind, *, origin=None, token="own", **values):
        """Send another client the request of a kind that came to this one; what it answers."""
        from fedgranger.federation.codec import decode, encode

        seen = decode(self._requests[kind])
        packet = seen._replace(client=client, values={**seen.values, **values})
        return self._call(client, origin, token, lambda proxy: _facts(proxy.handle(encode(packet))))

    def ping(self, client):
        """FLARE's other published method."""
        return self._call(client, None, "own", lambda proxy: {"answer": proxy.ping()})

    def _call(self, client, origin, token, act):
        from nvflare.collab.api.context import set_call_context

        set_call_context(self._context)
        target = f"{client}.{self.job}"
        with contextlib.ExitStack() as stack:
            proxy = self._proxies[client]
            if origin:
                stack.enter_context(self._wire.forging(target, origin, token))
                stack.enter_context(_named(proxy, "server"))
            try:
                return act(proxy(timeout=CALL_SECONDS))
            except Exception as error:
                return {"error": repr(error)}


@contextlib.contextmanager
def _named(proxy, name):
    """FLARE compares the caller inside a call with the sender of the message."""
    backends = [one.backend for one in (proxy, *proxy.children.values())]
    before = [backend.caller for backend in backends]
    for backend in backends:
        backend.caller = name
    try:
        yield
    finally:
        for backend, caller in zip(backends, before, strict=True):
            backend.caller = caller


def _facts(answer):
    from fedgranger.federation.codec import decode

    packet = decode(answer)
    arrays = {name: (array.shape, float(abs(array).sum())) for name, array in packet.arrays.items()}
    return {"kind": packet.kind, "values": dict(packet.values), "arrays": arrays}


def _own_token(cell):
    """What FLARE's own filter would put into this job's messages."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.fuel.f3.message import Message
    from nvflare.private.defs import CellMessageHeaderKeys as Auth

    core = cell.core_cell
    here = {MessageHeaderKey.ORIGIN: core.my_info.fqcn, MessageHeaderKey.DESTINATION: "server"}
    message = Message(headers=here)
    for found in core.out_req_filter_reg.find("*", "*"):
        found.cb(message, *found.args, **found.kwargs)
    keys = (Auth.CLIENT_NAME, Auth.TOKEN, Auth.TOKEN_SIGNATURE, Auth.SSID)
    return tuple(message.get_header(key) for key in keys)
