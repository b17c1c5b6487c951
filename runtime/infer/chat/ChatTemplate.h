// Chat templates: how a conversation becomes the text that a model was trained
// on. The language is the part of Jinja that models on the Hugging Face hub
// use, rendered as `transformers` renders it (jinja2's immutable sandbox with
// trim_blocks and lstrip_blocks); README.md lists it.
//
// A template comes with the model and is never taken from a request; what a
// request brings is data. Neither is trusted: rendering is bounded.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/support/ModelFiles.h"
#include "runtime/support/Status.h"

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::chat {

/// What one rendering may cost; an error says which limit was met.
struct Budget {
  uint64_t steps = 2'000'000;        ///< operations and loop rounds
  uint64_t outputBytes = 16 << 20;   ///< of the text
  uint64_t workingBytes = 256 << 20; ///< of all strings and lists on the way
  uint32_t depth = 1000; ///< of expressions, statements and macro calls
};

struct RenderOptions {
  Budget budget;
  /// What strftime_now prints, in local time; 0: the time of the call.
  std::time_t now = 0;
};

/// A parsed template; constant, so that any number of threads may share it.
class ChatTemplate {
public:
  /// `where` begins errors. At most 1 MiB of UTF-8.
  static StatusOr<ChatTemplate> parse(std::string_view source,
                                      std::string where);
  /// The template of a model: chat_template.jinja, else the
  /// "chat_template" of tokenizer_config.json, which is a text or a list of
  /// {"name", "template"}; of those the one called `name`.
  static StatusOr<ChatTemplate> load(const ModelFiles &files,
                                     std::string_view name = "default");
  /// Whether there is one called "default".
  static StatusOr<bool> isIn(const ModelFiles &files);

  /// Renders with the members of the JSON object `variables`: "messages",
  /// "tools", "add_generation_prompt" and whatever else the template asks for.
  /// Texts of special tokens that a tokenizer_config.json names ("bos_token",
  /// …) are there as well where they were loaded and `variables` has none.
  StatusOr<std::string> render(const JsonValue &variables,
                               const RenderOptions &options = {}) const;

  /// As it was parsed.
  std::string_view source() const;

  ~ChatTemplate();
  ChatTemplate(ChatTemplate &&) noexcept;
  ChatTemplate &operator=(ChatTemplate &&) noexcept;

private:
  struct Parsed;
  ChatTemplate();
  std::unique_ptr<Parsed> parsed;
};

} // namespace tessera::chat
