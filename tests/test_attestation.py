"""Signed statements: whoever changes file, statement or signature is found, and other programs read them."""

from __future__ import annotations

import base64
import http.server
import json
import shutil
import stat
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_public_key
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from backend import attestation
from backend.errors import AtlasError

FACTS = {"verdict": "SUPPORTS", "traces": 20}


@pytest.fixture
def signed(tmp_path):
    """A file that one key signed: file, private key, public key."""
    file, key = tmp_path / "report.json", tmp_path / "auditor"
    file.write_text("{}", "utf-8")
    public = attestation.make_key(key)
    attestation.sign(file, "report", FACTS, key)
    return file, key, public


def test_a_signature_names_signer_kind_and_facts(signed):
    file, _, public = signed
    found = attestation.verify(file, [public])
    assert (found.kind, found.facts, found.others, found.stamped) == ("report", FACTS, (), None)
    assert len(found.signers) == 1


def test_other_programs_read_the_envelope(signed):
    file, _, public = signed
    envelope = json.loads(attestation.envelope_path(file).read_text("utf-8"))
    payload, (signature,) = base64.b64decode(envelope["payload"]), envelope["signatures"]
    # DSSE's pre-authentication encoding by hand, and the signature by the cryptography library alone.
    kind = envelope["payloadType"].encode()
    encoded = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    load_pem_public_key(public.read_bytes()).verify(base64.b64decode(signature["sig"]), encoded)
    statement = Statement.copy_from_pb(json_format.Parse(payload, statement_pb2.Statement()))
    statement.validate()
    assert statement.pb.subject[0].name == "report.json"


def test_a_changed_file_is_found(signed):
    file, _, public = signed
    file.write_text('{"verdict": "AGAINST"}', "utf-8")
    with pytest.raises(AtlasError, match=r"report\.json is not the file that was signed"):
        attestation.verify(file, [public])


@pytest.mark.parametrize("part", ["payload", "sig", "payloadType"])
def test_a_changed_envelope_is_found(signed, part):
    file, _, public = signed
    path = attestation.envelope_path(file)
    envelope = json.loads(path.read_text("utf-8"))
    if part == "payload":
        text = base64.b64decode(envelope["payload"]).replace(b"SUPPORTS", b"AGAINST!")
        envelope["payload"] = base64.b64encode(text).decode()
    elif part == "sig":
        raw = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
        raw[7] ^= 1
        envelope["signatures"][0]["sig"] = base64.b64encode(raw).decode()
    else:
        envelope["payloadType"] = "text/plain"
    path.write_text(json.dumps(envelope), "utf-8")
    with pytest.raises(AtlasError, match=r"The signature of .* is wrong"):
        attestation.verify(file, [public])


def test_two_people_sign_one_statement_and_a_stranger_did_not(signed, tmp_path):
    file, _, public = signed
    second = attestation.make_key(tmp_path / "reviewer")
    for keys in ([second], [public, second]):
        with pytest.raises(AtlasError, match="has no signature of"):
            attestation.verify(file, keys)
    attestation.sign(file, "report", FACTS, tmp_path / "reviewer")
    assert len(attestation.verify(file, [public, second]).signers) == 2
    alone = attestation.verify(file, [second])
    assert (len(alone.signers), len(alone.others)) == (1, 1)


def test_an_envelope_of_an_older_file_is_not_signed_again(signed):
    file, key, _ = signed
    file.write_text("{ }", "utf-8")
    with pytest.raises(AtlasError, match="says something else"):
        attestation.sign(file, "report", FACTS, key)


def test_keys_are_their_owners_and_never_written_over(tmp_path):
    key = tmp_path / "auditor"
    attestation.make_key(key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(AtlasError, match="exists already"):
        attestation.make_key(key)


def test_what_is_no_key_is_named(signed, tmp_path):
    file, key, public = signed
    other = tmp_path / "rsa"
    private = rsa.generate_private_key(65537, 2048)
    other.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    for wrong in (other, public, file, tmp_path / "absent"):
        with pytest.raises(AtlasError, match=wrong.name):
            attestation.sign(file, "report", FACTS, wrong)
    with pytest.raises(AtlasError, match="no public Ed25519 key"):
        attestation.verify(file, [key])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"payload": 1, "payloadType": "", "signatures": [3]}', "\0"])
def test_what_is_no_envelope_is_named(signed, text):
    file, _, public = signed
    attestation.envelope_path(file).write_text(text, "utf-8")
    with pytest.raises(AtlasError, match=r"is no signed envelope|has no signature of"):
        attestation.verify(file, [public])


def test_a_large_envelope_is_not_read(signed):
    file, _, public = signed
    attestation.envelope_path(file).write_text(" " * (attestation.MOST_BYTES + 1), "utf-8")
    with pytest.raises(AtlasError, match="larger than 1 MB"):
        attestation.verify(file, [public])


CONFIG = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
[stamper]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
[tsa]
default_tsa = tsa_default
[tsa_default]
serial = ./serial
signer_digest = sha256
digests = sha256, sha512
default_policy = 1.2.3.4.1
ess_cert_id_alg = sha256
"""


@pytest.fixture
def authority(tmp_path):
    """A time-stamping authority on this machine, made with OpenSSL: its address and its root certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("OpenSSL's command line is not here")
    folder = tmp_path / "authority"
    folder.mkdir()
    (folder / "config").write_text(CONFIG, "utf-8")
    (folder / "serial").write_text("01\n", "utf-8")

    def openssl(*arguments: str, data: bytes = b"") -> bytes:
        return subprocess.run(["openssl", *arguments], cwd=folder, input=data, capture_output=True, check=True).stdout

    for name in ("root", "stamper"):
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")
    root = ("-new", "-x509", "-key", "root.key", "-subj", "/CN=Root", "-days", "2", "-extensions", "authority")
    openssl("req", "-config", "config", *root, "-out", "root.pem")
    openssl("req", "-config", "config", "-new", "-key", "stamper.key", "-subj", "/CN=Stamper", "-out", "stamper.csr")
    ends = ("-CA", "root.pem", "-CAkey", "root.key", "-days", "2", "-extfile", "config", "-extensions", "stamper")
    openssl("x509", "-req", "-in", "stamper.csr", *ends, "-out", "stamper.pem")

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            (folder / "query").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            signer = ("-signer", "stamper.pem", "-inkey", "stamper.key")
            openssl("ts", "-reply", "-config", "config", "-queryfile", "query", *signer, "-out", "reply")
            self.send_response(200)
            self.end_headers()
            self.wfile.write((folder / "reply").read_bytes())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder / "root.pem"
        server.shutdown()


def test_an_authority_says_when(signed, authority, tmp_path):
    file, _, public = signed
    address, root = authority
    attestation.stamp(file, address)
    seen = attestation.verify(file, [public], [root]).stamped
    assert abs(seen - datetime.now(UTC)) < timedelta(minutes=5)
    # Of another envelope, and by somebody else, it says nothing.
    stamp = tmp_path / f"{file.name}{attestation.ENDING}{attestation.STAMP}"
    kept = stamp.read_bytes()
    attestation.make_key(tmp_path / "second")
    attestation.sign(file, "report", FACTS, tmp_path / "second")
    assert not stamp.exists()
    stamp.write_bytes(kept)
    with pytest.raises(AtlasError, match="does not hold"):
        attestation.verify(file, [public], [root])


def test_an_address_that_stamps_nothing_is_named(signed):
    with pytest.raises(AtlasError, match="gave no time stamp"):
        attestation.stamp(signed[0], "http://127.0.0.1:9/")
