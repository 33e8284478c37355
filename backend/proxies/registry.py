"""Proxies that exist, where their weights come from, and how one is loaded (paper, Experimental Setup).

``proxies.toml`` names embedded proxies, whose weights come inside Python packages, and published ones on the model hub;
any other hub id or local folder is a proxy too. Packages are only unpacked, weights are read from safetensors only:
nothing is ever unpickled, and no code of a model repository runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from backend.errors import AtlasError
from backend.fingerprints import cache_folder, check_room
from backend.output_files import lock
from backend.proxies.reader import Reader

DEFAULT_PROXY = "smollm2-135m"
HUB_FILES = ("*.json", "*.safetensors", "tokenizer.model", "*.jinja", "merges.txt", "vocab.txt")
HUB_LEFT_OUT = ("original/*", "consolidated*", "onnx/*", "openvino/*")
_RECORD = "proxy.json"


@dataclass(frozen=True)
class WheelFile:
    """One file that a wheel carries: its path there, its name here, its sha256."""

    member: str
    to: str
    sha256: str


@dataclass(frozen=True)
class Wheel:
    """A package whose wheel carries files of a proxy."""

    package: str
    version: str
    sha256: str
    size: int
    files: tuple[WheelFile, ...]


@dataclass(frozen=True)
class Proxy:
    """What is known of a proxy before it is loaded."""

    key: str  # name in commands, reader ids and store folders
    name: str  # name for people
    depth: int
    hidden_size: int
    causal: bool  # whether a state depends on earlier tokens only
    family: str | None = None
    licence: str | None = None
    hub_id: str | None = None
    folder: Path | None = None  # folder of a local proxy
    wheels: tuple[Wheel, ...] = ()  # empty for hub and local proxies
    weights: str | None = None  # file that identifies a packaged proxy, and ``weights_sha256`` its hash
    weights_sha256: str | None = None
    inside: tuple[str, ...] = ()  # what is taken out of ``weights``, where that is a zip file
    disk: int | None = None  # bytes of the finished folder of a packaged proxy
    precise: int = 0  # leading blocks whose products need float32, where bfloat16 is too coarse for this proxy

    @property
    def package(self) -> str | None:
        return self.wheels[0].package if self.wheels else None


@functools.lru_cache(maxsize=2)
def tokenizer_of(name_or_path: str) -> Any:
    """The tokenizer of a proxy, without its weights. Raises AtlasError if it is not here."""
    import transformers

    return transformers.AutoTokenizer.from_pretrained(locate(describe(name_or_path)), local_files_only=True)


@functools.cache
def registered() -> dict[str, Proxy]:
    table = tomllib.loads(Path(__file__).with_name("proxies.toml").read_text("utf-8"))
    return {key: _from_toml(key, entry) for key, entry in table.items()}


def _from_toml(key: str, entry: dict[str, Any]) -> Proxy:
    wheels = tuple(
        Wheel(w["package"], w["version"], w["sha256"], w["bytes"], tuple(WheelFile(**f) for f in w["files"]))
        for w in entry.get("wheels", [])
    )
    parts = [f.sha256 for w in wheels for f in w.files if f.to == entry.get("weights")]
    found: dict[str, Any] = {"weights_sha256": parts[0]} if len(parts) == 1 else {}
    found |= {name: value for name, value in entry.items() if name in Proxy.__dataclass_fields__}
    return Proxy(key=key, **found | {"wheels": wheels, "inside": tuple(entry.get("inside", ()))})


def proxy_key(name_or_path: str) -> str:
    """The short name of a proxy in reader ids and store folders; asks neither disk nor network for its weights."""
    known, folder = registered(), Path(name_or_path).expanduser()
    of_hub = [proxy.key for proxy in known.values() if name_or_path in (proxy.key, proxy.hub_id)]
    if of_hub:
        return of_hub[0]
    name = folder.resolve().name if name_or_path and folder.is_dir() else name_or_path
    key = re.sub(r"[^A-Za-z0-9._-]+", "--", name).strip(".-") or "model"  # one folder, and one part of a reader id
    return f"{key}-local" if key in known else key


def describe(name_or_path: str) -> Proxy:
    """Find a proxy by registered name, hub id or ``owner--model`` (fetched if not registered), or folder."""
    known, key = registered(), proxy_key(name_or_path)
    if key in known:
        return known[key]
    folder = Path(name_or_path).expanduser()
    if name_or_path and folder.is_dir():
        return _from_folder(folder.resolve(), key=key, hub_id=None)
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name_or_path) and (saved := weights_folder() / name_or_path).is_dir():
        return _from_folder(saved, key=key, hub_id=None)
    # An enrolment holds the key of its proxy, and a hub id has no two dashes in a row.
    hub_id = re.sub(r"^([A-Za-z0-9][\w.-]*?)--([A-Za-z0-9])", r"\1/\2", name_or_path)
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", hub_id):
        return _from_folder(_hub_folder(hub_id), key=key, hub_id=hub_id)
    remedy = f"Choose one of {', '.join(known)}, or give a hub id (owner/model) or a folder with a safetensors model"
    raise AtlasError(f"There is no proxy '{name_or_path}'", remedy)


def proxy_hash(name_or_path: str) -> str:
    """The sha256 of a proxy's weight file as shipped; of several files, over the lines ``name sha256`` by name."""
    proxy = describe(name_or_path)
    if proxy.weights_sha256:
        return proxy.weights_sha256
    hashes = {file.name: _file_hash(file) for file in sorted(locate(proxy).glob("*.safetensors"))}
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    return hashlib.sha256("".join(f"{name} {one}\n" for name, one in hashes.items()).encode()).hexdigest()


def load_reader(
    name_or_path: str = DEFAULT_PROXY, device: str = "auto", dtype: torch.dtype | str | None = None, **options: Any
) -> Reader:
    """Load a proxy by registered name, hub id or folder, ready to read; ``options`` are those of :class:`Reader`."""
    options |= {"device": find_device(device), "dtype": getattr(torch, dtype) if isinstance(dtype, str) else dtype}
    proxy = describe(name_or_path)
    model, tokenizer = load_model(proxy)
    return Reader(model, tokenizer, causal=proxy.causal, precise=proxy.precise, **options)


def load_model(proxy: Proxy, *, head: bool = False) -> tuple[Any, Any]:
    """Load a proxy's model, on the CPU, and tokenizer, in the type in which its weights are stored.

    head : with the language-model head, to generate; else the base model, of a multimodal one the text decoder.
    """
    folder = locate(proxy)
    where = f"The proxy '{proxy.key}' in {folder}"
    with _quiet_transformers() as transformers:
        maker = transformers.AutoModelForCausalLM if head else transformers.AutoModel
        try:
            here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            model, report = maker.from_pretrained(
                folder, dtype="auto", use_safetensors=True, output_loading_info=True, **here
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **here)
        except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
            remedy = "It must be a model that transformers knows, in safetensors, with a fast tokenizer"
            raise AtlasError(f"{where} cannot be read ({_first_line(error)})", remedy) from error
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)  # nobody reads the pooled state
    if missing:
        lack = f"lacks {len(missing)} weights (the first is {missing[0]})"
        raise AtlasError(f"{where} {lack}", "Fetch or save the model again")
    if not tokenizer.is_fast:
        lack = "has no fast tokenizer, which knows where each token lies"
        raise AtlasError(f"{where} {lack}", "Add its tokenizer.json")
    if not head and hasattr(model, "get_decoder") and model.config.get_text_config() is not model.config:
        model = model.get_decoder()
    return model.eval(), tokenizer


def locate(proxy: Proxy) -> Path:
    """Folder with the proxy's safetensors model; a package that is installed is converted on first use."""
    if proxy.folder is not None:
        return proxy.folder
    if not proxy.wheels:
        assert proxy.hub_id is not None
        return _hub_folder(proxy.hub_id)
    if (folder := installed(proxy)) is not None:
        return folder
    if all(_in_site_packages(wheel) for wheel in proxy.wheels):
        return install(proxy.key)
    remedy = f"Run: python -m jobs proxies install {proxy.key}"
    raise AtlasError(f"The weights of the proxy '{proxy.key}' are not on this machine", remedy)


def weights_folder() -> Path:
    return cache_folder() / "proxies"


def installed(proxy: Proxy) -> Path | None:
    """Folder of a proxy whose weights are ready to load without any network, None otherwise."""
    if proxy.folder is not None:
        return proxy.folder
    if not proxy.wheels:
        return _hub_cached(str(proxy.hub_id))
    folder = weights_folder() / proxy.key
    try:
        record = json.loads((folder / _RECORD).read_text("utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in record["files"]}
        whole = record["weights_sha256"] == proxy.weights_sha256 and sizes == record["files"]
    except (OSError, ValueError, KeyError):
        return None
    return folder if whole else None


def install(name: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """Bring the weights of a packaged proxy into the cache, checked and converted; a second process waits.

    Raises AtlasError if the proxy is unknown, a package cannot be fetched, a hash is wrong, or the disk is full.
    """
    proxy = describe(name)
    if not proxy.wheels:
        say(f"{proxy.key}: files come from the model hub")
        return locate(proxy)
    root = weights_folder()
    with _locked(root, proxy.key):
        if (ready := installed(proxy)) is not None:
            say(f"{proxy.key}: already in {ready}")
            return ready
        for leftover in root.glob(f".{proxy.key}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        fetch = [wheel for wheel in proxy.wheels if not _in_site_packages(wheel)]
        check_room(root, 2 * (proxy.disk or 0) + sum(wheel.size for wheel in fetch))
        with tempfile.TemporaryDirectory(prefix=f".{proxy.key}.", dir=root, ignore_cleanup_errors=True) as scratch:
            raw = Path(scratch, "raw")
            raw.mkdir()
            for wheel in proxy.wheels:
                if wheel in fetch:
                    say(f"fetching {wheel.package} {wheel.version} ({wheel.size / 1e6:.0f} MB)")
                    _unpack(_download(wheel, Path(scratch, "wheels")), wheel, raw)
                    continue
                say(f"using the installed package {wheel.package}")
                for file in wheel.files:
                    path = Path(str(_installed_file(wheel, file)))
                    with path.open("rb") as stream:
                        _append_checked(stream, raw / file.to, file, str(path))
            assert proxy.weights is not None
            if _file_hash(raw / proxy.weights) != proxy.weights_sha256:
                problem = f"{proxy.weights} of the proxy '{proxy.key}' does not have the registered sha256"
                remedy = "Remove what pip keeps (python -m pip cache purge) and run: python -m jobs proxies install"
                raise AtlasError(problem, f"{remedy} {name}")
            done = _convert(proxy, raw, Path(scratch, "done"), say)
            record: dict[str, Any] = {"proxy": proxy.key}
            record |= {"weights": proxy.weights, "weights_sha256": proxy.weights_sha256}
            record["packages"] = [f"{w.package}=={w.version}" for w in proxy.wheels]
            record["files"] = {f.name: f.stat().st_size for f in sorted(done.iterdir())}
            (done / _RECORD).write_text(json.dumps(record, indent=1), "utf-8")
            target = root / proxy.key
            if target.exists():
                target.rename(Path(scratch, "broken"))
            done.rename(target)
        say(f"{proxy.key}: ready in {target}")
        return target


def _convert(proxy: Proxy, raw: Path, done: Path, say: Callable[[str], None]) -> Path:
    """Safetensors model with its tokenizer; a GGUF is dequantised to float32, a zip file opened."""
    assert proxy.weights is not None
    if proxy.weights.endswith(".safetensors"):
        return raw
    done.mkdir()
    if proxy.inside:
        with zipfile.ZipFile(raw / proxy.weights) as opened:
            for member in proxy.inside:
                with opened.open(member) as stream, (done / Path(member).name).open("wb") as out:
                    shutil.copyfileobj(stream, out)
        return done
    say(f"converting {proxy.weights} to safetensors (once)")
    with _quiet_transformers() as transformers:
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(raw, gguf_file=proxy.weights)
            config = transformers.GgufConfig(dequantize=True)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                raw, gguf_file=proxy.weights, quantization_config=config, dtype=torch.float32
            )
        except ImportError as error:
            remedy = "Install the project with its dependencies (gguf and accelerate are among them)"
            raise AtlasError(f"The proxy '{proxy.key}' cannot be converted ({_first_line(error)})", remedy) from error
        model.save_pretrained(done, max_shard_size="100GB")
        tokenizer.save_pretrained(done)
    (raw / proxy.weights).unlink()
    for notice in raw.iterdir():
        notice.rename(done / notice.name)
    return done


def _download(wheel: Wheel, folder: Path) -> Path:
    """Fetch a wheel with pip, whose own configuration says from where, and check it."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(folder), f"{wheel.package}=={wheel.version}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(folder.glob("*.whl"), key=lambda p: p.stat().st_mtime)
    if result.returncode != 0 or not found:
        errors = [line for line in result.stderr.splitlines() if "ERROR" in line or "No module named pip" in line]
        why = (errors or result.stderr.strip().splitlines() or ["no output"])[-1].removeprefix("ERROR: ").rstrip(".")
        remedy = "Check the network and pip's configuration, or install that package with pip install --no-deps and"
        raise AtlasError(f"pip cannot fetch {wheel.package}=={wheel.version} ({why})", f"{remedy} {sys.executable}")
    if _file_hash(found[-1]) != wheel.sha256:
        remedy = (
            "Remove what pip keeps (python -m pip cache purge) and try again; if it stays so, the package was changed"
        )
        raise AtlasError(f"{found[-1].name} does not have the registered sha256", remedy)
    return found[-1]


def _unpack(archive: Path, wheel: Wheel, folder: Path) -> None:
    """Take the listed files out of a wheel; names come from the registry, never from the archive."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for file in wheel.files:
                with opened.open(file.member) as stream:
                    _append_checked(stream, folder / file.to, file, f"{file.member} in {archive.name}")
    except (zipfile.BadZipFile, KeyError) as error:
        problem = f"{archive.name} is not the expected wheel ({_first_line(error)})"
        raise AtlasError(problem, "Fetch it again") from error
    archive.unlink()


def _in_site_packages(wheel: Wheel) -> bool:
    return all(_installed_file(wheel, file) is not None for file in wheel.files)


def _installed_file(wheel: Wheel, file: WheelFile) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(wheel.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(file.member)))
    return path if distribution.version == wheel.version and path.is_file() else None


def _append_checked(stream: Any, target: Path, file: WheelFile, what: str) -> None:
    digest = hashlib.sha256()
    with target.open("ab") as out:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != file.sha256:
        raise AtlasError(f"{what} does not have the registered sha256", "Install that package again")


def _locked(root: Path, key: str) -> contextlib.ExitStack:
    try:
        root.mkdir(parents=True, exist_ok=True)
        return lock(root / f"{key}.lock")
    except OSError as error:
        problem = f"The proxy folder {root} cannot be written ({error.strerror})"
        raise AtlasError(problem, "Point ATLAS_CACHE to a folder that you may write to") from error


def _from_folder(folder: Path, key: str, hub_id: str | None) -> Proxy:
    """Describe a model folder by its configuration, after checking that it is one that can be read."""
    for name, kind in (("config.json", "configuration"), ("tokenizer.json", "fast tokenizer")):
        if not (folder / name).is_file():
            remedy = "Give a folder that transformers has saved, with model and tokenizer"
            raise AtlasError(f"The folder {folder} has no {kind} ({name})", remedy)
    if not any(folder.glob("*.safetensors")):
        problem = f"The folder {folder} has no weights in safetensors (pickled weights are not read)"
        raise AtlasError(problem, "Convert them with save_pretrained")
    with _quiet_transformers() as transformers:
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            problem = f"{folder / 'config.json'} cannot be read ({_first_line(error)})"
            raise AtlasError(problem, "It must be a model that this version of transformers knows") from error
        if getattr(config, "is_encoder_decoder", False):
            remedy = "Choose a decoder or a sentence encoder as proxy"
            raise AtlasError(f"The model in {folder} is an encoder-decoder", remedy)
        text = config.get_text_config()
        masked = transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    both_ways = text.model_type in masked or getattr(text, "use_bidirectional_attention", False) in (True, "all")
    depth, width = int(text.num_hidden_layers), int(text.hidden_size)
    return Proxy(key, hub_id or folder.name, depth, width, not both_ways, hub_id=hub_id, folder=folder)


def _hub_folder(hub_id: str) -> Path:
    """Fetch a model's configuration, tokenizer and safetensors from the hub, or find them in its cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        found = snapshot_download(hub_id, allow_patterns=list(HUB_FILES), ignore_patterns=list(HUB_LEFT_OUT))
    except GatedRepoError as error:
        problem = f"The model hub gives '{hub_id}' only to those who accepted its terms"
        raise AtlasError(problem, "Accept them on the model's page and log in with: hf auth login") from error
    except RepositoryNotFoundError as error:
        remedy = "Check its spelling"
        raise AtlasError(f"There is no model '{hub_id}' on the hub, and no folder of that name", remedy) from error
    except Exception as error:  # the hub's client lets the errors of several network libraries through
        problem = f"The model '{hub_id}' is not in the hub's cache here and cannot be fetched ({_first_line(error)})"
        raise AtlasError(problem, "Connect to the network, or give a folder that holds the model") from error
    return Path(found)


def _hub_cached(hub_id: str) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        found = Path(snapshot_download(hub_id, allow_patterns=list(HUB_FILES), local_files_only=True))
    except Exception:  # whatever the client raises, the model is not here
        return None
    return found if any(found.glob("*.safetensors")) else None


def _file_hash(path: Path) -> str:
    """sha256 of a file's bytes, whatever a link to it is called."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find_device(name: str) -> torch.device:
    """A device by name; 'auto' takes CUDA where there is one. Raises AtlasError if it does not exist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise AtlasError(f"There is no device '{name}'", "Choose auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise AtlasError("This machine has no CUDA device that PyTorch can use", "Choose --device cpu")
    return device


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The transformers package without its progress bars; importing it is what takes time here."""
    import transformers

    logging: Any = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def proxies_key(text: str) -> str:
    """Short name of a proxy, or of several that read together and are joined by '+'."""
    return "+".join(proxy_key(part) for part in text.split("+"))


def blocks_of(text: str, depth: int) -> list[int]:
    """Blocks from 'all', '15', '3,9,15' or '1-12,15', ascending; an empty text means none."""
    if text == "all":
        return list(range(1, depth + 1))
    blocks: set[int] = set()
    for part in filter(None, (p.strip() for p in text.split(","))):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if found is None:
            raise AtlasError(f"'{text}' does not name blocks", "Write all, 15, 3,9,15 or 1-12")
        low, high = int(found[1]), int(found[2] or found[1])
        if low < 1 or high > depth or low > high:
            raise AtlasError(f"There are no blocks {part} in this proxy", f"Its blocks are 1-{depth}")
        blocks |= set(range(low, high + 1))
    return sorted(blocks)
