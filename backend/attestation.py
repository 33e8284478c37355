"""Signed statements about files: DSSE envelopes, Ed25519 keys and RFC 3161 time stamps.

A statement lies next to its file as ``FILE.intoto.json``: a DSSE envelope whose payload is an in-toto statement that
names the file's sha256 and what the file is. Several people may sign one statement. A time stamp covers the envelope
and lies next to it as ``FILE.intoto.json.tsr``. References: DSSE 1.0.2, in-toto attestation 1.1, RFC 8032, RFC 3161.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import rfc3161_client as tsp
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import Error
from securesystemslib.signer import CryptoSigner, Key, SSlibKey  # type: ignore[attr-defined]

from backend import output_files
from backend.errors import AtlasError

STATEMENT = "https://in-toto.io/Statement/v1"
PAYLOAD = "application/vnd.in-toto+json"
PREDICATE = "urn:provenance-atlas:{}:1"
ENDING, STAMP = ".intoto.json", ".tsr"
MOST_BYTES = 1_000_000  # of an envelope or a time stamp
SECONDS = 30.0  # for which a time-stamping authority is waited for


@dataclass(frozen=True)
class Attestation:
    """What a verified envelope says."""

    signers: tuple[str, ...]  # ids of the given keys that signed it
    others: tuple[str, ...]  # ids of further signatures, which no given key checks
    kind: str  # report, enrolment, generation, file
    facts: Mapping[str, Any]  # what the statement says of the file
    stamped: datetime | None  # when an authority saw the envelope


def make_key(private: Path) -> Path:
    """Write a new Ed25519 key, readable by its owner alone, and its public part to ``NAME.pub``, which is returned."""
    public = private.with_name(f"{private.name}.pub")
    if existing := next((path for path in (private, public) if path.exists()), None):
        raise AtlasError(f"{existing} exists already", "Choose another name; a key that is lost cannot be made again")
    output_files.writable([private, public])
    key = Ed25519PrivateKey.generate()
    handle = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return public


def envelope_path(file: Path) -> Path:
    """Where the envelope of a file lies."""
    return file.with_name(f"{file.name}{ENDING}")


def sign(file: Path, kind: str, facts: Mapping[str, Any], private: Path) -> tuple[Path, str]:
    """Sign what a file is; a second key adds its signature. Returns the envelope's path and the key's id.

    kind : report, enrolment, generation or file; facts : JSON that the statement says of it.
    Raises AtlasError for a key that is none, and for an envelope that says something else already.
    """
    signer, path = _signer(private), envelope_path(file)
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": file.name, "digest": {"sha256": _sha256(file)}}],
        "predicateType": PREDICATE.format(kind),
        "predicate": dict(facts),
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    envelope = Envelope(payload, PAYLOAD, {})
    if path.exists():
        envelope = _envelope(path)
        if envelope.payload != payload:
            raise AtlasError(f"{path} says something else of {file.name}", "Remove it, and sign the file as it is now")
    signature = envelope.sign(signer)
    output_files.write(path, json.dumps(envelope.to_dict(), indent=1) + "\n")
    path.with_name(f"{path.name}{STAMP}").unlink(missing_ok=True)  # it was of an envelope with fewer signatures
    return path, str(signature.keyid)


def verify(file: Path, public: Sequence[Path], authorities: Sequence[Path] = ()) -> Attestation:
    """Check the envelope of a file with public keys, and its time stamp with certificates of authorities.

    Raises AtlasError if there is no envelope, a given key did not sign it, a signature by one of them is wrong,
    the file is not the one that was signed, or the time stamp is not of this envelope or not by an authority.
    """
    path = envelope_path(file)
    envelope, keys = _envelope(path), [_public(one) for one in public]
    known = {key.keyid: key for key in keys}
    signed = {name: one for name, one in envelope.signatures.items() if name in known}
    if missing := [name[:16] for name in known if name not in signed]:
        names = ", ".join(name[:16] for name in envelope.signatures) or "nobody"
        problem = f"{path.name} has no signature of {', '.join(missing)}: signed by {names}"
        raise AtlasError(problem, "Give the signers' public keys")
    for name, signature in signed.items():
        try:
            known[name].verify_signature(signature, envelope.pae())
        except Error as error:
            problem = f"The signature of {name[:16]} in {path.name} is wrong: the envelope was changed"
            raise AtlasError(problem, "Ask the signer for the original") from error
    statement = _statement(envelope, path)
    digests = [one["digest"].get("sha256") for one in statement["subject"] if isinstance(one.get("digest"), dict)]
    if _sha256(file) not in digests:
        raise AtlasError(f"{file} is not the file that was signed (sha256 differs)", "Ask the signer for the original")
    kind = str(statement["predicateType"]).split(":")[-2]
    stamped = _stamped(path, authorities)
    others = tuple(name for name in envelope.signatures if name not in signed)
    return Attestation(tuple(signed), others, kind, statement["predicate"], stamped)


def stamp(file: Path, authority: str) -> Path:
    """Have the envelope of a file stamped by an authority (its address), and return the stamp's path."""
    path = envelope_path(file)
    request = tsp.TimestampRequestBuilder().data(_read(path)).build()
    headers = {"Content-Type": "application/timestamp-query"}
    remedy = "Give the address of an RFC 3161 authority that can be reached"
    try:
        answer = httpx.post(authority, content=request.as_bytes(), headers=headers, timeout=SECONDS).raise_for_status()
        response = tsp.decode_timestamp_response(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise AtlasError(f"{authority} gave no time stamp ({type(error).__name__})", remedy) from error
    if response.status not in (tsp.PKIStatus.GRANTED, tsp.PKIStatus.GRANTED_WITH_MODS):
        raise AtlasError(f"{authority} refused a time stamp ({tsp.PKIStatus(response.status).name})", remedy)
    target = path.with_name(f"{path.name}{STAMP}")
    target.write_bytes(answer.content)
    return target


def _stamped(path: Path, authorities: Sequence[Path]) -> datetime | None:
    """When an authority saw the envelope; None where it has no stamp, or no certificate is given."""
    stamp_file = path.with_name(f"{path.name}{STAMP}")
    if not authorities or not stamp_file.exists():
        return None
    try:
        response = tsp.decode_timestamp_response(_read(stamp_file))
        certificates = [one for file in authorities for one in x509.load_pem_x509_certificates(_read(file))]
        builder = tsp.VerifierBuilder()
        for certificate in certificates:
            builder = builder.add_root_certificate(certificate)
        builder.build().verify_message(response, _read(path))
    except (ValueError, tsp.VerificationError) as error:
        problem = (
            f"The time stamp {stamp_file.name} does not hold: {str(error).splitlines()[0] if str(error) else error!r}"
        )
        raise AtlasError(
            problem, "Give the root certificate of its authority, or have the envelope stamped again"
        ) from error
    return response.tst_info.gen_time.replace(tzinfo=UTC)


def _statement(envelope: Envelope, path: Path) -> dict[str, Any]:
    try:
        statement: dict[str, Any] = json.loads(envelope.payload)
        fits = envelope.payload_type == PAYLOAD and statement["_type"] == STATEMENT
        fits = fits and isinstance(statement["predicate"], dict) and isinstance(statement["subject"], list)
        fits = fits and str(statement["predicateType"]).count(":") > 1
    except (ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        raise AtlasError(
            f"{path} holds no in-toto statement", "Sign the file again: python -m jobs sign FILE --key KEY"
        )
    return statement


def _envelope(path: Path) -> Envelope:
    try:
        fields = json.loads(_read(path))
        return Envelope.from_dict(copy.deepcopy(fields))
    except (ValueError, KeyError, TypeError, AttributeError, Error) as error:
        raise AtlasError(
            f"{path} is no signed envelope", "Sign the file again: python -m jobs sign FILE --key KEY"
        ) from error


def _signer(private: Path) -> CryptoSigner:
    try:
        key = load_pem_private_key(_read(private), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_key(private, "private") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(private, "private")
    return CryptoSigner(key)


def _public(file: Path) -> Key:
    try:
        key = load_pem_public_key(_read(file))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(file, "public") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(file, "public")
    return SSlibKey.from_crypto(key)


def _no_key(file: Path, part: str) -> AtlasError:
    return AtlasError(f"{file} is no {part} Ed25519 key in PEM", "Make a pair: python -m jobs sign --new-key NAME")


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise AtlasError(
                f"{path} is larger than {MOST_BYTES / 1e6:.0f} MB", "Give a key, an envelope or a certificate"
            )
        return path.read_bytes()
    except OSError as error:
        raise AtlasError(f"{path} cannot be read ({error.strerror})", "Give a file that is there") from error


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise AtlasError(f"{file} cannot be read ({error.strerror})", "Give a file that is there") from error
