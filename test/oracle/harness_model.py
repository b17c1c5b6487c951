"""A small model of random weights with a tokenizer, and tasks of local files in
the format of lm-evaluation-harness, all of them made from one seed."""
import json
import random

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

WORDS = ("time year people way day man thing woman life child world school state family student group country "
         "problem hand part place case week company system program question work government number night point "
         "home water room mother area money story fact month lot right study book eye job word business issue "
         "side kind head house service friend father power hour game line end member law car city").split()
CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SPECIAL = ["<|bos|>", "<|im_start|>", "<|im_end|>"]


def sentences(seed, count, words):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(*words))).capitalize() + "." for _ in range(count)]


def save_tokenizer(folder, framed):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    made.train_from_iterator(sentences(1, 200, (5, 20)), trainer)
    if framed:
        made.post_processor = processors.TemplateProcessing(
            single="<|bos|> $A", pair="<|bos|> $A <|bos|> $B", special_tokens=[("<|bos|>", 0)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|bos|>", eos_token="<|im_end|>",
        chat_template=("{{ bos_token }}" if framed else "") + CHATML, clean_up_tokenization_spaces=False).save_pretrained(folder)
    return made.get_vocab_size()


def save(folder, framed):
    """Writes the model, and returns it. Weights are wide, so that logits differ
    by more than arithmetic."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = save_tokenizer(folder, framed)
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=128, max_position_embeddings=512, initializer_range=0.1, bos_token_id=0, eos_token_id=2))
    model.save_pretrained(folder)
    return model.eval()


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def choice_rows():
    rng = random.Random(2)
    starts = sentences(3, 24, (4, 12))
    return [{"question": start, "choices": [" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(4)],
             "answer": rng.randrange(4)} for start in starts]


def generate_rows():
    return [{"question": start, "answer": "RO"[i % 2]} for i, start in enumerate(sentences(5, 12, (4, 12)))]


def text_rows():
    """Longer than the context of 512 tokens, shorter, and not ASCII."""
    rows = [{"text": " ".join(sentences(7 + i, count, (5, 20))), "language": "en", "source": "books"}
            for i, count in enumerate((1, 4, 40))]
    return rows + [{"text": "Größe über façade, naïve 東京 \U0001f600.", "language": "de", "source": "web"}]


def save_tasks(folder):
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "choice.jsonl", choice_rows())
    write_lines(folder / "generate.jsonl", generate_rows())
    write_lines(folder / "text.jsonl", text_rows())

    def task(name, **fields):
        fields = {"task": f"tessera_{name}", "dataset_path": "json", "test_split": "test",
                  "dataset_kwargs": {"data_files": {"test": str(folder / f"{name}.jsonl")}},
                  "fewshot_split": "test", "fewshot_config": {"sampler": "first_n"}, **fields}
        (folder / f"{name}.yaml").write_text(json.dumps(fields, indent=2))

    def metric(name):
        return {"metric": name, "aggregation": "mean", "higher_is_better": True}

    task("choice", output_type="multiple_choice", doc_to_text="Question: {{question}}\nAnswer:",
         doc_to_choice="choices", doc_to_target="answer", metric_list=[metric("acc"), metric("acc_norm")])
    task("generate", output_type="generate_until", doc_to_text="Q: {{question}}\nA:", doc_to_target="answer",
         generation_kwargs={"until": ["\n", "e"], "max_gen_toks": 24, "do_sample": False, "temperature": 0},
         filter_list=[{"name": "first-letter", "filter": [
             {"function": "regex", "regex_pattern": "([a-z])"}, {"function": "take_first"}]}],
         metric_list=[{**metric("exact_match"), "ignore_case": True}])
    task("text", output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
         metric_list=[{"metric": name} for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")])
