"""LoRA adapters in a server: PEFT writes what each of them does, alone and mixed in
one batch, and the server refuses what is no adapter of its model."""
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import peft
import torch
import transformers

from harness import SOURCE, Prepared, check, refuses, run

sys.path.insert(0, str(SOURCE / "test/runtime/serve"))
from serving import Server  # noqa: E402

COUNT, PAGE, MANY = 24, 8, 32
PROMPT = "The command reads the file. A user opens no page. Every server removes a line."
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# By name: what PEFT is told. Ranks, scales and layers differ.
ADAPTERS = {
    "legal": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    "code": {"r": 16, "lora_alpha": 16, "target_modules": ALL, "rank_pattern": {"down_proj": 4},
             "alpha_pattern": {"down_proj": 32}},
    "root": {"r": 8, "lora_alpha": 8, "use_rslora": True, "target_modules": ["down_proj", "o_proj"]},
    "upper": {"r": 3, "lora_alpha": 6, "target_modules": ["k_proj", "up_proj"], "layers_to_transform": [1]},
    "half": {"r": 2, "lora_alpha": 4, "target_modules": ["gate_proj"]},
}


def make_base(folder, tokenizer, vocabulary):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        initializer_range=0.3, bos_token_id=None, eos_token_id=None)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    shutil.copy(tokenizer, folder)


def load(base):
    return transformers.AutoModelForCausalLM.from_pretrained(base).eval()


def make_adapter(base, folder, seed, dtype=torch.float32, **settings):
    """Of random factors; B is not zero."""
    model = peft.get_peft_model(load(base), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            values = torch.randn(parameter.shape, generator=generator) * 0.2
            if "magnitude" in name:
                values = (1 + values) * parameter.data
            parameter.data = values.to(dtype)
    model.save_pretrained(folder)
    return folder


class Expected:
    """Greedy text of transformers, with its logprobs."""

    def __init__(self, model, tokenizer, prompt):
        tokens = tokenizer(prompt, return_tensors="pt").input_ids
        begin = tokens.shape[1]
        self.logprobs = []
        with torch.no_grad():
            for _ in range(COUNT):
                scores = model(tokens).logits[:, -1].log_softmax(-1)
                best = scores.argmax(-1, keepdim=True)
                self.logprobs.append(scores[0, best[0, 0]].item())
                tokens = torch.cat([tokens, best], 1)
        self.text = tokenizer.decode(tokens[0, begin:], skip_special_tokens=True,
                                     clean_up_tokenization_spaces=False)

    def equals(self, choice):
        far = max(abs(a - b) for a, b in zip(choice["logprobs"]["token_logprobs"], self.logprobs))
        return choice["text"] == self.text and far < 1e-3


def ask(server, model, prompt=PROMPT, **fields):
    status, body = server.post("/v1/completions", **{
        "model": model, "prompt": prompt, "max_tokens": COUNT, "temperature": 0,
        "ignore_eos": True, "logprobs": 1, **fields})
    assert status == 200, body
    assert body["model"] == model, body
    return body


def answer(body):
    choice = body["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def compare(server, names, expected):
    """Each alone is PEFT's, and mixed it is the same to the last bit."""
    for name in names:
        if expected:
            check(expected[name].equals(ask(server, name)["choices"][0]), f"PEFT writes what '{name}' writes")
    texts = [PROMPT, "A line", "Every user writes the socket. The file"]
    jobs = [(name, text) for text in texts for name in names]
    alone = [answer(ask(server, *job)) for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        mixed = [answer(body) for body in pool.map(lambda job: ask(server, *job), jobs)]
    check(mixed == alone, f"{len(jobs)} requests of {len(names)} models: mixed as alone")
    check(len({text for text, _ in alone[:len(names)]}) == len(names), "and all models differ")


def mixes_many(made, base, tokenizer, serve, env):
    """As many adapters as a batch has rows, of ranks and layers of their own."""
    folders, expected = {}, {}
    for seed in range(MANY):
        name = f"a{seed}"
        folders[name] = make_adapter(base, made.scratch / name, 100 + seed, r=1 + seed % 16,
                                     lora_alpha=8, target_modules=ALL[seed % 3:5 + seed % 3])
        model = peft.PeftModel.from_pretrained(load(base), folders[name]).eval()
        expected[name] = Expected(model, tokenizer, PROMPT)
    given = [str(part) for name in folders for part in ("--adapter", f"{name}={folders[name]}")]
    with Server([*serve, *given, "--max-batch", str(MANY)], env=env) as server:
        compare(server, list(folders), expected)


def keeps_prefixes_apart(server, names):
    text = "A page. " + PROMPT
    cached = [ask(server, name, text)["usage"]["prompt_tokens_details"]["cached_tokens"]
              for name in [*names, *names]]
    half = len(names)
    check(not any(cached[:half]), "no adapter takes another's keys and values")
    check(all(count >= PAGE for count in cached[half:]), "and each takes its own")


def lists(server, names):
    models = {each["id"]: each for each in server.call("GET", "/v1/models")[2]["data"]}
    check(set(models) == set(names), f"the server lists {len(names)} models")
    parents = {each.get("parent") for name, each in models.items() if name != names[0]}
    check(parents == {names[0]} and "parent" not in models[names[0]], "adapters name their base")
    status, body = server.post("/v1/completions", model="none", prompt="A")
    check(status == 404 and "model_not_found" in json.dumps(body), "an unknown adapter is not found")
    metrics = server.call("GET", "/metrics")[2]
    check('tessera:adapter_requests_total{adapter="legal"}' in metrics, "requests are counted by adapter")


def loads_and_unloads(server, folders, expected):
    def change(what, **fields):
        return server.call("POST", f"/v1/{what}_lora_adapter", fields)

    base = server.model
    for name in ("legal", "code"):
        status, _, body = change("load", lora_name=name, lora_path=str(folders[name]))
        check(status == 200 and "Success" in body, f"'{name}' is loaded while serving")
        check(expected[name].equals(ask(server, name)["choices"][0]), f"and '{name}' is what PEFT has")
    status, _, body = change("load", lora_name="root", lora_path=str(folders["root"]))
    check(status == 400 and "2 slots" in body["error"]["message"], "a third has no slot")
    for name in ("legal", base):
        status, _, body = change("load", lora_name=name, lora_path=str(folders["root"]))
        check(status == 400 and "used already" in body["error"]["message"], f"'{name}' is a name already")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(ask, server, "legal")
        status, _, _ = change("unload", lora_name="legal")
        check(status == 200 and server.post("/v1/completions", model="legal", prompt="A")[0] == 404,
              "'legal' is unloaded")
        try:
            ended = expected["legal"].equals(late.result()["choices"][0])
        except AssertionError as error:  # it came after
            ended = "model_not_found" in str(error)
        check(ended, "what it was writing is not changed")
    status, _, body = change("load", lora_name="root", lora_path=str(folders["legal"]) + "-none")
    check(status == 400 and "adapter_config.json" in body["error"]["message"], "a missing one keeps no slot")
    status, _, body = change("load", lora_name="root", lora_path=str(folders["root"]))
    check(status == 200 and expected["root"].equals(ask(server, "root")["choices"][0]), "its slot holds another")
    check(expected[base].equals(ask(server, base)["choices"][0]), "and the base is as it was")
    check(change("unload", lora_name="legal")[0] == 404, "what is not loaded is not unloaded")


def refusals(made, base, folders, env):
    def refuse(what, *parts, adapters, flags=()):
        given = [part for each in adapters for part in ("--adapter", each)]
        done = run(made.tessera, "serve", base, "--port", "0", *given, *flags, code=None, env=env)
        last = done.stderr.strip().splitlines()[-1]
        check(done.returncode in (1, 2) and all(part in last for part in parts), f"{what}: {last}")

    def changed(name, change=None, weights=None):
        folder = made.scratch / name
        shutil.copytree(folders["legal"], folder)
        if change:
            config = json.loads((folder / "adapter_config.json").read_text())
            (folder / "adapter_config.json").write_text(json.dumps({**config, **change}))
        if weights is not None:
            (folder / "adapter_model.safetensors").write_bytes(weights)
        return f"{name}={folder}"

    refuse("a missing directory", "has no adapter_config.json", adapters=[f"a={made.scratch / 'nothing'}"])
    for key, value, problem in (("bias", "all", "adapters with 'bias' are not supported"),
                                ("modules_to_save", ["lm_head"], "merge the adapter into the model"),
                                ("rank_pattern", {"q_[a-z]*": 2}, "has the regular expression 'q_[a-z]*'")):
        refuse(key, problem, adapters=[changed(key, {key: value})])
    refuse("use_dora", "lora_magnitude_vector', and use_dora is set",
           adapters=[changed("use_dora", {"use_dora": True})])
    refuse("another kind", "peft_type must be LORA, got: IA3", adapters=[changed("kind", {"peft_type": "IA3"})])
    whole = (folders["legal"] / "adapter_model.safetensors").read_bytes()
    refuse("a damaged file", "adapter_model.safetensors", adapters=[changed("damaged", weights=whole[:-8])])
    refuse("another base", "is of another base model", "lora_A.weight' is [4, 32], expected [4, 64]",
           adapters=[f"other={folders['other']}"])
    refuse("a layer that the model lacks", "'c_attn'", adapters=[f"gpt={folders['gpt']}"])
    refuse("a rank", "has rank 16, more than --adapter-rank 8", adapters=[f"code={folders['code']}"],
           flags=("--adapter-rank", "8"))
    legal = f"={folders['legal']}"
    refuse("the same name twice", "'legal' is used already", adapters=["legal" + legal, "legal" + legal])
    refuse("too many", "2 adapters are more than --adapter-slots 1", adapters=["a" + legal, "b" + legal],
           flags=("--adapter-slots", "1"))
    refuse("no name", "must be NAME=DIR", adapters=[str(folders["legal"])])


def main():
    made = Prepared(*sys.argv[1:3])
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    env.setdefault("XDG_CACHE_HOME", str(made.scratch / "cache"))
    base, folders = made.scratch / "base", {}
    file = made.tokens().parent / "tokenizer.json"
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file))
    make_base(base, file, len(tokenizer))
    expected = {"base": Expected(load(base), tokenizer, PROMPT)}
    for seed, (name, settings) in enumerate(ADAPTERS.items()):
        dtype = torch.bfloat16 if name == "half" else torch.float32
        folders[name] = make_adapter(base, made.scratch / name, seed, dtype, **settings)
        model = peft.PeftModel.from_pretrained(load(base), folders[name]).eval()
        expected[name] = Expected(model, tokenizer, PROMPT)
    names = ["base", *ADAPTERS]
    given = [part for name in ADAPTERS for part in ("--adapter", f"{name}={folders[name]}")]
    serve = [str(part) for part in (made.tessera, "serve", base, "--port", "0", "--set", f"inference.page={PAGE}")]

    def start(*flags):
        return Server([*serve, "--max-batch", "12", *(str(flag) for flag in flags)], env=env)

    with start(*given) as server:
        compare(server, names, expected)
        keeps_prefixes_apart(server, names)
        lists(server, names)
    with start(*given, "--speculate", "3") as server:
        compare(server, names, expected)
    with start(*given, "--quant", "int8", "--set", "precision.compute=bf16") as server:
        compare(server, names, {})
    mixes_many(made, base, tokenizer, serve, env)
    with start("--adapter-slots", "2") as server:
        loads_and_unloads(server, folders, expected)
    generated = run(made.tessera, "generate", base, "--adapter", folders["code"], "--prompt", PROMPT,
                    "--temperature", 0, "--max-tokens", COUNT, "--ignore-end", "--quiet", env=env).stdout
    check(generated == PROMPT + expected["code"].text + "\n", "generate writes it too")
    packaged = made.scratch / "base.tsr"
    run(made.tessera, "compile", base, "--mode", "infer", "--adapter-slots", 2, "--adapter-rank", 4,
        "--adapter-target", "q_proj,v_proj", "-o", packaged, env=env)
    with Server([str(part) for part in (made.tessera, "serve", packaged, "--port", "0", "--adapter",
                                        f"legal={folders['legal']}")], env=env) as server:
        check(expected["legal"].equals(ask(server, "legal")["choices"][0]), "a packaged model has slots")
    refuses("layers that they lack", "'model.layers.0.mlp.down_proj'", "--adapter-target", env=env)(
        made.tessera, "generate", packaged, "--adapter", folders["code"], "--prompt", "A", "--quiet")

    small = transformers.LlamaConfig(
        vocab_size=400, hidden_size=32, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2)
    transformers.LlamaForCausalLM(small).save_pretrained(made.scratch / "small")
    folders["other"] = make_adapter(made.scratch / "small", made.scratch / "other", 1, **ADAPTERS["legal"])
    gpt = transformers.GPT2Config(vocab_size=400, n_embd=64, n_layer=2, n_head=4)
    transformers.GPT2LMHeadModel(gpt).save_pretrained(made.scratch / "gpt2")
    folders["gpt"] = make_adapter(made.scratch / "gpt2", made.scratch / "gpt", 1, r=4, target_modules=["c_attn"],
                                  fan_in_fan_out=True)
    refusals(made, base, folders, env)


if __name__ == "__main__":
    main()
