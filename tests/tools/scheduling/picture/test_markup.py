from __future__ import annotations

from dra_sdk.tools.scheduling.picture.markup import Html, join, tag, text


def test_strings_are_escaped_and_elements_are_not():
    assert tag("b", "<i>", tag("i", "a & b")) == "<b>&lt;i&gt;<i>a &amp; b</i></b>"
    assert isinstance(tag("b"), Html)
    assert join("<", None, Html("<br>")) == "&lt;<br>"


def test_attributes():
    made = tag("p", title='"><script>', class_="a", data_claim=0, hidden=True, open=False, name=None)
    assert made == '<p title="&quot;&gt;&lt;script&gt;" class="a" data-claim="0" hidden></p>'


def test_void_elements():
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_what_no_browser_shows():
    assert (
        text("a\x00\x1b[31m\u202eb\nc")
        == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}b\nc"
    )
