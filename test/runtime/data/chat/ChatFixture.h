// A tokenizer with a chat format, for tests of conversations.
#pragma once
#include "TestTokenizers.h"
#include "runtime/data/chat/ChatEncoder.h"

namespace tessera::chat::test {

/// As Qwen 2 has it.
inline const std::string chatml =
    "{% for m in messages %}{% if m.role not in ['system', 'user', "
    "'assistant', 'tool'] %}{{ raise_exception('unknown role ' ~ m.role) }}"
    "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% endif %}";

/// The same with the assistant's turns marked.
inline const std::string markedChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% endif %}";

inline nlohmann::json chatTokenizerFields() {
  using namespace tokenizer::test;
  nlohmann::json fields = tokenizerFields();
  const auto first = uint32_t(fields["model"]["vocab"].size());
  fields["added_tokens"].push_back(addedToken(first, "<|im_start|>"));
  fields["added_tokens"].push_back(addedToken(first + 1, "<|im_end|>"));
  return fields;
}

inline ChatFormat chatFormat(std::string_view source = chatml) {
  ChatFormat format{tokenizer::test::mustParse(chatTokenizerFields()), {}, {}};
  auto parsed = ChatTemplate::parse(source, "template");
  if (!parsed.ok())
    throw std::runtime_error(parsed.message());
  format.source = parsed.take();
  format.end.text = "<|im_end|>";
  format.end.tokens = {*format.tokenizer.addedToken("<|im_end|>")};
  return format;
}

/// The text of the tokens of a document that are supervised, those of each run
/// in brackets.
inline std::string supervisedText(const tokenizer::Tokenizer &tokenizer,
                                  const EncodedDocument &document) {
  std::string text;
  for (size_t i = 0; i < document.tokens.size(); ++i) {
    const bool now = document.supervised[i] != 0;
    const bool before = i > 0 && document.supervised[i - 1];
    if (now != before)
      text += now ? "[" : "]";
    if (now)
      text += tokenizer::decodeBytes(tokenizer, {&document.tokens[i], 1});
  }
  return !document.supervised.empty() && document.supervised.back() ? text + "]"
                                                                    : text;
}

} // namespace tessera::chat::test
