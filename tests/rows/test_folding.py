"""When words are the same, and where they stand."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtlib.errors import UserError
from mtlib.rows.folding import WORD, Finder, _positions, fold, spelling, words_of

TRICKY = "aéßẞİıIσςΣ\u0301\u0307\u0345\u00ad\u200b\u200c\u200dｆＧﾞｶﬁ’-ŉकमी்שׁ한ᄒ\u1161\u11a8ดี字 .'"
any_text = st.text(
    st.one_of(st.sampled_from(TRICKY), st.characters(exclude_categories=["Cs"])), max_size=20
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("café", "CAFE\u0301"),
        ("ho\u00adrr\u200bor", "horror"),
        ("İstanbul", "istanbul"),
        ("i\u0307stanbul", "ISTANBUL"),
        ("ISPARTA", "ısparta"),
        ("STRASSE", "straße"),
        ("STRAẞE", "Straße"),
        ("ΛΟΓΟΣ", "λόγος".replace("ό", "ο")),
        ("ＧＯＯＤ", "good"),
        ("ｶﾞ", "カ\u3099"),
        ("don’t", "DON'T"),
        ("well\u2011made", "well-made"),
        ("می\u200cخواهم", "میخواهم"),
        ("\u1112\u1161\u11ab", "한"),
    ],
)
def test_one_word_in_two_spellings(first, second):
    assert fold(first) == fold(second) and words_of(first) == words_of(second) == {fold(first)}


def test_other_words_stay_others():
    for first, second in (("cafe", "café"), ("कम", "कमी"), ("pêche", "péché")):
        assert fold(first) != fold(second)
    assert fold("May", match_case=True) == "May" and fold("Cafe\u0301", match_case=True) == "Café"


@settings(deadline=None)
@given(any_text)
@example("ŉ")
@example("I\u0307\u0307")
def test_folding_is_done_once_and_does_not_depend_on_the_form(text):
    folded = fold(text)
    assert fold(folded) == folded
    for form in ("NFC", "NFD"):
        assert fold(unicodedata.normalize(form, text)) == folded


@settings(deadline=None)
@given(any_text)
def test_every_folded_character_comes_from_somewhere(text):
    folded = fold(text)
    starts, ends = _positions(text)
    assert len(starts) == len(ends) == len(folded)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        assert start < end and folded[i] in fold(text[start:end])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("अच्छी है", {"अच्छी", "है"}),
        ("தமிழ் படம்", {"தமிழ்", "படம்"}),
        ("don’t well-made O'Neill's", {"don't", "well-made", "o'neill's"}),
        ("rock'n'roll -- 'quoted' 4x4", {"rock'n'roll", "quoted", "4x4"}),
        ("צה״ל", {"צה״ל"}),
        ("很好, well-made", {"很", "好", "well-made"}),
        ("ดีมาก", {"ดี", "ม", "า", "ก"}),
        ("half\u200bway so\u00adft", {"halfway", "soft"}),
        ("snake_case", {"snake", "case"}),
    ],
)
def test_words_by_hand(text, words):
    assert words_of(text) == words_of(unicodedata.normalize("NFD", text)) == words


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("café", "the cafe\u0301s and a Cafe\u0301!", ["Cafe\u0301"]),
        ("cafe", "the cafe\u0301 is", []),
        ("horror", "a ho\u00adr\u200bror film", ["ho\u00adr\u200bror"]),
        ("straße", "Strasse, STRASSE, Straßen", ["Strasse", "STRASSE"]),
        ("strasse", "die Straße", ["Straße"]),
        ("New  york", "in NEW\u00a0York", ["NEW\u00a0York"]),
        ("कम", "यह कमी है, कम", ["कम"]),
        ("ש", "שָׁלוֹם", []),
        ("电影", "这部电影", ["电影"]),
        ("don't", "don’t", ["don’t"]),
        ("good", "ＧＯＯＤ", ["ＧＯＯＤ"]),
        ("می‌خواهم", "من میخواهم", ["میخواهم"]),
        (":)", "well :)", [":)"]),
        (["bad", "not bad"], "not bad", ["not bad"]),
        ("https://shop.example/a", "see www.shop.example/a/ now", ["www.shop.example/a/"]),
        ("www.shop.example", "at https://shop.example/b", ["https://shop.example/b"]),
        ("https://bit.ly", "http://bit.ly/xy, or bit.ly", ["http://bit.ly/xy", "bit.ly"]),
        (
            "https://shop.example:8080",
            "https://shop.example:8080/x shop.example:8080",
            ["shop.example:8080", "shop.example:8080"],
        ),
        # in scripts without spaces, beside others
        ("买iphone手", "我买 iPhone 手机", ["买 iPhone 手"]),
        ("手 机", "我的手机", ["手机"]),
        ("node.js", "Node.js, https://node.js/x", ["Node.js", "https://node.js/x"]),
    ],
)
def test_where_words_stand(words, text, found):
    places = Finder(words).places(text)
    assert [text[place.start : place.end] for place in places] == found
    assert {place.folded for place in places} == Finder(words).found(text)


@settings(deadline=None)
@given(st.text("ab' -\n_9Ä字", max_size=20))
def test_what_is_counted_is_found(text):
    """Each by itself, since those that are given together may overlap."""
    assert all(Finder(word).found(text) == {word} for word in words_of(text))


def test_how_a_word_is_shown():
    assert [
        spelling(word) for word in ("Straße", "ΛΟΓΟΣ", "İzmir", "Kadın", "so\u00adft", "New  York")
    ] == ["straße", "λογος", "izmir", "kadın", "soft", "new york"]


def test_words_of_the_text_as_it_stands_keep_their_marks():
    assert WORD.findall("le cafe\u0301 अच्छी don’t") == ["le", "cafe\u0301", "अच्छी", "don’t"]


@pytest.mark.parametrize(
    "words", [["film", None], ["film", ""], " ", ["\u200b"], [float("nan")], 5]
)
def test_what_is_no_word_is_refused(words):
    with pytest.raises(UserError, match=r"words (has|is) .*expected words and phrases"):
        Finder(words)
