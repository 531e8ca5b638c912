"""Addresses, numbers, signs and other forms: what they are, and where they stand."""

import pytest

from mtlib.errors import UserError
from mtlib.rows.folding import Finder
from mtlib.rows.forms import form_of, kind_of


@pytest.mark.parametrize(
    ("text", "kind", "names"),
    [
        (
            "https://www.shop.example/t/9?a=b",
            "address",
            ("shop.example/t/9?a=b", "shop.example", "<address>"),
        ),
        ("http://shop.example/", "address", ("shop.example", "<address>")),
        ("anna@mail.example", "address", ("anna@mail.example", "<address>")),
        ("shop.example/sale", "address", ("shop.example/sale", "shop.example", "<address>")),
        ("@anna", "address", ("@anna", "<handle>")),
        ("#sale", "address", ("#sale", "<hashtag>")),
        ("$1,000.50", "number", ("$1,000.50", "<price>")),
        ("5 €", "number", ("5 €", "<price>")),
        ("1,000", "number", ("1,000", "<number>")),
        ("50%", "number", ("50%", "<number>")),
        (":-(", "emoji", (":-(", "<emoji>")),
        ("🎉", "emoji", ("🎉", "<emoji>")),
        ("→", "emoji", ("→",)),
        ("?!", "punctuation", ("?!",)),
        ("!", "punctuation", ("!",)),
    ],
)
def test_forms_and_their_names(text, kind, names):
    assert form_of(text) == (kind, names) and {*map(kind_of, names)} == {kind}


@pytest.mark.parametrize("text", ["good", "3rd", "50-year-old", "a.m", "new york", ",", ""])
def test_what_is_no_form(text):
    assert form_of(text) is None


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("shop.example", "see (https://WWW.Shop.example/t/9).", ["https://WWW.Shop.example/t/9"]),
        ("shop.example", "my.shop.example and shop.example.org", []),
        (["shop.example", "t"], "http://shop.example/t and t", ["http://shop.example/t", "t"]),
        ("click", "http://shop.example/click", ["click"]),  # a word is hidden there, too
        ("<price>", "from $5 to 10 € or 10", ["$5", "10 €"]),
        ("<number>", "5 of 1,000, the 3rd for $7", ["5", "1,000"]),
        ("$5", "$5, $50 and $5.99", ["$5"]),
        ("5", "$5 and 5.99", ["5", "5"]),  # plain numbers are words
        ("!!", "well!! no!!! so!", ["!!"]),
        ("@anna", "@Anna @annabel a@anna", ["@Anna"]),
        (["<emoji>", ":)"], "so :) 🎉", [":)", "🎉"]),
    ],
)
def test_given_forms_are_found_as_a_whole(words, text, found):
    places = Finder(words).places(text)
    assert [text[place.start : place.end] for place in places] == found


@pytest.mark.parametrize("name", ["<capitals>", "<at most 5 words>", "<at least 1,000 words>"])
def test_what_is_no_part_of_a_text_cannot_be_hidden(name):
    with pytest.raises(UserError, match=f"'{name}', which stands for no part of a text"):
        Finder(["good", name])
