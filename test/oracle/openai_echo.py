"""Prompts that are scored (`echo`) and gaps that are filled (`suffix`), by the
openai client against `tessera serve`: logprobs are those of transformers. So are
tokens, their strings and their text.
   openai_echo.py BIN FOLDER
"""
import pathlib
import sys

import openai
import torch
import transformers

from openai_tests import GAP, save_generator

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "runtime/serve"))
from serving import Server  # noqa: E402

TEXTS = ["a", "The quick brown fox jumps over the lazy dog.", "caf\u00e9 " * 20,
         "<|im_start|>user\nhello<|im_end|>\n"]


def expected(model, ids):
    """Of each token but the first its logprob, and the best of each place."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    scores = torch.log_softmax(logits[:, :262], dim=-1)[:-1]
    return scores.gather(1, torch.tensor(ids[1:])[:, None])[:, 0], scores.amax(1)


def check_scores(client, model, tokenizer):
    checked = 0
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        wanted, best = expected(model, ids)
        for prompt in (text, ids):
            answer = client.completions.create(model="m", prompt=prompt, echo=True, max_tokens=0, logprobs=2)
            [choice] = answer.choices
            if prompt is text:
                assert choice.text == text, choice.text
            assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(ids), 0)
            marks = choice.logprobs.token_logprobs
            assert marks[0] is None and len(marks) == len(ids), marks
            got = torch.tensor(marks[1:], dtype=torch.float64)
            assert torch.allclose(got, wanted, atol=1e-4), (got - wanted).abs().max()
            tops = [max(each.values()) for each in choice.logprobs.top_logprobs[1:]]
            assert torch.allclose(torch.tensor(tops, dtype=torch.float64), best, atol=1e-4)
            assert choice.logprobs.tokens == [tokenizer.decode([i]) for i in ids]
            checked += len(marks) - 1
    print(f"ok: {checked} logprobs of prompts are those of transformers")


def check_gaps(client, model, tokenizer):
    """The prompt that the model's tokens make of a gap, and greedy tokens of transformers behind it."""
    prompt, suffix = "def add(a, b):\n    ", "\n    return c\n"
    ids = tokenizer(f"{GAP[0]}{prompt}{GAP[1]}{suffix}{GAP[2]}")["input_ids"]
    fields = {"model": "m", "prompt": prompt, "suffix": suffix, "temperature": 0, "max_tokens": 12}
    answer = client.completions.create(**fields, extra_body={"ignore_eos": True}, logprobs=0)
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, eos_token_id=None,
                              pad_token_id=256)[0].tolist()[len(ids):]
    assert answer.usage.prompt_tokens == len(ids)
    assert answer.choices[0].logprobs.tokens == [tokenizer.decode([i]) for i in made], answer
    whole = client.completions.create(**fields, echo=True, extra_body={"ignore_eos": True}, logprobs=0)
    assert whole.choices[0].text == prompt + answer.choices[0].text
    marks = whole.choices[0].logprobs.token_logprobs
    wanted, _ = expected(model, ids)
    begin = ids.index(tokenizer.convert_tokens_to_ids(GAP[0]))
    own = len(tokenizer(prompt)["input_ids"])
    assert torch.allclose(torch.tensor(marks[:own], dtype=torch.float64), wanted[begin:begin + own], atol=1e-4)
    assert marks[own:] == answer.choices[0].logprobs.token_logprobs
    # What would begin another gap ends this one.
    closed = client.completions.create(**fields, logit_bias={str(ids[begin]): 100})
    assert (closed.choices[0].text, closed.choices[0].finish_reason) == ("", "stop"), closed
    print("ok: gaps")


def check_context(client):
    """One token less than the model's own."""
    fields = {"model": "m", "prompt": "a", "logit_bias": {"97": 100}}
    assert client.completions.create(**fields, max_tokens=510).usage.total_tokens == 511
    try:
        client.completions.create(**fields, max_tokens=511)
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded" and "at most the context of 511" in error.message, error
    else:
        raise AssertionError("512 tokens are taken")
    print("ok: context")


def check_tokens(server, tokenizer, template):
    """Of prompts, chats and texts: /tokenize and /detokenize."""
    tokenizer.chat_template = template
    chat = [{"role": "user", "content": "caf\u00e9?"}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why"}]
    asked = [({"prompt": text}, tokenizer(text)["input_ids"]) for text in (*TEXTS, "")]
    for more in ({}, {"add_generation_prompt": False}):
        ids = tokenizer.apply_chat_template(chat, tokenize=True, **{"add_generation_prompt": True, **more})
        asked.append(({"messages": chat, **more}, ids))
    for fields, ids in asked:
        status, answer = server.post("/tokenize", return_token_strs=True, **fields)
        assert status == 200 and answer == {"count": len(ids), "max_model_len": 511, "tokens": ids,
                                            "token_strs": tokenizer.convert_ids_to_tokens(ids)}, (fields, answer)
        assert server.post("/tokenize", **fields)[1] == answer | {"token_strs": None}
        status, answer = server.post("/detokenize", tokens=ids)
        assert (status, answer) == (200, {"prompt": tokenizer.decode(ids)}), (ids, answer)
    status, answer = server.post("/detokenize", tokens=[97, 263])
    assert status == 400 and answer["error"]["message"] == "the tokenizer has no token 263", answer
    print("ok: tokens")


def main():
    binaries, folder = map(pathlib.Path, sys.argv[1:])
    save_generator(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    command = [str(binaries / "tessera"), "serve", str(folder), "--port", "0", "--max-batch", "4",
               "--served-model-name=m", "--max-context", "511"]
    with Server(command) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        check_scores(client, model, tokenizer)
        check_gaps(client, model, tokenizer)
        check_context(client)
        check_tokens(server, tokenizer, (folder / "chat_template.jinja").read_text())


main()
