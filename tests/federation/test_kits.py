"""Kits, certificates and deployment files: who gets which key, what is refused, in which words."""

import configparser
import ipaddress
import json
import os
import shutil
import stat
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.errors import ConfigError, RunError

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from nvflare.private.fed.utils.identity_utils import IdentityAsserter, IdentityVerifier

from fedgranger.flare.authority import ROOT_DAYS, read_authority
from fedgranger.flare.certificate_checks import (
    check_certificates,
    check_not_revoked,
    read_certificate,
    revoked_serials,
)
from fedgranger.flare.deployment import deployment_files
from fedgranger.flare.enrolment import accept, make_request
from fedgranger.flare.identity import certificate_path, key_path, role_of, root_path
from fedgranger.flare.kits import make_kits
from fedgranger.flare.revocation import Revoked
from fedgranger.flare.settings import read_members
from fedgranger.flare.signing import LEAF_DAYS, revoke, sign_request

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("k") / "kits"
    before = os.umask(0)
    try:
        make_kits(folder, "server.example", ["pump", "tank"], 8002)
    finally:
        os.umask(before)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """Kits of one's own, to be spoiled."""
    return shutil.copytree(made, tmp_path / "kits")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("f") / "kits"
    make_kits(folder, "server.example", ["pump", "tank"], 8002)
    return folder


def federation(*words):
    done = CliRunner().invoke(app, ["federation", *map(str, words)])
    assert "Traceback" not in done.output
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def refused(*words):
    done = CliRunner().invoke(app, ["federation", *map(str, words)])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


def request_of(path, name, right=None, key=None):
    """A request with any subject, as somebody with a program of their own would make it."""
    key = key or rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if right:
        subject.append(x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, right))
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    request = request.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = request.sign(key, hashes.SHA256())
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return path


def test_kits_are_private_whatever_the_umask_and_let_in_no_code(made):
    for path in [made, *made.rglob("*")]:
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path
    roles = {kit.name: role_of(kit) for kit in made.iterdir() if kit.name != "authority"}
    assert roles == {
        "server": ("server", "server"),
        "admin": ("admin", "admin"),
        "client-pump": ("client", "pump"),
        "client-tank": ("client", "tank"),
    }
    for party in ("server", "client-pump"):
        local = made / party / "local"
        rights = json.loads((local / "authorization.json").read_text())
        assert rights["permissions"]["project_admin"]["byoc"] == "none"
        assert rights["permissions"]["project_admin"]["shell_commands"] == "none"
        resources = json.loads((local / "resources.json").read_text())
        assert all(not name.endswith(".") for name in resources["class_allow_list"])
        names = [component["id"] for component in resources["components"]]
        assert not {"site_log_streamer", "log_receiver"} & set(names)
    assert not list(made.rglob("*.sh"))  # FLARE's own scripts start a party without our checks
    readme = (made / "client-pump" / "README.md").read_text()
    assert "client 'pump'" in readme
    assert "What leaves your site" in readme


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--server", "h", "--clients", "a"], "at least two clients"),
        (["--server", "h", "--clients", "a,a"], "the same name"),
        (["--server", "h", "--clients", "a,b c"], "client name 'b c'"),
        (["--server", "h", "--clients", "a,server"], "client name 'server'"),
        (["--server", "h", "--clients", "a,H"], "is the server's host"),
        (["--server", "h/", "--clients", "a,b"], "server is 'h/'"),
        (["--server", "h" * 65, "--clients", "a,b"], "65 characters"),
        (["--server", "h", "--clients", "a,b", "--port", "0"], "port is 0"),
    ],
)
def test_init_refuses_in_a_sentence_and_writes_nothing(tmp_path, words, sentence):
    assert sentence in refused("init", tmp_path / "kits", *words)
    assert not list(tmp_path.iterdir())


def test_init_refuses_a_used_folder(made):
    assert "is not empty" in refused("init", made, "--server", "h", "--clients", "a,b")


def test_keys_are_made_at_the_sites_by_four_commands(tmp_path):
    kits, away = tmp_path / "kits", tmp_path / "away"
    said = federation("init", kits, "--server", "server.example", "--clients", "pump,tank")
    assert [path.name for path in kits.rglob("*.key")] == ["rootCA.key"]
    shutil.move(kits / "client-pump", away / "client-pump")
    kit = away / "client-pump"
    assert "make a request with" in refused("start", kit, "--data", "x.csv")
    asked = federation("request", kit)
    of_root = said.split("fingerprint of this federation: ")[1][:79]
    assert of_root in asked
    told = asked.split("its fingerprint: ")[1][:79]
    assert federation("request", kit).split("its fingerprint: ")[1][:79] == told  # the same request
    request = tmp_path / "from-pump.csr"
    shutil.copy(kit / "request.csr", request)
    wrong = told.replace(told[0], "0" if told[0] != "0" else "1")
    sign = ["sign", kits / "authority", request]
    assert "not the one given" in refused(*sign, "--fingerprint", wrong)
    assert not (tmp_path / "from-pump.crt").exists()
    assert "party: client 'pump'" in federation(*sign, "--fingerprint", told)
    federation("accept", kit, tmp_path / "from-pump.crt")
    assert check_certificates(kit, NOW) == []
    key = key_path(kit).read_bytes()
    assert stat.S_IMODE(key_path(kit).stat().st_mode) == 0o600
    assert not (kit / "request.key").exists()
    secret = key.splitlines()[3]
    assert not any(secret in path.read_bytes() for path in kits.rglob("*") if path.is_file())
    assert "has a certificate until" in refused("request", kit)


def test_flare_accepts_the_certificates_of_its_own_kind(made):
    """FLARE's identity check of registration, of the admin's login and of the server."""
    for party, name in (("server", "server.example"), ("client-pump", "pump"),
                        ("admin", "admin@fedgranger.local")):  # fmt: skip
        kit = made / party
        asserter = IdentityAsserter(str(key_path(kit)), str(certificate_path(kit)))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if party == "server" else None
        assert IdentityVerifier(str(root_path(kit))).verify_common_name(
            asserted_cn=name, nonce="n", asserter_cert=asserter.cert,
            signature=asserter.sign_common_name("n"), intermediate_certs=[], expected_eku=usage,
        )  # fmt: skip


def test_rights_come_from_the_organisers_list_never_from_a_request(folder, tmp_path):
    authority = read_authority(folder / "authority")
    for right in ("project_admin", "lead", "org_admin"):
        request = request_of(tmp_path / "r.csr", "pump", right)
        signed = x509.load_pem_x509_certificate(sign_request(authority, request, NOW).certificate)
        assert not signed.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
        assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        usage = signed.extensions.get_extension_for_class(x509.KeyUsage).value
        assert not usage.key_cert_sign
        assert not usage.crl_sign
    admin = read_certificate(certificate_path(folder / "admin"))
    (right,) = admin.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
    assert right.value == "project_admin"
    rights = [
        found.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
        for found in map(read_certificate, (folder / "authority" / "issued").glob("*.crt"))
    ]
    assert sum(map(bool, rights)) == 1


def test_signing_refuses_strangers_weak_keys_and_damaged_requests(folder, tmp_path):
    authority, file = read_authority(folder / "authority"), tmp_path / "r.csr"
    weak = rsa.generate_private_key(public_exponent=65_537, key_size=1024)
    curve = ec.generate_private_key(ec.SECP256R1())
    before = sorted(folder.rglob("*"))
    for name in ("well", "lead@fedgranger.local", "Pump"):
        with pytest.raises(RunError, match=f"'{name}' does not belong"):
            sign_request(authority, request_of(file, name), NOW)
    for key in (weak, curve):
        with pytest.raises(RunError, match="not RSA of at least 2048 bits"):
            sign_request(authority, request_of(file, "pump", key=key), NOW)
    good = request_of(file, "pump").read_bytes()
    der = bytearray(x509.load_pem_x509_csr(good).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    damaged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    for content in (b"nothing", damaged):
        file.write_bytes(content)
        with pytest.raises(RunError, match="is not a signing request"):
            sign_request(authority, file, NOW)
    (folder / "authority" / "rootCA.key").unlink()
    with pytest.raises(RunError, match=r"rootCA\.key: missing; say with --key"):
        sign_request(authority, request_of(file, "pump"), NOW)
    assert sorted(folder.rglob("*")) == [path for path in before if path.name != "rootCA.key"]


def test_lifetimes(folder, tmp_path, foreign):
    authority, file = read_authority(folder / "authority"), request_of(tmp_path / "r.csr", "pump")
    root, own = (read_certificate(path) for path in (
        root_path(folder / "server"), certificate_path(folder / "server")))  # fmt: skip
    assert abs(root.not_valid_after_utc - NOW - ROOT_DAYS * DAY) < DAY
    assert abs(own.not_valid_after_utc - NOW - LEAF_DAYS * DAY) < DAY
    assert abs(sign_request(authority, file, NOW, days=7).until - NOW - 7 * DAY) < DAY
    late = NOW + (ROOT_DAYS - 100) * DAY
    for when, days in ((NOW, 0), (NOW, ROOT_DAYS + 1), (late, LEAF_DAYS)):
        with pytest.raises(ConfigError, match=f"days is {days}; the root ends on"):
            sign_request(authority, file, when, days=days)
    elsewhere = shutil.move(folder / "authority" / "rootCA.key", tmp_path / "rootCA.key")
    assert sign_request(authority, file, NOW, key=elsewhere)
    with pytest.raises(RunError, match="is not the key of the authority"):
        sign_request(authority, file, NOW, key=foreign / "authority" / "rootCA.key")


def test_a_renewal_keeps_the_old_certificate_until_the_new_one_is_accepted(folder, tmp_path):
    kit = folder / "client-pump"
    old = [path.read_bytes() for path in (key_path(kit), certificate_path(kit))]
    federation("renew", kit)
    assert [path.read_bytes() for path in (key_path(kit), certificate_path(kit))] == old
    assert check_certificates(kit, NOW) == []
    said = federation("sign", folder / "authority", kit / "request.csr", "--days", 20)
    assert "also has a certificate until" in said
    assert "does not fit the key of" in _refusal(kit, _other_certificate(folder, tmp_path))
    federation("accept", kit, kit / "request.crt")
    new = [path.read_bytes() for path in (key_path(kit), certificate_path(kit))]
    assert not set(new) & set(old)
    (warning,) = check_certificates(kit, datetime.now(UTC))
    assert "renew it with" in warning
    assert "has no open request" in refused("accept", kit, kit / "request.crt")
    states = federation("certificates", folder / "authority")
    assert states.count("pump") == 3
    assert states.count("valid") == 6


def _other_certificate(folder, tmp_path):
    """Of the same client, for a key that its kit does not have."""
    request = request_of(tmp_path / "other.csr", "pump")
    signed = sign_request(read_authority(folder / "authority"), request, NOW)
    (tmp_path / "other.crt").write_bytes(signed.certificate)
    return tmp_path / "other.crt"


def _refusal(kit, file):
    before = {path: path.read_bytes() for path in kit.rglob("*") if path.is_file()}
    with pytest.raises(RunError) as error:
        accept(kit, file, NOW)
    assert before == {path: path.read_bytes() for path in kit.rglob("*") if path.is_file()}
    return str(error.value)


def test_accept_refuses_what_is_not_this_kits(folder, foreign, tmp_path):
    kit = folder / "client-pump"
    make_request(kit, is_renewal=True)
    assert "was not signed by" in _refusal(kit, certificate_path(foreign / "client-pump"))
    assert "of 'tank', not of 'pump'" in _refusal(kit, certificate_path(folder / "client-tank"))
    assert "of 'admin@" in _refusal(kit, certificate_path(folder / "admin"))
    (tmp_path / "x").write_text("hello")
    assert "is neither a certificate nor" in _refusal(kit, tmp_path / "x")
    assert "No such file" in _refusal(kit, tmp_path / "y")
    members = folder / "authority" / "members.json"
    assert "is for the admin's kit" in _refusal(kit, members)
    text = members.read_text()
    (tmp_path / "m.json").write_text(text.replace("pump", "well"))
    assert "is not a list of clients signed" in _refusal(folder / "admin", tmp_path / "m.json")
    assert "is not a list of clients signed" in _refusal(
        folder / "admin", foreign / "authority" / "members.json"
    )


def test_an_interrupted_accept_is_mended_by_the_same_command(folder, monkeypatch):
    kit = folder / "client-pump"
    request, _ = make_request(kit, is_renewal=True)
    signed = sign_request(read_authority(folder / "authority"), request, NOW)
    (folder / "new.crt").write_bytes(signed.certificate)
    real = os.replace

    def torn(source, target):
        if str(target).endswith("client.crt"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", torn)
    with pytest.raises(OSError, match="No space"):
        accept(kit, folder / "new.crt", NOW)
    monkeypatch.undo()
    with pytest.raises(RunError, match="does not fit"):
        check_certificates(kit, NOW)
    accept(kit, folder / "new.crt", NOW)
    assert check_certificates(kit, NOW) == []
    assert not list(kit.rglob(".client*"))


def _spoil_key(kit):
    shutil.copy(key_path(kit.parent / "server"), key_path(kit))


def _spoil_root(kit):
    root_path(kit).write_text("-----BEGIN CERTIFICATE-----\nxxxx\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("spoil", "later", "sentence"),
    [
        (lambda kit: key_path(kit).unlink(), 0, r"client\.key: missing; make a new one with"),
        (lambda kit: root_path(kit).unlink(), 0, r"rootCA\.pem: missing; ask the organiser"),
        (lambda kit: certificate_path(kit).unlink(), 0, r"client\.crt: missing; make a request"),
        (_spoil_key, 0, r"client\.key: does not fit client\.crt"),
        (_spoil_root, 0, r"rootCA\.pem: is not a certificate"),
        (lambda kit: kit.chmod(0o750), 0, r"others on this machine can read it \(0750\)"),
        (lambda kit: key_path(kit).chmod(0o644), 0, r"client\.key: others on this machine"),
        (lambda kit: None, 366, r"client\.crt: ended on 20\d\d-\d\d-\d\d; renew it with"),
        (lambda kit: None, -2, r"is not valid before .* set it right"),
        (lambda kit: None, ROOT_DAYS + 1, r"rootCA\.pem: ended on .* new federation"),
    ],
)
def test_what_cannot_connect_is_said_before_the_start(folder, spoil, later, sentence):
    kit = folder / "client-pump"
    assert check_certificates(kit, NOW) == []
    spoil(kit)
    with pytest.raises(RunError, match=sentence) as error:
        check_certificates(kit, NOW + later * DAY)
    if not later:
        said = refused("start", kit, "--data", "x.csv")
        assert " ".join(str(error.value).split()) in said


def test_certificates_of_another_authority_or_party_do_not_start(folder, foreign):
    kit = folder / "client-pump"
    for source, sentence in ((foreign / "client-pump", "was not signed by"),
                             (folder / "client-tank", "of 'tank', not of 'pump'")):  # fmt: skip
        shutil.copy(certificate_path(source), certificate_path(kit))
        shutil.copy(key_path(source), key_path(kit))
        with pytest.raises(RunError, match=sentence):
            check_certificates(kit, NOW)
    shutil.copy(certificate_path(folder / "client-tank"), certificate_path(folder / "admin"))
    assert "of 'tank', not of 'admin@" in refused("status", folder / "admin")


def test_a_certificate_that_soon_ends_is_warned_of(folder):
    kit = folder / "client-pump"
    assert check_certificates(kit, NOW + (LEAF_DAYS - 31) * DAY) == []
    (warning,) = check_certificates(kit, NOW + (LEAF_DAYS - 29) * DAY)
    assert "client.crt: ends on" in warning


def test_revoked_certificates_are_refused_by_those_who_have_the_list(folder, foreign, tmp_path):
    authority, server, kit = (folder / name for name in ("authority", "server", "client-pump"))
    assert revoked_serials(server) == set()
    said = federation("revoke", authority, "pump")
    assert "Send members.json" in said
    first = shutil.copy(authority / "revoked.crl", tmp_path / "first.crl")
    assert "refuses 1 revoked" in federation("accept", server, first)
    own, other = (read_certificate(certificate_path(folder / name)) for name in (
        "client-pump", "client-tank"))  # fmt: skip
    assert revoked_serials(server) == {own.serial_number}
    with pytest.raises(RunError, match="certificate of 'pump' was revoked"):
        check_not_revoked(own, revoked_serials(server))
    check_not_revoked(other, revoked_serials(server))
    assert check_certificates(kit, NOW) == []  # it does not know yet
    federation("accept", kit, first)
    assert "was revoked; ask the organiser" in refused("start", kit, "--data", "x.csv")
    assert "'pump' has no valid certificate" in refused("revoke", authority, "pump")

    assert "the federation's clients are tank" in federation(
        "accept", folder / "admin", authority / "members.json"
    )
    assert read_members(folder / "admin") == ("tank",)
    federation("renew", kit)
    federation("sign", authority, kit / "request.csr")
    federation("accept", kit, kit / "request.crt")
    assert check_certificates(kit, NOW) == []
    federation("accept", folder / "admin", authority / "members.json")
    assert read_members(folder / "admin") == ("pump", "tank")

    federation("revoke", authority, "tank")
    federation("accept", server, authority / "revoked.crl")
    assert revoked_serials(server) == {own.serial_number, other.serial_number}
    assert "is older than the list" in refused("accept", server, first)
    federation("revoke", foreign / "authority", "pump")
    foreign_list = foreign / "authority" / "revoked.crl"
    assert "was not signed by" in refused("accept", server, foreign_list)
    assert len(revoked_serials(server)) == 2
    shutil.copy(foreign_list, server / "startup" / "revoked.crl")
    with pytest.raises(RunError, match="was not signed by"):
        check_certificates(server, NOW)


def _cannot_write(event, **facts):
    raise OSError(28, "No space left on device")


def test_a_running_process_takes_a_new_list_and_keeps_it_when_the_file_is_spoiled(folder):
    server = folder / "server"
    place, told = server / "startup" / "revoked.crl", []
    revoked = Revoked(server, lambda event, **facts: told.append((event, facts)))
    full = Revoked(server, _cannot_write)
    own = read_certificate(certificate_path(folder / "client-pump"))
    assert revoked.refuses(own, "") == ""
    accept(server, revoke(read_authority(folder / "authority"), "pump", NOW), NOW)
    assert "of 'pump' was revoked" in revoked.refuses(own, "ipv4:1")
    assert told == [
        ("revoked", {"reason": told[0][1]["reason"], "sender": "pump", "address": "ipv4:1"})
    ]
    assert revoked.refuses(own, "ipv4:1")
    assert len(told) == 1  # once a minute
    assert full.refuses(own, "")
    place.write_text("spoiled")
    assert revoked.refuses(own, "")
    assert "is not a list of revoked certificates" in told[1][1]["reason"]
    place.unlink()
    assert revoked.refuses(own, "")


def test_one_more_client_changes_nobody_elses_kit(folder):
    def content():
        kits = [kit for kit in folder.iterdir() if kit.name not in ("authority", "client-well")]
        return {
            path: path.read_bytes() for kit in kits for path in kit.rglob("*") if path.is_file()
        }

    before = content()
    federation("add-client", folder / "authority", "well")
    assert content() == before
    kit = folder / "client-well"
    assert role_of(kit) == ("client", "well")
    assert not list(kit.rglob("*.key"))
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o077 == 0 for p in [kit, *kit.rglob("*")])
    same = {path.relative_to(kit) for path in kit.rglob("*")}
    extra = {
        path.relative_to(folder / "client-pump") for path in (folder / "client-pump").rglob("*")
    }
    assert {str(path) for path in extra - same} == {"startup/client.crt", "startup/client.key"}
    federation("request", kit)
    federation("sign", folder / "authority", kit / "request.csr")
    federation("accept", kit, kit / "request.crt")
    assert check_certificates(kit, NOW) == []
    federation("accept", folder / "admin", folder / "authority" / "members.json")
    assert read_members(folder / "admin") == ("pump", "tank", "well")
    for name, sentence in (("well", "belongs to this federation already"), ("a b", "client name"),
                           ("server.example", "client name")):  # fmt: skip
        assert sentence in refused("add-client", folder / "authority", name)
    assert "is there already" in refused(
        "add-client", folder / "authority", "mill", "--out", folder / "server"
    )
    assert "is not an authority" in refused("add-client", folder / "server", "mill")
    assert read_authority(folder / "authority").clients == ("pump", "tank", "well")


def unit_of(text):
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str
    parser.read_string(text)
    return parser


def test_the_systemd_unit_locks_the_party_in(tmp_path):
    cases = {"192.0.2.7": "localhost 192.0.2.7", "localhost": "localhost", "::1": "localhost ::1"}
    for host, allowed in cases.items():
        text = deployment_files("client", "pump", host, 8002)["fedgranger.service"]
        service = unit_of(text)["Service"]
        assert service["IPAddressDeny"] == "any"
        assert service["IPAddressAllow"] == allowed
    named = deployment_files("client", "pump", "server.example", 8002)["fedgranger.service"]
    assert "IPAddressDeny" not in unit_of(named)["Service"]
    assert "write the address of server.example" in named
    server = deployment_files("server", "server", "192.0.2.7", 8002)["fedgranger.service"]
    for text in (named, server):
        service = unit_of(text)["Service"]
        wanted = {"User": "fedgranger", "ProtectSystem": "strict", "NoNewPrivileges": "yes",
                  "PrivateTmp": "yes", "CapabilityBoundingSet": "", "UMask": "0077",
                  "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX"}  # fmt: skip
        assert wanted.items() <= dict(service).items()
        assert service["MemoryMax"]
        kit = service["ReadWritePaths"]
        assert f"{kit}/startup" in service["ReadOnlyPaths"].split()
        assert f"federation start {kit}" in service["ExecStart"]
    assert "/srv/fedgranger" in unit_of(named)["Service"]["ReadOnlyPaths"].split()
    assert "--data" not in unit_of(server)["Service"]["ExecStart"]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here; the units were parsed only")
    for text in (named, server):
        unit = tmp_path / "fedgranger.service"
        unit.write_text(text.replace("/opt/fedgranger/bin/fedgranger", shutil.which("true")))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "fedgranger.service:" not in done.stderr


@pytest.mark.parametrize("role", ["client", "server"])
def test_the_container_locks_the_party_in(role):
    name = "pump" if role == "client" else "server"
    files = deployment_files(role, name, "server.example", 8002)
    service = yaml.safe_load(files["compose.yaml"])["services"]["fedgranger"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == "10001:10001"
    assert service["mem_limit"]
    assert "./startup:/kit/startup:ro" in service["volumes"]
    assert service.get("ports") == (None if role == "client" else ["8002:8002"])
    data = [volume for volume in service["volumes"] if ":/data" in volume]
    assert data == (["/srv/fedgranger:/data:ro"] if role == "client" else [])
    image = files["Containerfile"].splitlines()
    assert "USER 10001:10001" in image
    assert not [line for line in image if line.startswith(("COPY", "ADD"))]
    base = next(line for line in image if line.startswith("FROM "))
    assert "/" not in base
    assert files[".dockerignore"].splitlines()[-1] == "*"
    assert not set(files) - {"fedgranger.service", "Containerfile", ".dockerignore", "compose.yaml"}


def test_a_clients_container_reaches_the_server_only():
    text = deployment_files("client", "pump", "server.example", 8002)["compose.yaml"]
    found = yaml.safe_load(text)
    service, gate = found["services"]["fedgranger"], found["services"]["gate"]
    assert service["networks"] == ["inside"]
    assert found["networks"]["inside"]["internal"] is True
    address = gate["networks"]["inside"]["ipv4_address"]
    assert service["extra_hosts"] == [f"server.example:{address}"]
    network = ipaddress.ip_network(found["networks"]["inside"]["ipam"]["config"][0]["subnet"])
    assert ipaddress.ip_address(address) in network
    assert gate["command"][1] == "tcp-connect:server.example:8002"
    assert (gate["read_only"], gate["cap_drop"], gate["user"]) == (True, ["ALL"], "10001:10001")
    assert "volumes" not in gate
    for host in ("192.0.2.7", "localhost"):
        text = deployment_files("client", "pump", host, 8002)["compose.yaml"]
        assert list(yaml.safe_load(text)["services"]) == ["fedgranger"]
        assert "firewall allow it the server's port 8002 only" in text.replace("\n    # ", " ")


def test_the_deployment_files_are_in_the_kits_that_run(made):
    for kit, has in (("server", True), ("client-pump", True), ("admin", False)):
        for name in ("fedgranger.service", "Containerfile", "compose.yaml"):
            assert (made / kit / name).is_file() is has
