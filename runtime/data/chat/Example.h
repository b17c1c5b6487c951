// One line of a file of examples for fine-tuning, in the forms that OpenAI's
// and TRL's tools use:
//
//   {"messages": [{"role": "user", "content": "…"}, …], "tools": […]}
//   {"prompt": …, "completion": …}
//   {"prompt": …, "completion": …, "label": true}        (KTO)
//   {"prompt": …, "chosen": …, "rejected": …}            (preference)
//   {"chosen": [messages], "rejected": [messages]}       (prompt in common)
//
// Answers and prompts are strings, or lists of messages: all of one line are of
// one form. "tools" is a list or that list as a string; "chat_template_kwargs"
// are variables of the template. Other keys are not looked at.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/data/PackedIndex.h"

#include <string>
#include <vector>

namespace tessera::chat {

/// What is learned after the prompt.
struct Answer {
  DocumentKind kind = DocumentKind::Plain;
  JsonValue::Array messages; ///< of a conversation
  std::string text;          ///< otherwise
  bool isCut = false;        ///< of a text: no end-of-turn token comes after it
  /// A model sampled it: the text of a special token in it is plain text.
  bool isSampled = false;
};

struct Example {
  PackedObjective objective = PackedObjective::Sft;
  bool isConversation = true;  ///< messages, not strings
  JsonValue::Array prompt;     ///< of a conversation; empty for {"messages"}
  std::string promptText;      ///< otherwise
  std::vector<Answer> answers; ///< one, or chosen and rejected
  JsonValue tools;             ///< an array or null
  JsonValue variables;         ///< an object or null
};

/// More messages than any conversation has: each costs two renderings.
inline constexpr size_t maxMessages = 4096;
inline constexpr size_t maxLineBytes = 64 << 20;

/// What examples are for.
enum class ExampleUse : uint8_t {
  Learn,
  Score, ///< an answer may be empty, and those of a pair equal
};

/// Reads one line, `where` begins errors. Refuses bytes that are not UTF-8,
/// names that occur twice, messages without a role or with other content than
/// text, and, of examples to learn, empty and equal answers.
StatusOr<Example> parseExample(std::string_view line, const std::string &where,
                               ExampleUse use = ExampleUse::Learn);

/// {"role": "assistant", "content": …}.
JsonValue assistantMessage(std::string content);

/// The prompt of a line {"prompt": "…"} or {"messages": [...]}, and what a
/// model answers to it, which may be empty: the assistant's next message, or
/// text. `isCut`: it did not end by itself. Special tokens that it spells out
/// are plain text.
StatusOr<Example> answeredPrompt(std::string_view line,
                                 std::string_view completion, bool isCut,
                                 const std::string &where);

} // namespace tessera::chat
