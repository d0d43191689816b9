"""Another user of a party's machine: no certificate, no kit, another uid, and a loopback port.

    python -m tests.federation.attacks.local_user PORT VICTIM NAME

Speaks cellnet in plain TCP to the port on which the victim's parent process waits for its jobs, as
an endpoint of any NAME. Needs to be started by root; drops to `nobody` before it connects.
"""

import os
import sys
import time
from multiprocessing.connection import Client

NOBODY = 65534
CONNECT_SECONDS = 3.0


class StrangerHand:
    """Sends, and notes what the victim sends here."""

    def __init__(self, wire):
        self.send_all, self.name, self._heard = wire.send_all, wire.name, []
        self._wire = wire
        wire.core.add_incoming_filter("*", "*", self._note)

    def facts(self):
        """Who this is, to whom it is connected and what it heard."""
        return {
            "uid": os.getuid(),
            "peers": sorted(self._wire.core.agents),
            "heard": self._heard,
        }

    def free(self):
        """Nothing is held here."""

    def _note(self, message):
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
        from nvflare.private.defs import CellMessageHeaderKeys as Auth

        if message.get_header(Key.MSG_TYPE) == "req":
            words = [message.get_header(key) for key in (Key.ORIGIN, Key.CHANNEL, Key.TOPIC)]
            self._heard.append((*words, bool(message.get_header(Auth.TOKEN_SIGNATURE))))


def main(port, victim, name):
    from nvflare.fuel.f3.cellnet.cell import Cell
    from nvflare.fuel.f3.communicator import load_comm_drivers
    from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

    from tests.federation.attacks.altered import SOCKET, serve
    from tests.federation.attacks.wire import Wire

    line = Client(os.environ[SOCKET], "AF_UNIX")
    nvflare_fobs_initialize()
    load_comm_drivers()  # from files that this user may not read
    address = f"tcp://127.0.0.1:{port}"
    cell = Cell(f"{victim}.stranger", "", False, {}, parent_url=address)
    cell.core_cell.endpoint.name = name
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    cell.start()
    time.sleep(CONNECT_SECONDS)
    serve("stranger", StrangerHand(Wire(cell, {"own": None})), line)
    while True:
        time.sleep(1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
