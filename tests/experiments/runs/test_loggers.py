"""Weights & Biases without a network: the real library in offline mode."""

from algorithms.spo import SPOConfig
from experiments.config import LoggerConfig, RunConfig
from experiments.runs.loggers import NoLogger, open_logger


def test_wandb_logs_offline_where_no_key_is_set(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = RunConfig(algo=SPOConfig(), logger=LoggerConfig(name="wandb"))
    logger = open_logger(config, tmp_path, {"seed": 0})
    logger.log({"reward_mean": 0.5}, 1)
    assert logger.run.settings.mode == "offline"
    logger.close()
    written = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(written) == 1
    assert written[0].stat().st_size > 0


def test_none_logs_nowhere(tmp_path):
    logger = open_logger(RunConfig(algo=SPOConfig()), tmp_path, {})
    assert isinstance(logger, NoLogger)
    logger.log({"reward_mean": 0.5}, 1)
    logger.close()
    assert list(tmp_path.iterdir()) == []
