"""Sounds to tensors, and the networks that hear them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForSequenceClassification
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

from sparring import ASSoftmaxLoss, skip
from sparring.lab.models.sounds import HubFeatures, MelSpectrogram, resampled
from tests.lab.data import build, data, encoder_for, load, saved_and_loaded, tone

SPEAKER = pytest.mark.skipif(
    importlib.util.find_spec("resemblyzer") is None, reason="resemblyzer is not installed"
)
NETWORKS = ["tiny", "ast", pytest.param("resemblyzer", marks=SPEAKER)]


def test_the_spectrum_is_the_one_transformers_computes() -> None:
    sound = (torch.randn(8000) * 5000).to(torch.int16)
    ours = MelSpectrogram(rate=8000, n_mels=20)(sound, 8000)
    filters = mel_filter_bank(101, 20, 0.0, 4000.0, 8000, norm="slaney", mel_scale="slaney")
    theirs = spectrogram(
        sound.numpy() / 32768,
        window_function(200, "hann"),
        200,
        80,
        power=2.0,
        pad_mode="constant",
        mel_filters=filters,
        log_mel="log",
    )
    torch.testing.assert_close(ours, torch.from_numpy(theirs).T.float(), rtol=1e-3, atol=1e-3)


def test_a_tone_lights_its_band_at_any_rate() -> None:
    at = [
        MelSpectrogram(rate=rate, n_mels=40)(tone(1000, 0.5, 16000), 16000).mean(0).argmax()
        for rate in (8000, 16000)
    ]
    low = MelSpectrogram(rate=16000, n_mels=40)(tone(300, 0.5, 16000), 16000).mean(0).argmax()
    assert low < at[1] < at[0]
    wave = resampled(tone(440, 0.5, 8000).float(), 8000, 16000)
    assert len(wave) == 8000
    torch.testing.assert_close(wave[500:-500], tone(440, 0.5, 16000).float()[500:-500], rtol=0, atol=100)


def test_quiet_sounds_are_brought_up_and_loud_ones_left() -> None:
    quiet, loud = tone(440, 0.2) // 100, tone(440, 0.2)
    made, plain = MelSpectrogram(8000, log=False, loudness=-30.0), MelSpectrogram(8000, log=False)
    assert made(quiet, 8000).sum() > 5 * plain(quiet, 8000).sum()
    torch.testing.assert_close(made(loud, 8000), plain(loud, 8000))


def test_lengths_and_edges() -> None:
    assert MelSpectrogram(8000)(tone(440, 0.001), 8000).shape == (3, 64)  # shorter than a window
    assert MelSpectrogram(8000)(tone(440, 12.0), 8000).shape == (1001, 64)  # cut at ten seconds
    assert MelSpectrogram(8000, frames=50)(tone(440, 0.1), 8000).shape == (50, 64)
    assert torch.isfinite(MelSpectrogram(8000)(torch.zeros(800, dtype=torch.int16), 8000)).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_save_and_load(name: str, tmp_path: Path) -> None:
    made = data("audio")
    net, encoder, logits = saved_and_loaded("audio", made, name, tmp_path, (24, 3))
    alone = net(**encoder.collate(encoder.encode(made.dev[:1]))).logits  # padding changes nothing
    torch.testing.assert_close(alone, logits[:1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_skipping_is_exact(name: str) -> None:
    made = data("audio", 16)
    net, processor = build(name, made)
    encoder = encoder_for("audio", made.labels, processor, 0)
    batch = encoder.collate(encoder.encode(made.train))
    loss, gradients = ASSoftmaxLoss(delta=0.0), []
    net.train()
    torch.manual_seed(3)
    with torch.no_grad():
        best = net(**batch).logits.argmax(-1)
    target = torch.where(torch.arange(16) % 2 == 0, best, (best + 1) % 3)  # half of them are won
    for compacted in (False, True):
        if compacted:
            skip.compact(net)
        net.zero_grad()
        torch.manual_seed(3)
        rows = loss.rows(net(**batch).logits, target)
        rows.mean().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]))
    assert int(rows.active.sum()) == 8
    torch.testing.assert_close(
        gradients[1], gradients[0], rtol=1e-4, atol=1e-5 * gradients[0].abs().max().item()
    )


def test_any_model_of_the_hub(tmp_path: Path) -> None:
    made = data("audio")
    small: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    layers: dict[str, Any] = {
        "conv_dim": (8, 8),
        "conv_stride": (5, 4),
        "conv_kernel": (10, 4),
        "num_conv_pos_embeddings": 4,
    }
    config = Wav2Vec2Config(
        **small, **layers, num_conv_pos_embedding_groups=2, num_feat_extract_layers=2, mask_time_prob=0.0
    )
    Wav2Vec2ForSequenceClassification(config).save_pretrained(tmp_path)
    Wav2Vec2FeatureExtractor(sampling_rate=16000, return_attention_mask=True).save_pretrained(tmp_path)
    built = build(str(tmp_path), made)
    encoder = encoder_for("audio", made.labels, built.processor, 0)
    features = encoder.encode(made.dev)
    assert len(features[0]["values"]) == 2 * len(made.dev[0]["audio"])  # 8 to 16 kHz
    batch = encoder.collate(features)
    assert {"input_values", "attention_mask", "labels"} == batch.keys()
    assert built.net(**{name: value for name, value in batch.items() if name != "labels"}).logits.shape == (
        24,
        3,
    )
    built.net.save_pretrained(tmp_path / "again")
    built.processor.save_pretrained(tmp_path / "again")
    assert isinstance(load(tmp_path / "again", "audio").processor, HubFeatures)


@SPEAKER
def test_resemblyzer_has_the_wheel_s_weights() -> None:
    one, other = (build("resemblyzer", data("audio")).net.state_dict() for _ in range(2))
    assert torch.equal(one["lstm.weight_hh_l2"], other["lstm.weight_hh_l2"])
    assert not torch.equal(one["classifier.weight"], other["classifier.weight"])
    assert np.isfinite(one["lstm.weight_hh_l2"].numpy()).all()
