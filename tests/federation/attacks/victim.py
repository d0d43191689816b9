"""What an attack leaves behind: facts that only a success can produce, and the victim's log."""

import json
import secrets

import psutil


class Victim:
    """A party that is attacked.

    Args:
        federation: the federation.
        name: the party.
    """

    def __init__(self, federation, name):
        self.name, self.kit = name, federation.kits[name]
        self.data = federation.folder / "data" / f"{name}.csv"
        self.word = f"word{secrets.token_hex(8)}"
        self.marker = self.kit / "marker.txt"
        self.marker.write_text(self.word)
        self.marker.chmod(0o600)

    @property
    def first_row(self):
        """Raw measurements."""
        return self.data.read_text("utf-8").splitlines()[1]

    def decoy(self):
        """A folder that only a deleted run takes away."""
        path = self.kit / f"decoy{secrets.token_hex(4)}"
        path.mkdir()
        return path

    def processes(self, job=None):
        """The numbers of the party's FLARE parent process, or of a job's."""
        found = set()
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if str(self.kit) in words and "--set" in words:
                is_job = "-n" in words
                if job in words if job else not is_job:
                    found.add(process.pid)
        return found

    def is_ended(self, job=None):
        """A proof that the processes of now are gone."""
        before = self.processes(job)
        assert before, f"{self.name}: no process to attack"

        def proof(_):
            gone = before - self.processes(job)
            return f"process {min(gone)} is gone" if gone else ""

        return proof

    def ports(self):
        """Ports on which the parent waits for its own jobs."""
        return {
            item.laddr.port
            for number in self.processes()
            for item in psutil.Process(number).net_connections("inet")
            if item.status == psutil.CONN_LISTEN
        }

    def refusals(self):
        """What the party's own log says it refused."""
        path = self.kit / "fedgranger-state" / "audit.jsonl"
        if not path.exists():
            return []
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [line for line in lines if line["event"] == "refused"]
