import copy
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import FunnelConfig, PerceiverConfig, pipeline, set_seed

from mtlib.errors import UserError
from mtlib.masking import ExactMasking, maskable_positions
from mtlib.objectives import MaskTuning
from mtlib.plm import SharedPLM, mlm_positions_of
from tests.conftest import (
    ARCHITECTURES,
    SIZE,
    WORDS,
    architecture,
    at_masks,
    make_batch,
    make_plm,
    make_tokenizer,
    tiny_bert_config,
)

TEXTS = ["the film is very good and not boring", "the plot was slow", "a warm story of a film"]


def masked_batch(plm, texts=TEXTS):
    batch = make_batch(plm, texts)
    generator = torch.Generator().manual_seed(1)
    return batch, ExactMasking(0.3)(batch, maskable_positions(batch, plm.tokenizer), generator)


def full_head_logits(plm, batch, mask):
    """What the stock model gives when its head runs over every place."""
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    inputs["input_ids"] = batch["input_ids"].masked_fill(mask, plm.tokenizer.mask_token_id)
    if plm.config.is_encoder_decoder:
        start = torch.full_like(batch["input_ids"][:, :1], plm.config.decoder_start_token_id)
        inputs["decoder_input_ids"] = torch.cat([start, batch["input_ids"][:, :-1]], dim=1)
    return plm.mlm(**inputs).logits[mask]


@pytest.mark.parametrize("name", ARCHITECTURES)
class TestEveryArchitecture:
    def test_it_reads_as_much_as_it_says(self, name):
        plm = architecture(name).eval()
        assert 10 < plm.longest < 1000
        ids = torch.full((1, plm.longest), plm.tokenizer.unk_token_id)
        ids[:, -1] = plm.tokenizer.sep_token_id  # where BART's head reads
        plm.classify({"input_ids": ids, "attention_mask": torch.ones_like(ids)})

    def test_head_at_masked_places_equals_full_head(self, name):
        plm = architecture(name).eval()
        batch, mask = masked_batch(plm)
        rows = at_masks(plm, batch, mask)
        full = full_head_logits(plm, batch, mask)
        assert rows.shape == (mask.sum(), plm.config.vocab_size)
        torch.testing.assert_close(rows, full, atol=1e-5, rtol=1e-5)

    def test_one_trunk_with_tied_embeddings(self, name):
        plm = architecture(name)
        assert plm.mlm_trunk is plm.trunk
        if plm.config.tie_word_embeddings and name != "albert" and name != "electra":
            assert plm.mlm.get_output_embeddings().weight is plm.trunk.get_input_embeddings().weight

    def test_every_parameter_gets_a_gradient(self, name):
        plm = architecture(name)
        batch = make_batch(plm, TEXTS)
        MaskTuning(0.5, ExactMasking(0.3))(plm, batch).loss.backward()
        idle = {n for n, p in plm.named_parameters() if p.grad is None}
        # pooler and next-sentence parts that the architecture's own classifier does not read
        assert not idle - {n for n in idle if "pooler" in n or "embeddings.position" in n}, idle

    @pytest.mark.parametrize("num_labels", [2, 3])
    def test_saved_and_read_back_whole(self, name, num_labels, tmp_path):
        """Two, the default, are left out of configuration files, but BART's default is three."""
        config, (specials, double) = ARCHITECTURES[name]
        config = type(config)(
            **config.to_dict() | {"num_labels": num_labels, "id2label": None, "label2id": None}
        )
        plm = make_plm(config, make_tokenizer(specials, double)).eval()
        batch, mask = masked_batch(plm)
        plm.save_pretrained(tmp_path)
        again = SharedPLM.from_pretrained(tmp_path).eval()
        assert again.shared and again.config.num_labels == num_labels
        torch.testing.assert_close(again.classify(batch), plm.classify(batch))
        torch.testing.assert_close(at_masks(again, batch, mask), at_masks(plm, batch, mask))

    @pytest.mark.parametrize("shared", [True, False])
    def test_added_tokens_are_resized_in_both_heads_and_read_back(self, name, shared, tmp_path):
        if name == "ibert":
            pytest.skip("transformers does not resize it")
        config, (specials, double) = ARCHITECTURES[name]
        plm = make_plm(copy.deepcopy(config), make_tokenizer(specials, double), shared).eval()
        batch, mask = masked_batch(plm)
        with torch.no_grad():
            classes, words = plm.classify(batch), at_masks(plm, batch, mask)
        n = len(plm.tokenizer)
        plm.tokenizer.add_tokens(["covidxyz", "zebras"])
        plm.block([7])
        assert plm.resize_token_embeddings(mean_resizing=False).weight.shape[0] == n + 2
        assert plm._blocked[7]
        with torch.no_grad():
            torch.testing.assert_close(plm.classify(batch), classes)
            torch.testing.assert_close(at_masks(plm, batch, mask)[:, :n], words)
        batch, mask = masked_batch(plm, ["the covidxyz zebras"])
        MaskTuning(0.5, ExactMasking(1.0))(plm, batch).loss.backward()
        plm.save_pretrained(tmp_path)
        again = SharedPLM.from_pretrained(tmp_path).eval()
        assert again.config.vocab_size == n + 2
        torch.testing.assert_close(again.classify(batch), plm.eval().classify(batch))
        torch.testing.assert_close(at_masks(again, batch, mask), at_masks(plm, batch, mask))


def test_structural_tokens_are_never_filled_in_but_unknown_may_be():
    for name in ("bert", "roberta", "bart"):
        plm = architecture(name).eval()
        tokenizer = plm.tokenizer
        structural = sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
        batch, mask = masked_batch(plm)
        bias = torch.zeros(plm.config.vocab_size)
        bias[structural] = 100.0  # the head insists on them
        bias[tokenizer.unk_token_id] = 50.0
        plm.masked_lm_logits = lambda batch, positions, ids, bias=bias: bias.expand(
            *positions.shape, -1
        )
        for fill in ("argmax", "sample"):
            perturbed = plm.fill_masks(batch, mask, fill).perturbed_ids
            assert (perturbed[mask] == tokenizer.unk_token_id).all()
            assert torch.equal(perturbed[~mask], batch["input_ids"][~mask])


def test_rows_that_pad_the_embedding_are_never_filled_in():
    plm = make_plm(tiny_bert_config(vocab_size=len(WORDS) + 5 + 7))
    batch, mask = masked_batch(plm)
    for seed in range(20):
        filled = plm.fill_masks(
            batch, mask, "sample", generator=torch.Generator().manual_seed(seed)
        )
        assert filled.perturbed_ids.max() < len(plm.tokenizer)


def test_fills(still_plm):
    batch, mask = masked_batch(still_plm.eval())
    logits = at_masks(still_plm, batch, mask)
    argmax = still_plm.fill_masks(batch, mask).perturbed_ids
    allowed = logits.masked_fill(still_plm._blocked, -torch.inf)
    assert torch.equal(argmax[mask], allowed.argmax(-1))
    seen = [set() for _ in range(int(mask.sum()))]
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        drawn = still_plm.fill_masks(batch, mask, "sample", generator=generator)
        for row, token in enumerate(drawn.perturbed_ids[mask].tolist()):
            seen[row].add(token)
    for tokens, scores in zip(seen, allowed, strict=True):
        assert len(tokens) > 5 and scores[list(tokens)].isfinite().all()


def test_inputs_by_name_are_answered_as_by_a_classifier(still_plm):
    batch = make_batch(still_plm, labels=[0, 1, 1, 0])
    output = still_plm(**batch, mask=torch.ones(4, 1))  # what the objective draws is left out
    theirs = still_plm.classifier(**batch)
    mean_cross_entropy = torch.nn.functional.cross_entropy(theirs.logits, batch["labels"])
    torch.testing.assert_close(output.loss, mean_cross_entropy)
    assert output["logits"].equal(theirs.logits)
    labels = batch.pop("labels")
    output = still_plm(**batch)
    assert output.loss is None
    output.logits[range(4), labels].sum().backward()


def test_pushed_to_the_hub_is_what_saving_writes(plm, tmp_path, monkeypatch):
    def create_commit(repo_id, operations, **options):
        pushed[repo_id] = {operation.path_in_repo for operation in operations}

    pushed, hub = {}, "transformers.utils.hub"
    api = SimpleNamespace(
        create_repo=lambda *name, **options: SimpleNamespace(repo_id="me/m"),
        create_commit=create_commit,
    )
    monkeypatch.setattr(f"{hub}.hf_api", lambda: api)
    monkeypatch.setattr(
        f"{hub}.create_and_tag_model_card", lambda *_, **options: ModelCard("a card")
    )
    plm.push_to_hub("m")
    plm.save_pretrained(tmp_path)
    assert pushed == {"me/m": {"README.md", *(path.name for path in tmp_path.iterdir())}}
    with pytest.raises(UserError, match=r"plm\.push_to_hub"):
        plm.save_pretrained(tmp_path, push_to_hub=True)


def test_saved_files_do_not_tell_how_the_last_text_was_cut(plm, tmp_path):
    plm.save_pretrained(tmp_path / "first")
    plm.tokenizer("the film is good", truncation=True, padding="max_length", max_length=4)
    plm.save_pretrained(tmp_path / "second")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_positions_of_a_mask():
    mask = torch.tensor([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]).bool()
    positions, weights = mlm_positions_of(mask)
    assert weights.tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert positions[weights.bool()].tolist() == [1, 3, 4, 2]
    assert [row.unique().numel() for row in positions] == [
        3,
        3,
        3,
    ]  # scattering to them needs no order
    assert mlm_positions_of(mask, round_up=True)[0].shape == (3, 4)
    assert mlm_positions_of(mask[1:2])[0].shape == (1, 1)


def test_a_masked_lm_gets_a_seeded_new_head(plm, tmp_path):
    plm.mlm.save_pretrained(tmp_path)
    plm.tokenizer.save_pretrained(tmp_path)
    heads = []
    for seed in (1, 1, 2):
        set_seed(seed)
        loaded = SharedPLM.from_pretrained(tmp_path, num_labels=3)
        assert loaded.config.num_labels == 3
        heads.append(loaded.classifier.classifier.weight)
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    batch, mask = masked_batch(plm.eval())
    torch.testing.assert_close(at_masks(loaded.eval(), batch, mask), at_masks(plm, batch, mask))


def test_checkpoints_in_a_subfolder(plm, tmp_path):
    plm.mlm.save_pretrained(tmp_path / "plain")
    plm.tokenizer.save_pretrained(tmp_path / "plain")
    plm.save_pretrained(tmp_path / "saved")
    apart = architecture("bert", shared=False)
    apart.save_pretrained(tmp_path / "apart")
    batch, mask = masked_batch(plm.eval())
    for name, source in (("plain", plm), ("saved", plm), ("apart", apart.eval())):
        loaded = SharedPLM.from_pretrained(tmp_path, subfolder=name).eval()
        assert loaded.shared == source.shared == (loaded.mlm_trunk is loaded.trunk)
        torch.testing.assert_close(at_masks(loaded, batch, mask), at_masks(source, batch, mask))
        if name != "plain":  # a plain masked LM gets a new classifier
            torch.testing.assert_close(loaded.classify(batch), source.classify(batch))


@pytest.mark.parametrize("shared", [True, False])
def test_a_revision_of_the_hub_is_read_from_its_cache(tmp_path, shared):
    """Both heads, also where the second one has a folder of its own."""
    commit, plm = "a" * 40, architecture("bert", shared)
    cached = tmp_path / "models--someone--saved"
    plm.save_pretrained(cached / "snapshots" / commit / "inner")
    (cached / "refs").mkdir()
    (cached / "refs" / "v1.0").write_text(commit)
    where = {"revision": "v1.0", "subfolder": "inner", "cache_dir": tmp_path}
    loaded = SharedPLM.from_pretrained("someone/saved", local_files_only=True, **where)
    assert loaded.shared == shared
    batch, mask = masked_batch(plm.eval())
    torch.testing.assert_close(at_masks(loaded.eval(), batch, mask), at_masks(plm, batch, mask))


def test_half_precision_checkpoints_are_trained_in_single(plm, tmp_path):
    plm.mlm.half().save_pretrained(tmp_path)
    plm.tokenizer.save_pretrained(tmp_path)
    assert {p.dtype for p in SharedPLM.from_pretrained(tmp_path, num_labels=2).parameters()} == {
        torch.float32
    }


def test_saving_replaces_what_lay_there_in_the_other_form(tmp_path):
    for shared in (True, False, True):
        architecture("bert", shared=shared).save_pretrained(tmp_path)
        for wanted in (None, shared):
            assert SharedPLM.from_pretrained(tmp_path, shared=wanted).shared == shared
        saved = f"saved with {'one trunk' if shared else 'two trunks'}, but shared is {not shared}"
        with pytest.raises(UserError, match=saved):
            SharedPLM.from_pretrained(tmp_path, shared=not shared)


@pytest.mark.parametrize("shared", [True, False])
def test_saved_files_do_not_tell_where_the_model_came_from(tmp_path, shared):
    """The files identify a run, so the same model must make the same ones."""
    architecture("bert", shared=shared).save_pretrained(tmp_path / "first")
    SharedPLM.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (tmp_path / "first", tmp_path / "second")
    )
    assert first == second
    assert not any(str(tmp_path).encode() in content for content in second.values())


class TestBadCheckpoints:
    @pytest.mark.parametrize(("name", "what"), [("pad_token", "padding"), ("mask_token", "mask")])
    def test_a_token_that_is_needed(self, plm, tmp_path, name, what):
        plm.mlm.save_pretrained(tmp_path)
        setattr(plm.tokenizer, name, None)
        plm.tokenizer.save_pretrained(tmp_path)
        with pytest.raises(UserError, match=f"the {what} token None"):
            SharedPLM.from_pretrained(tmp_path)

    def test_heads_that_cannot_share(self):
        heads = {"num_self_attention_heads": 2, "num_cross_attention_heads": 2}
        form = {"num_latents": 4, "d_latents": 16, "num_blocks": 1, "num_self_attends_per_block": 1}
        size = {"block_sizes": [1, 1], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32}
        for config in (
            PerceiverConfig(vocab_size=SIZE["vocab_size"], d_model=16, **form, **heads),
            FunnelConfig(vocab_size=SIZE["vocab_size"], **size),
        ):
            with pytest.raises(
                UserError, match=r"and (Perceiver|Funnel)ForMaskedLM .* cannot share a trunk"
            ):
                make_plm(config)

    def test_tokenizer_of_another_size_or_none(self, plm, tmp_path):
        plm.mlm.save_pretrained(
            tmp_path
        )  # transformers then makes up a tokenizer of special tokens alone
        for words in ((), WORDS[:1], [*WORDS, "zebra"]):
            if words:
                make_tokenizer(words=words).save_pretrained(tmp_path)
            with pytest.raises(
                UserError, match=rf"has {len(words) + 5} tokens, but .* for 28. Put the model's own"
            ):
                SharedPLM.from_pretrained(tmp_path, num_labels=2)

    def test_missing_or_with_other_labels(self, plm, tmp_path):
        with pytest.raises(UserError, match=r"cannot load .*nothing': .* Expected a folder with"):
            SharedPLM.from_pretrained(tmp_path / "nothing", num_labels=2)
        plm.save_pretrained(tmp_path)
        with pytest.raises(UserError, match=r"classifier\.bias, or has others than for 3 labels"):
            SharedPLM.from_pretrained(tmp_path, num_labels=3)
        with pytest.raises(UserError, match="num_labels is 3, and id2label names 2 labels"):
            SharedPLM.from_pretrained(tmp_path, num_labels=3, id2label={0: "a", 1: "b"})

    @pytest.mark.parametrize("saved_by_mtlib", [False, True])
    def test_torn(self, plm, tmp_path, saved_by_mtlib):
        (plm if saved_by_mtlib else plm.mlm).save_pretrained(tmp_path)
        plm.tokenizer.save_pretrained(tmp_path)
        weights = load_file(tmp_path / "model.safetensors")
        weights.pop("bert.encoder.layer.1.output.dense.weight")
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(
            UserError, match=r"lacks 1 weights of .*bert.encoder.layer.1.output.dense.weight"
        ):
            SharedPLM.from_pretrained(tmp_path, num_labels=2)

    @pytest.mark.parametrize("saved_by_mtlib", [False, True])
    def test_a_setting_that_the_model_does_not_have(self, plm, tmp_path, saved_by_mtlib):
        (plm if saved_by_mtlib else plm.mlm).save_pretrained(tmp_path)
        plm.tokenizer.save_pretrained(tmp_path)
        assert (
            SharedPLM.from_pretrained(tmp_path, hidden_dropout_prob=0.3).config.hidden_dropout_prob
            == 0.3
        )
        for wrong in ({"hiden_dropout_prob": 0.0}, {"dtype": torch.bfloat16}):
            with pytest.raises(
                UserError, match=f"BertConfig. has no {next(iter(wrong))}; .* always loaded with"
            ):
                SharedPLM.from_pretrained(tmp_path, **wrong)

    @pytest.mark.parametrize("part", ["classifier", "trunk"])
    def test_no_masked_lm_head(self, plm, tmp_path, part):
        getattr(plm, part).save_pretrained(tmp_path)
        plm.tokenizer.save_pretrained(tmp_path)
        with pytest.raises(
            UserError,
            match=r"lacks 5 weights of BertForMaskedLM, for example cls\.predictions\.bias",
        ):
            SharedPLM.from_pretrained(tmp_path, num_labels=2)


@pytest.mark.parametrize("problem", [None, "regression", "multi_label_classification"])
def test_a_saved_model_answers_with_a_softmax_whatever_its_base_was_for(problem, tmp_path):
    plm = make_plm(tiny_bert_config(initializer_range=0.5, problem_type=problem))
    plm.save_pretrained(tmp_path)
    batch = plm.tokenizer("good film", return_tensors="pt")
    with torch.no_grad():
        expected = plm.eval().classify(batch).softmax(-1)[0].tolist()
    scores = pipeline("text-classification", str(tmp_path), top_k=None, device="cpu")(
        ["good film"]
    )[0]
    by_label = {score["label"]: score["score"] for score in scores}
    assert [by_label[plm.config.id2label[i]] for i in range(2)] == pytest.approx(expected, abs=1e-4)
