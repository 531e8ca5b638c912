"""Dependency trees: how they are read, parsed and trained on."""

import math
import re

import pytest
import torch
from tokenizers import normalizers

from mtlib.encoding import Collator
from mtlib.errors import UserError
from mtlib.methods.ipt import (
    NO_WORD,
    RELATIONS,
    DependencyParsing,
    Treebank,
    parsing_losses,
    read_conllu,
)
from mtlib.methods.states import classify_with_states
from tests.conftest import (
    NO_DROPOUT,
    TREES,
    architecture,
    config,
    conllu,
    make_plm,
    tiny_bert_config,
)


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made-up")
    (folder / "en-ud-train.conllu").write_text(conllu())
    return folder


def batch_of(plm, folder):
    prepared = Treebank(folder)(plm, None)
    return Collator(plm.tokenizer, DependencyParsing().columns)(list(prepared.examples)), prepared


def built(plm) -> DependencyParsing:
    objective = DependencyParsing()
    objective.build(plm)
    return objective


class TestReading:
    def test_words_written_together_and_words_not_there_are_skipped(self, tmp_path):
        text = conllu().replace(
            "3\twas\t",
            "3-4\twasn't\t_\t_\t_\t_\t_\t_\t_\t_\n3.1\tso\t_\t_\t_\t_\t_\t_\t_\t_\n3\twas\t",
            1,
        )
        (tmp_path / "a.conllu").write_text(text)
        assert [
            (" ".join(words), heads) for words, heads, _ in read_conllu(tmp_path / "a.conllu")
        ] == [(text, tuple(heads)) for text, (heads, _) in TREES.items()]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("\t5\tnsubj", "\t9\tnsubj"),  # a head that is no word
            ("\t5\tnsubj", "\t0\tnsubj"),  # two roots
            ("\t0\troot", "\t1\troot"),
            ("\tnsubj\t", "\tsubject\t"),
            ("2\tfilm\t", "2 film "),
        ],
    )
    def test_what_is_no_treebank_is_told_before_the_training(self, tmp_path, plm, old, new):
        (tmp_path / "train.conllu").write_text(conllu())
        (tmp_path / "dev.conllu").write_text(conllu().replace(old, new, 1))
        with pytest.raises(
            UserError, match=r"dev\.conllu is no treebank in CoNLL-U: (.|\n)*the film was slowly"
        ):
            Treebank(tmp_path).check(plm)

    def test_ipt_needs_a_treebank_and_its_record_says_which(
        self, treebank, tmp_path, plm, testbed, model
    ):
        with pytest.raises(UserError, match=r"has no file \*train\*.conllu"):
            Treebank(tmp_path).check(plm)
        with pytest.raises(UserError, match="treebank is missing; give it"):
            config(model, method="ipt")
        public = config(model, method="ipt", treebank=str(treebank)).public()
        assert re.fullmatch(r"made-up\d* \([0-9a-f]{12}\)", public["treebank"])

    @pytest.mark.parametrize("name", ["bert", "roberta"])
    def test_every_piece_belongs_to_its_word(self, treebank, name):
        plm = architecture(name)
        Treebank(treebank).check(plm)
        batch, prepared = batch_of(plm, treebank)
        first = plm.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
        assert first[4:7] == ["slow", "##ly", "boring"]
        assert batch["words"][0].tolist() == [0, 1, 2, 3, 4, 4, 5, 0]
        assert batch["heads"][2].tolist() == [2, 0] + [NO_WORD] * 4
        assert RELATIONS[batch["relations"][1, 5]] == "nmod"
        assert prepared.counts == {"sentences_left_out": 0}


def test_attachment_is_the_share_of_right_heads_sentence_by_sentence(tmp_path, still_plm):
    """Of sentences that stand in one batch here, and one that is too long."""
    long = " ".join(["film"] * 70)
    for part in ("train", "dev"):
        (tmp_path / f"{part}.conllu").write_text(
            conllu(TREES | {long: ([0] + [1] * 69, ["root"] + ["dep"] * 69)})
        )
    batch, prepared = batch_of(still_plm, tmp_path)
    assert prepared.counts == {"sentences_left_out": 1}
    objective, right = built(still_plm), 0
    for row, length in enumerate((8, 9, 5)):  # tokens
        alone = {name: value[row : row + 1, :length] for name, value in batch.items()}
        n_words = int((alone["heads"] != NO_WORD).sum())
        alone |= {name: alone[name][:, :n_words] for name in ("heads", "relations")}
        right += int(
            (objective.parse(still_plm, alone).arc_scores.argmax(-1) == alone["heads"]).sum()
        )
    measured = Treebank(tmp_path).attachment(still_plm.train(), objective)
    assert measured == {"dev_uas": round(right / 13, 4), "dev_sentences_left_out": 1}
    assert 0 < right < 13 and still_plm.training


class TestObjective:
    def test_the_loss_by_hand(self):
        """Two words, of which the second sentence has one."""
        arcs = torch.tensor(
            [[[2.0, 1.0, 1.0], [1.0, 1.0, 2.0]], [[1.0, 3.0, 4.0], [9.0, 9.0, 9.0]]]
        ).log()
        relations = torch.tensor([[[1.0, 1.0], [3.0, 1.0]], [[1.0, 4.0], [5.0, 5.0]]]).log()
        heads, gold = torch.tensor([[0, 1], [0, NO_WORD]]), torch.tensor([[0, 1], [1, NO_WORD]])
        losses = parsing_losses(arcs, relations, heads, gold)
        assert losses["arc_loss"].item() == pytest.approx(
            (math.log(2) + math.log(4) + math.log(8)) / 3
        )
        assert losses["relation_loss"].item() == pytest.approx(
            (math.log(2) + math.log(4) + math.log(5 / 4)) / 3
        )

    @pytest.mark.parametrize("name", ["bert", "roberta", "bart"])
    def test_scores_are_biaffine_and_padding_is_nobodys_head(self, treebank, name):
        plm = architecture(name).eval()
        objective, (batch, _) = built(plm), batch_of(plm, treebank)
        scores = objective.parse(plm, batch)
        assert scores.arc_scores.shape == (3, 6, 7)
        assert scores.relation_scores.shape == (3, 6, len(RELATIONS))
        assert (scores.arc_scores[2, :, 3:] == -torch.inf).all()
        assert scores.arc_scores[2, :, :3].isfinite().all()
        states, one = classify_with_states(plm, batch), torch.ones(1)
        slowly, was = torch.cat([states.tokens[0, 4:6].mean(0), one]), states.tokens[0, 3]
        torch.testing.assert_close(scores.arc_scores[0, 3, 3], slowly @ objective.arc @ was)
        torch.testing.assert_close(
            scores.arc_scores[0, 3, 0], slowly @ objective.arc @ states.text[0]
        )
        boring = torch.cat([states.tokens[0, 6], one])  # the gold head
        expected = torch.einsum("d,rde,e->r", slowly, objective.relation, boring)
        torch.testing.assert_close(scores.relation_scores[0, 3], expected)

    def test_it_recovers_the_trees_it_was_overfitted_to(self, treebank):
        plm = make_plm(tiny_bert_config(**NO_DROPOUT))
        objective, (batch, _) = built(plm), batch_of(plm, treebank)
        optimizer = torch.optim.Adam([*plm.trunk.parameters(), *objective.parameters()], lr=1e-2)
        for _ in range(60):
            optimizer.zero_grad()
            output = objective(plm, batch)
            output.loss.backward()
            optimizer.step()
        assert output.components["share_right_heads"] == 1
        scores, real = objective.parse(plm, batch), batch["heads"] != NO_WORD
        assert torch.equal(scores.arc_scores.argmax(-1)[real], batch["heads"][real])
        assert torch.equal(scores.relation_scores.argmax(-1)[real], batch["relations"][real])
        assert all(p.grad is None for p in plm.classifier.classifier.parameters())


def test_a_sentence_with_a_word_without_a_piece_is_left_out(tmp_path):
    """BERT's normalizer deletes a zero-width space."""
    plm = make_plm()
    plm.tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    trees = TREES | {"funny \u200b": ([0, 1], ["root", "dep"])}
    (tmp_path / "train.conllu").write_text(conllu(trees))
    assert batch_of(plm, tmp_path)[1].counts == {"sentences_left_out": 1}
