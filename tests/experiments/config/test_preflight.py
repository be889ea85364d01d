"""What a run lacks is one line before torch is imported."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from envs.tasks.config import TaskConfig
from experiments.config import preflight
from experiments.config.model_folder import check_tokenizer
from experiments.config.preflight import check_before_start, make_output_folder
from experiments.config.schema import SandboxConfig
from experiments.errors import UserError
from tests.compose import model_config, options_of, run_config

NANO = Path("assets/nano")


def config(tmp_path, **parts):
    return replace(
        run_config(options_of("spo"), task=TaskConfig(), output_dir=str(tmp_path)), **parts
    )


def model(path):
    return model_config(path=str(path))


def broken_copy(tmp_path, removed=(), **changed):
    folder = tmp_path / "model"
    shutil.copytree(NANO, folder)
    for pattern in removed:
        for file in folder.glob(pattern):
            file.unlink()
    for name, text in changed.items():
        (folder / name.replace("_json", ".json")).write_text(text)
    return folder


def test_a_sound_configuration_passes(tmp_path):
    check_before_start([config(tmp_path), config(tmp_path)])


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"config_json": "{"}, "config.json cannot be used"),
        ({"removed": ["*.safetensors"]}, "no weights"),
        ({"removed": ["tokenizer*"]}, "no tokenizer"),
        ({"removed": ["*.jinja"]}, "no chat template, which task.chat=true needs"),
    ],
)
def test_a_folder_that_holds_no_model_is_one_line(tmp_path, broken, said):
    with pytest.raises(UserError, match=said) as raised:
        check_before_start([config(tmp_path, model=model(broken_copy(tmp_path, **broken)))])
    assert str(raised.value).startswith("model.path=") and "\n" not in str(raised.value)


def test_a_chat_template_is_needed_for_chats_alone_and_found_in_every_place(tmp_path):
    folder = broken_copy(tmp_path, removed=["*.jinja"])
    check_tokenizer(str(folder), chat=False)
    stored = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(stored | {"chat_template": "{{ x }}"}))
    check_tokenizer(str(folder), chat=True)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match="no chat template"):
        check_tokenizer(str(folder), chat=True)


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_chat_template_that_cannot_be_parsed_names_its_file_and_line(tmp_path, file):
    folder = broken_copy(tmp_path, removed=["*.jinja"])

    def store(template):
        text = template if file.endswith("jinja") else json.dumps({"chat_template": template})
        (folder / file).write_text(text)

    store("{{ messages }}\n{% if %}")
    with pytest.raises(UserError, match=rf"the chat template in {file}, line 2: Expected an expr"):
        check_tokenizer(str(folder), chat=True)
    check_tokenizer(str(folder), chat=False)
    for sound in (  # tags and functions that only transformers gives a template
        "{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% endfor %}",
        "{% for m in messages %}{% break %}{% endfor %}{{ strftime_now('%Y') | tojson }}",
    ):
        store(sound)
        check_tokenizer(str(folder), chat=True)


def test_a_gpu_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(preflight, "GPU_DEVICES", (str(tmp_path / "none"),))
    with pytest.raises(UserError, match=r"model\.device=cuda: no GPU"):
        check_before_start([config(tmp_path, model=model_config(device="cuda"))])
    (tmp_path / "none").touch()
    check_before_start([config(tmp_path, model=model_config(device="cuda"))])


@pytest.mark.parametrize(
    ("listed", "device", "said"),
    [
        ("2,3", "cuda:1", None),
        ("2,3", "cuda:2", r"the last GPU visible here is cuda:1 \(CUDA_VISIBLE_DEVICES=2,3\)"),
        ("", "cuda", r"no GPU is visible here \(CUDA_VISIBLE_DEVICES=\)"),
        ("GPU-a1,MIG-b", "cuda:1", None),
    ],
)
def test_a_gpu_that_is_hidden_is_found_missing(listed, device, said, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "GPU_DEVICES", ["/dev/null"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    given = config(tmp_path, model=model_config(device=device))
    with pytest.raises(UserError, match=said) if said else nullcontext():
        check_before_start([given])


def test_an_engine_that_does_not_answer_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(UserError, match=r"none\.sock"):
        check_before_start([config(tmp_path, sandbox=SandboxConfig(kind="docker"))])


def test_checkpoints_that_would_not_fit_are_said(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=10_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"0\.0 GB are free, and 3 checkpoints"):
        check_before_start([config(tmp_path)])
    check_before_start([config(tmp_path, steps=0)])  # writes none
    check_before_start([config(tmp_path)], starts=False)
    usage = usage._replace(free=15_000_000)
    adapted = model_config(path="assets/nano", adapter="lora")  # writes few moments
    check_before_start([config(tmp_path, model=adapted)])
    with pytest.raises(UserError, match="3 checkpoints"):
        check_before_start([config(tmp_path)])


def test_a_cache_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cache folder .*/file: .*set SPO_BENCH_CACHE"):
        check_before_start([config(tmp_path)])


def test_a_gguf_file_that_cannot_be_converted_for_lack_of_room_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("experiments.config.model_folder.check_gguf", lambda path: None)
    file = tmp_path / "tiny.gguf"
    file.write_bytes(bytes(1_000_000))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5_000_000))
    untrained = config(tmp_path, model=model(file), steps=0)
    unfinished = tmp_path / "cache" / "models" / "tiny-0123.7.tmp"
    unfinished.mkdir(parents=True)
    (unfinished / "config.json").touch()
    with pytest.raises(UserError, match=r"tiny\.gguf: 0\.0 GB are free in the cache folder"):
        check_before_start([untrained])
    unfinished.rename(unfinished.with_name("tiny-0123"))
    check_before_start([untrained])  # it was converted before


def test_a_hub_that_cannot_be_reached_is_said_unless_the_model_was_downloaded(
    tmp_path, monkeypatch
):
    for key in ("HTTPS_PROXY", "https_proxy", "HF_ENDPOINT", "HF_HUB_CACHE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = config(tmp_path, model=model("some/model"))
    with pytest.raises(UserError, match=r"model\.path=some/model: the hub cannot be reached"):
        check_before_start([named])
    snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({}))
    check_before_start([named])


def test_an_output_folder_that_is_there_may_still_be_read_only(tmp_path):
    make_output_folder(f"{tmp_path}/new/folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    with pytest.raises(UserError, match=r"output_dir=/proc: .*; choose a writable folder"):
        make_output_folder("/proc")
