// libFuzzer target: whatever the bytes of a line, an example is read or refused
// with one line; what is read is tokenized or refused with one line, and then
// has a token to learn in each document.
#include "runtime/data/chat/ChatEncoder.h"
#include "runtime/data/tokenizer/BpeTrainer.h"

#include <cstdlib>

using namespace tessera;
using namespace tessera::chat;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static void requireOneLine(const std::string &message) {
  require(!message.empty() && message.find('\n') == std::string::npos);
}

/// A tokenizer of bytes and two special tokens.
static ChatFormat makeFormat() {
  tokenizer::TrainOptions options;
  options.vocabSize = 258;
  options.specialTokens = {"<|im_start|>", "<|im_end|>"};
  tokenizer::WordCounter counter(options.pattern, 1);
  counter.add("a b");
  auto trained = tokenizer::trainBpe(counter.finish(), options);
  require(trained.ok());
  auto tokenizer =
      tokenizer::Tokenizer::parse(tokenizer::tokenizerJson(*trained), "fuzz");
  require(tokenizer.ok());
  auto source = ChatTemplate::parse(
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
      "<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.name }}"
      "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
      "{% endif %}",
      "fuzz");
  require(source.ok());
  EndOfTurn end;
  end.text = "<|im_end|>";
  end.tokens = {*tokenizer->addedToken(end.text)};
  return {tokenizer.take(), source.take(), std::move(end)};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const ChatFormat format = makeFormat();
  static const ChatEncoderOptions options = [] {
    ChatEncoderOptions made;
    made.rendering.now = 1;
    made.rendering.budget = {.steps = 20'000,
                             .outputBytes = 1 << 16,
                             .workingBytes = 4 << 20,
                             .depth = 200};
    return made;
  }();
  static ChatEncoder encoder(format, options);
  auto example = parseExample({reinterpret_cast<const char *>(data), size},
                              "fuzz.jsonl:1");
  if (!example.ok()) {
    requireOneLine(example.message());
    return 0;
  }
  auto encoded = encoder.encode(*example);
  if (!encoded.ok()) {
    requireOneLine(encoded.message());
    return 0;
  }
  require(encoded->size() ==
          (example->objective == PackedObjective::Preference ? 2u : 1u));
  for (const EncodedDocument &document : *encoded) {
    require(document.tokens.size() == document.supervised.size());
    bool learns = false;
    for (size_t i = 1; i < document.tokens.size(); ++i)
      learns |= document.supervised[i] == 1;
    require(learns && document.ends > 0);
  }
  return 0;
}
