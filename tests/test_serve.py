"""The server as its clients see it: the official openai package, and plain HTTP."""

import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import tiny_model
from live_server import MODEL, Live, live

from intattention import LLM

PROMPT = "the one in the"
USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def served(tiny_path: Path) -> Iterator[Live]:
    with live(LLM.load(tiny_path, threads=2)) as server:
        yield server


@pytest.fixture
def client(served: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client


# the openai package ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 1.3, "seed": 5, "top_p": 0.9},
        {"temperature": 1.3, "seed": 6, "extra_body": {"top_k": 9, "min_p": 0.01}},
        {"temperature": 0, "extra_body": {"repetition_penalty": 1.3}},
    ],
)
def test_completions_are_those_of_the_llm(
    client: openai.OpenAI, tiny: LLM, options: dict[str, Any]
) -> None:
    direct = {k: v for k, v in options.items() if k != "extra_body"}
    direct |= options.get("extra_body", {})
    expected = tiny.generate(PROMPT, max_new_tokens=40, **direct)
    whole = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=40, **options)
    assert whole.choices[0].text == expected
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == tiny.last_stats.prompt_tokens
    assert whole.usage.completion_tokens == tiny.last_stats.generated_tokens
    stream = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=40, stream=True, **options
    )
    pieces = [choice for chunk in stream for choice in chunk.choices]
    assert "".join(choice.text for choice in pieces) == expected
    reason = {"eos": "stop", "length": "length"}[tiny.last_stats.finish_reason]
    assert pieces[-1].finish_reason == whole.choices[0].finish_reason == reason
    assert all(choice.finish_reason is None for choice in pieces[:-1])


def test_chats_are_those_of_the_llm(client: openai.OpenAI, tiny: LLM) -> None:
    messages = [{"role": "system", "content": "S"}, *USER]
    expected = tiny.chat(messages, max_new_tokens=30)
    whole = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=30, temperature=0
    )
    assert whole.choices[0].message.content == expected
    assert whole.choices[0].message.role == "assistant"
    parts = [{"role": "system", "content": [{"type": "text", "text": "S"}]}, *USER]
    stream = client.chat.completions.create(
        model=MODEL,
        messages=parts,
        max_completion_tokens=30,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [c.delta.content or "" for chunk in chunks for c in chunk.choices]
    assert "".join(texts) == expected
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == tiny.last_stats.generated_tokens


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="no model 'other' here, only 'tiny'"):
        client.models.retrieve("other")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="x")


def test_choices_have_their_own_seeds(client: openai.OpenAI, tiny: LLM) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=[PROMPT, "a"], n=3, seed=7, max_tokens=9, temperature=1.5
    )
    expected = [
        tiny.generate(prompt, seed=7 + i, max_new_tokens=9, temperature=1.5)
        for prompt in (PROMPT, "a")
        for i in range(3)
    ]
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text for choice in answer.choices] == expected
    assert len(set(expected)) > 3
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(len(tiny.tokenizer.encode(p)) for p in (PROMPT, "a"))


def test_stop_strings(client: openai.OpenAI, tiny: LLM) -> None:
    text = tiny.generate(PROMPT, max_new_tokens=40)
    stop = text[8:11]
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=40, temperature=0, stop=["~~~", stop]
    )
    assert answer.choices[0].text == text[: text.find(stop)]
    assert answer.choices[0].finish_reason == "stop"


def test_log_probabilities_are_those_of_the_logits(client: openai.OpenAI, tiny: LLM) -> None:
    """With echo of the prompt, as lm_eval asks; against a softmax of the core's own logits."""
    ids = tiny.tokenizer.encode("the one in the house that")
    answer = client.completions.create(
        model=MODEL, prompt=ids, max_tokens=1, temperature=0, logprobs=3, echo=True
    )
    choice = answer.choices[0]
    logits = tiny.decoder.forward(
        np.array(ids, np.int32), tiny.decoder.new_cache(tiny.context), "all"
    ).astype(np.float64)
    chosen = int(logits[-1].argmax())
    exact = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert choice.logprobs is not None
    given = choice.logprobs.token_logprobs
    assert given is not None
    assert given[0] is None
    rows = zip(range(len(ids)), [*ids[1:], chosen], strict=True)
    np.testing.assert_allclose(given[1:], [exact[row, token] for row, token in rows], atol=1e-5)
    texts = [tiny.tokenizer.token_bytes(i, False).decode(errors="replace") for i in [*ids, chosen]]
    assert choice.logprobs.tokens == texts
    assert choice.logprobs.text_offset == [0, *np.cumsum([len(t) for t in texts[:-1]]).tolist()]
    for row, top in enumerate(choice.logprobs.top_logprobs[1:]):
        assert max(top.values()) == pytest.approx(exact[row].max(), abs=1e-5)
        assert 2 <= len(top) <= 4  # bytes that are no character look alike
    shown = [i for i in [*ids, chosen] if i not in tiny.tokenizer.end_ids]
    assert choice.text == tiny.tokenizer.decode(shown, skip_special=False)


def test_echo_without_tokens(client: openai.OpenAI, tiny: LLM) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=0, logprobs=0, echo=True
    )
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == (PROMPT, "length")
    assert choice.logprobs is not None
    assert len(choice.logprobs.token_logprobs or []) == len(tiny.tokenizer.encode(PROMPT))
    plain = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=0, echo=True)
    assert (plain.choices[0].text, plain.choices[0].logprobs) == (PROMPT, None)
    nothing = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=0)
    assert nothing.choices[0].text == ""


def test_chat_log_probabilities(client: openai.OpenAI, tiny: LLM) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=USER, max_tokens=5, temperature=0, logprobs=True, top_logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    for token in logprobs.content:
        assert token.logprob == token.top_logprobs[0].logprob  # greedy
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        assert bytes(token.bytes or []).decode(errors="replace") == token.token


def test_a_context_that_fills_up(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="x" * 120, max_tokens=100, temperature=0, logit_bias={}
    )
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens <= tiny_model.CONTEXT + 1


# refusals -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/v1/completions", {}, "prompt"),
        ("/v1/completions", {"prompt": ""}, "no tokens"),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": [1, 300]}, "token 300 at index 1 is outside"),
        ("/v1/completions", {"prompt": [1, -1]}, "token -1 at index 1 is outside"),
        ("/v1/completions", {"prompt": "x" * 200}, "200 tokens, the context 128"),
        ("/v1/completions", {"prompt": "x", "max_tokens": -1}, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 9999}, "9999, the server's limit 2048"),
        ("/v1/completions", {"prompt": "x", "temperature": 3}, "temperature"),
        ("/v1/completions", {"prompt": "x", "temperature": "NaN"}, "temperature"),
        ("/v1/completions", {"prompt": "x", "top_p": 0}, "top_p"),
        ("/v1/completions", {"prompt": "x", "seed": -1}, "seed"),
        ("/v1/completions", {"prompt": "x", "n": 0}, "n"),
        ("/v1/completions", {"prompt": "x", "n": 65}, "limit of 64"),
        ("/v1/completions", {"prompt": ["x", 3]}, "prompt"),
        ("/v1/completions", {"prompt": "x", "stop": [""]}, "stop holds ''"),
        ("/v1/completions", {"prompt": "x", "stop": ["a"] * 17}, "stop"),
        ("/v1/completions", {"prompt": "x", "logprobs": 21}, "logprobs"),
        ("/v1/completions", {"prompt": "x", "presence_penalty": 1}, "presence_penalty"),
        ("/v1/completions", {"prompt": "x", "logit_bias": {"1": 5}}, "logit_bias"),
        ("/v1/completions", {"prompt": "x", "suffix": "y"}, "suffix"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user"}]}, "must be a string"),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}, "role"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "content",
        ),
        (
            "/v1/chat/completions",
            {"messages": USER, "chat_template_kwargs": {"messages": []}},
            "a field of its own",
        ),
    ],
)
def test_bad_requests_say_what_is_wrong(
    served: Live, path: str, fields: dict[str, Any], words: str
) -> None:
    status, answer = served.post(path, **fields)
    assert status == 400
    assert words in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"model": 1}'])
def test_bodies_that_are_no_request(served: Live, body: bytes) -> None:
    status, answer, _ = served.request("POST", "/v1/completions", body)
    assert status == 400
    assert answer["error"]["message"]


def test_large_bodies(tiny: LLM) -> None:
    with live(tiny, body_bytes=1000) as server:
        fields = {"prompt": "x", "user": "y" * 2000}
        assert server.post("/v1/completions", **fields)[0] == 413
        chunked = server.connect()
        body = json.dumps({"model": MODEL, **fields}).encode()
        # an iterator: its length is not stated
        chunked.request(
            "POST", "/v1/completions", iter([body]), {"Content-Type": "application/json"}
        )
        assert chunked.getresponse().status == 413
        chunked.close()
        assert server.post("/v1/completions", prompt="x")[0] == 200


def test_what_a_foreign_page_could_send(served: Live, tiny: LLM) -> None:
    body = {"model": MODEL, "prompt": "x"}
    plain = {"Content-Type": "text/plain"}
    assert served.request("POST", "/v1/completions", body, plain)[0] == 415
    with live(tiny, hosts=("127.0.0.1",)) as server:
        assert server.request("GET", "/health")[0] == 200
        status, answer, _ = server.request("GET", "/health", headers={"Host": "evil.example:80"})
        assert status == 403
        assert "evil.example" in answer["error"]["message"]


def test_api_key(tiny: LLM) -> None:
    with live(tiny, api_key="a-long-key") as server:
        for path in ("/v1/models", "/metrics"):
            for given in (
                {},
                {"Authorization": "Bearer a-long-kez"},
                {"Authorization": "Bearer é"},
            ):
                given = {k: v.encode("latin-1") for k, v in given.items()}
                status, answer, headers = server.request("GET", path, headers=given)
                assert status == 401
                assert headers["www-authenticate"] == "Bearer"
                assert answer["error"]["code"] == "invalid_api_key"
            right = {"Authorization": "Bearer a-long-key"}
            assert server.request("GET", path, headers=right)[0] == 200
        assert server.request("GET", "/health")[0] == 200
        with openai.OpenAI(base_url=server.url, api_key="a-long-key") as client:
            assert client.completions.create(model=MODEL, prompt="x").choices


def test_a_full_queue(tiny: LLM) -> None:
    with live(tiny, parallel=1, queue=1) as server:
        body = {"model": MODEL, "prompt": "x", "n": 3}
        status, answer, headers = server.request("POST", "/v1/completions", body)
        assert (status, answer["error"]["code"]) == (429, "queue_full")
        assert int(headers["retry-after"]) > 0
        assert server.post("/v1/completions", prompt="x", n=2)[0] == 200


# departures -----------------------------------------------------------------------------------
def test_clients_that_go_away(smollm2_path: Path) -> None:
    """While a prompt is read, while an answer is written, and while waiting in the queue."""
    llm = LLM.load(smollm2_path, ctx=4096)
    long = llm.tokenizer.decode(list(range(1000, 4500)))
    with live(llm, parallel=2) as server:
        for stream in (False, True):
            for prompt in (long, "The"):
                gone = [server.connect() for _ in range(3)]
                for connection in gone:
                    body = {"model": MODEL, "prompt": prompt, "max_tokens": 500, "stream": stream}
                    raw, kind = json.dumps(body), {"Content-Type": "application/json"}
                    connection.request("POST", "/v1/completions", raw, kind)
                server.wait_for("intattention_running_texts", 2)
                server.wait_for("intattention_waiting_texts", 1)
                for connection in gone:
                    connection.close()
                server.wait_for("intattention_running_texts", 0)
                server.wait_for("intattention_waiting_texts", 0)
        assert server.metric("intattention_generated_tokens_total") < 1000
        expected = llm.generate("The sky is", max_new_tokens=8)
        status, answer = server.post(
            "/v1/completions", prompt="The sky is", max_tokens=8, temperature=0
        )
        assert (status, answer["choices"][0]["text"]) == (200, expected)


# many clients ---------------------------------------------------------------------------------
def test_eight_clients_get_what_each_would_get_alone(smollm2_path: Path, smollm2: LLM) -> None:
    """Bit by bit: greedy and sampled, short and long prompts, some of which begin alike."""
    common = "Once upon a time there was a small village by the sea. " * 12
    requests = [
        {"prompt": (common if i % 2 else "") + f"Number {i} said", "max_tokens": 20 + i, "seed": i,
         "temperature": 0 if i % 3 == 0 else 0.9}
        for i in range(8)
    ]  # fmt: skip
    expected = [
        smollm2.generate(
            str(r["prompt"]), max_new_tokens=int(r["max_tokens"]), seed=int(r["seed"]),
            temperature=float(r["temperature"]),
        )
        for r in requests
    ]  # fmt: skip
    got: dict[int, str] = {}
    with live(LLM.load(smollm2_path)) as server:

        def ask(i: int) -> None:
            got[i] = server.post("/v1/completions", **requests[i])[1]["choices"][0]["text"]

        for _ in range(2):  # the second time with prefixes kept from the first
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [got[i] for i in range(8)] == expected
        assert server.metric("intattention_reused_tokens_total") > 600


def test_metrics(served: Live) -> None:
    before = served.metric("intattention_prompt_tokens_total")
    served.post("/v1/completions", prompt=[5, 6, 7], max_tokens=1)
    assert served.metric("intattention_prompt_tokens_total") == before + 3
    assert not math.isnan(served.metric("intattention_cache_bytes"))
    text = served.request("GET", "/metrics")[1]
    assert 'intattention_requests_total{path="/v1/completions",status="200"}' in text


# constrained answers --------------------------------------------------------------------------
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_response_format(client: openai.OpenAI, tiny: LLM) -> None:
    pytest.importorskip("llguidance")
    response_format: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    options = {"temperature": 1.0, "seed": 3, "max_tokens": 40}
    reply = client.chat.completions.create(
        model=MODEL, messages=USER, response_format=response_format, n=3, **options
    )
    texts = [choice.message.content for choice in reply.choices]
    assert all(0 <= json.loads(text)["n"] <= 99 for text in texts)
    assert texts[0] == tiny.chat(
        USER, json_schema=SCHEMA, temperature=1.0, seed=3, max_new_tokens=40
    )
    reply = client.completions.create(
        model=MODEL, prompt=PROMPT, extra_body={"regex": "[a-c]{4}"}, **options
    )
    assert set(reply.choices[0].text) <= set("abc")
    assert len(reply.choices[0].text) == 4


@pytest.mark.parametrize(
    ("response_format", "words"),
    [
        ({"type": "xml"}, "response_format"),
        ({"type": "json_schema"}, "json_schema is missing"),
        ({"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}, "json_schema: "),
    ],
)
def test_bad_response_formats(served: Live, response_format: Any, words: str) -> None:
    pytest.importorskip("llguidance")
    status, answer = served.post(
        "/v1/chat/completions", messages=USER, response_format=response_format
    )
    assert status == 400
    assert words in answer["error"]["message"]
