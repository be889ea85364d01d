"""Which run folder holds a configuration's run."""

from dataclasses import asdict, replace

from omegaconf import OmegaConf

from experiments.config.composition import config_of
from experiments.config.resolve_defaults import resolve_defaults
from experiments.sweep import find_run


def test_a_run_is_found_again_whatever_was_said_of_its_tuning(tmp_path):
    config = config_of(["task=mini", "algo=spo", f"output_dir={tmp_path}", "model.device=cpu"])
    long = "24 trials (steps=40 eval.split=tune), 3 of the best on 3 fresh seeds, " * 3
    folder = tmp_path / config.name / "spo-s0-1"
    folder.mkdir(parents=True)
    recorded = OmegaConf.to_yaml(asdict(resolve_defaults(replace(config, tuned=long), "cpu")))
    (folder / "config.yaml").write_text(recorded)
    (folder / "run.json").write_text("{}")
    assert recorded.count("\n", recorded.index("\ntuned:")) > 1  # it has several lines
    assert find_run(replace(config, tuned=long)) == folder
    assert find_run(replace(config, tuned="otherwise")) == folder
    assert find_run(config) == folder
    assert find_run(replace(config, steps=config.steps + 1)) is None
    assert find_run(replace(config, seed=1)) is None
