// Chat templates: they render a conversation as the prompt that a model was
// trained on. The language is the part of Jinja that models on the Hugging Face
// hub use, rendered as `transformers` renders it (jinja2's immutable sandbox
// with trim_blocks and lstrip_blocks); README.md lists it.
//
// A template comes with the model and never from a request; a request only
// brings data. Neither is trusted: rendering is bounded.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/support/ModelFiles.h"
#include "runtime/support/Status.h"

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::chat {

/// Limits of one rendering; an error names the limit that was exceeded.
struct Budget {
  uint64_t steps = 2'000'000;        ///< operations and iterations
  uint64_t outputBytes = 16 << 20;   ///< of the result
  uint64_t workingBytes = 256 << 20; ///< of all intermediate strings and lists
  uint32_t depth = 1000; ///< of expressions, statements and macro calls
};

struct RenderOptions {
  Budget budget;
  /// What strftime_now prints, in local time; 0: the time of the call.
  std::time_t now = 0;
};

/// A part of the text: bytes begin to end - 1.
struct TextSpan {
  size_t begin = 0, end = 0;
};

struct RenderedText {
  std::string text;
  /// What generation blocks printed, in order, without empty ones; of nested
  /// blocks the outer one.
  std::vector<TextSpan> generated;
};

/// A parsed template; immutable, so threads may share it.
class ChatTemplate {
public:
  /// `where` prefixes errors. At most 1 MiB of UTF-8.
  static StatusOr<ChatTemplate> parse(std::string_view source,
                                      std::string where);
  /// The template of a model: chat_template.jinja, else the "chat_template" of
  /// tokenizer_config.json, which is a string or a list of {"name",
  /// "template"}; of a list, the one called `name`.
  static StatusOr<ChatTemplate> load(const ModelFiles &files,
                                     std::string_view name = "default");
  /// The template in the file `path`, with the special tokens of a model.
  static StatusOr<ChatTemplate> loadFile(const std::string &path,
                                         const ModelFiles &files);
  /// Whether there is a template called "default".
  static StatusOr<bool> isIn(const ModelFiles &files);

  /// Renders with the members of the JSON object `variables`: "messages",
  /// "tools", "add_generation_prompt" and others that the template uses.
  /// Special tokens that tokenizer_config.json names ("bos_token", …) are added
  /// unless `variables` has them.
  StatusOr<std::string> render(const JsonValue &variables,
                               const RenderOptions &options = {}) const;

  /// The same with what the template marks as the model's own: the contents of
  /// {% generation %} blocks. One within a macro or a set block is an error,
  /// since what it prints need not reach the text.
  StatusOr<RenderedText> renderMarked(const JsonValue &variables,
                                      const RenderOptions &options = {}) const;
  /// Whether the template has a generation block.
  bool marksGeneration() const;

  /// The source as it was parsed.
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
