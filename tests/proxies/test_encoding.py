"""Where the response begins in proxy tokens, and the texts that make it hard to say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.proxies.encoding import Encoded, encode
from backend.traces import VIEWS, Trace, view_text
from tests.tiny_models import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
ENCODER = tiny_tokenizer(encoder=True)


def one(trace: Trace, view="ur", tokenizer=TOKENIZER, **options) -> Encoded:
    return encode(tokenizer, [trace], view, **options)[0]


def response_text(encoded: Encoded) -> str:
    return TOKENIZER.decode(encoded.ids[encoded.start : encoded.stop])


def test_response_span_is_the_response():
    encoded = one(Trace("How do I restart the queue?", "First stop the service."))
    assert response_text(encoded) == "First stop the service."
    assert TOKENIZER.decode(encoded.ids) == "Prompt:\nHow do I restart the queue?\n\nResponse:\nFirst stop the service."


def test_view_r_shows_the_response_alone():
    encoded = one(Trace("unseen prompt", "First stop"), "r")
    assert encoded.start == 0
    assert TOKENIZER.decode(encoded.ids) == "First stop"


def test_straddling_token_belongs_to_the_response_and_prefix_count_misses_it():
    trace = Trace("Say it", "\n\nTwo")
    offsets = one(trace)
    assert response_text(offsets) == "\n\n\nTwo", "the first token holds the last character of the prefix"
    counted = one(trace, span="prefix-count")
    assert counted.ids == offsets.ids
    assert counted.start == offsets.start + 1


def test_both_ways_to_find_the_span_agree_without_a_straddling_token():
    trace = Trace("Describe the backup", "Certainly! 1234")
    assert one(trace) == one(trace, span="prefix-count")


def test_empty_response_is_represented_by_the_last_token():
    encoded = one(Trace("Describe the backup", ""))
    assert encoded.start == len(encoded.ids) - 1
    assert encoded.response_tokens == 1
    alone = one(Trace("Describe the backup", ""), "r")
    assert TOKENIZER.decode(alone.ids) == " "
    assert alone.response_tokens == 1


@pytest.mark.parametrize("span", ["offsets", "prefix-count"])
def test_prompt_over_the_limit_leaves_the_last_kept_token(span):
    encoded = one(Trace("restart the queue " * 50, "never seen"), max_tokens=40, span=span)
    assert len(encoded.ids) == 40
    assert (encoded.start, encoded.response_tokens) == (39, 1)


def test_response_over_the_limit_is_cut_on_the_right():
    trace = Trace("Say", "the queue and " * 50)
    whole, cut = one(trace), one(trace, max_tokens=40)
    assert cut.ids == whole.ids[:40]
    assert cut.start == whole.start


def test_one_token_response():
    encoded = one(Trace("Say", "x"))
    assert encoded.response_tokens == 1
    assert response_text(encoded) == "x"


def test_special_token_text_in_a_response_stays_one_token_of_the_response():
    encoded = one(Trace("Say", "a<|im_start|>b"))
    assert response_text(encoded) == "a<|im_start|>b"
    assert TOKENIZER.convert_tokens_to_ids("<|im_start|>") in encoded.ids[encoded.start :]
    first = one(Trace("Say", "<|im_start|>"))
    assert first.response_tokens == 1


def test_no_special_token_is_added_for_a_causal_proxy():
    assert one(Trace("", "abc"), "r", tokenizer=ENCODER).ids == TOKENIZER("abc")["input_ids"]


def test_equal_prompts_carry_equal_numbers():
    traces = [Trace("a", "1"), Trace("b", "2"), Trace("a", "3")]
    assert [e.prompt for e in encode(TOKENIZER, traces, "ur")] == [0, 1, 0]


@pytest.mark.parametrize("response", ["\ud800", "text \udfff more", "\udc00\ud800"])
def test_lone_surrogates_become_replacement_characters(response):
    encoded = one(Trace("pro\ud800mpt", response))
    clean = "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in response)
    assert encoded == one(Trace("pro\ufffdmpt", clean))
    assert response_text(encoded) == clean


def test_surrogate_pairs_become_their_character():
    assert one(Trace("", "\ud83d\ude80"), "r") == one(Trace("", "🚀"), "r")


def test_multibyte_characters_do_not_move_the_span():
    encoded = one(Trace("été 北京 🚀🚀", "🚀 naïve"))
    assert response_text(encoded) == "🚀 naïve"


def test_encoder_keeps_its_end_mark_out_of_the_response():
    encoded = one(Trace("Say", "the queue"), tokenizer=ENCODER, special_tokens=True)
    cls, sep = ENCODER.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    assert (encoded.ids[0], encoded.ids[-1], encoded.tail) == (cls, sep, 1)
    assert response_text(encoded) == "the queue"


def test_encoder_span_by_prefix_count_agrees():
    trace = Trace("Say", "the queue")
    options = {"tokenizer": ENCODER, "special_tokens": True}
    assert one(trace, **options) == one(trace, span="prefix-count", **options)


def test_encoder_cut_keeps_the_end_mark():
    encoded = one(Trace("Say", "the queue and the backup"), tokenizer=ENCODER, special_tokens=True)
    cut = encoded.cut(2)
    assert cut.response_tokens == 2
    assert cut.ids == [*encoded.ids[: encoded.start + 2], encoded.ids[-1]]
    assert encoded.cut(None) is encoded
    assert encoded.cut(1000) is encoded


def test_encoder_limit_counts_the_special_tokens():
    encoded = one(Trace("restart " * 50, "unseen"), tokenizer=ENCODER, special_tokens=True, max_tokens=20)
    assert (len(encoded.ids), encoded.tail, encoded.response_tokens) == (20, 1, 1)
    assert encoded.start == 18


def test_encoder_with_nothing_to_read():
    bare = one(Trace("", ""), "r", tokenizer=_Nothing(), special_tokens=True)
    assert (bare.ids, bare.start, bare.response_tokens, bare.tail) == ([2, 3], 0, 1, 1)
    nothing = one(Trace("", ""), "r", tokenizer=_Nothing(frame=False))
    assert (nothing.ids, nothing.start, nothing.response_tokens) == ([7], 0, 1)


class _Nothing:
    """A tokenizer whose normaliser drops every character."""

    pad_token_id, eos_token_id, unk_token_id = None, 7, 8

    def __init__(self, frame: bool = True) -> None:
        self.ids = [2, 3] if frame else []

    def __call__(self, texts, **_options):
        n = len(self.ids)
        return {
            "input_ids": [self.ids for _ in texts],
            "offset_mapping": [[(0, 0)] * n for _ in texts],
            "special_tokens_mask": [[1] * n for _ in texts],
        }


any_text = st.text(st.characters(exclude_categories=()), max_size=60)


@settings(deadline=None, max_examples=120)
@given(any_text, any_text, st.sampled_from(VIEWS), st.integers(4, 64), st.sampled_from(["offsets", "prefix-count"]))
def test_any_text_gives_a_span_inside_the_window(prompt, response, view, limit, span):
    encoded = one(Trace(prompt, response), view, max_tokens=limit, span=span)
    assert 1 <= len(encoded.ids) <= limit
    assert 0 <= encoded.start < encoded.stop == len(encoded.ids)


@settings(deadline=None, max_examples=80)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.text(min_size=1, max_size=40))
def test_span_covers_the_whole_response_and_at_most_one_token_of_the_prefix(prompt, response):
    encoded = one(Trace(prompt, response))
    prefix, text = view_text(Trace(prompt, response), "ur")
    offsets = TOKENIZER(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert all(end <= len(prefix) for _, end in offsets[: encoded.start])
    assert offsets[encoded.start][1] > len(prefix)
