// The data of a task: lines of JSON, or one text.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/eval/TaskFile.h"

#include <span>
#include <string>
#include <vector>

namespace tessera::eval {

/// A line of the data, or the whole of a file that is not .jsonl.
struct Example {
  std::string where; ///< "FILE:LINE", for errors
  JsonValue fields;
};

/// At most `task.limit` examples. Errors: a line that is not a JSON object; no
/// examples. A file that is not .jsonl is allowed for perplexity, as one
/// example with the file's contents as its text.
StatusOr<std::vector<Example>> loadExamples(const Task &task);

/// A field that must be a string, or a number or boolean as it is printed.
StatusOr<std::string> stringField(const Example &example,
                                  std::string_view name);
/// A field that must be a string or a list of at least one.
StatusOr<std::vector<std::string>> stringsField(const Example &example,
                                                std::string_view name);

/// The choices of an example that are right: by the index of one, or by the
/// text of one or more.
StatusOr<std::vector<std::size_t>>
rightChoices(const Example &example, const Task &task,
             const std::vector<std::string> &choices);

/// A name that a template may have besides the fields, and its text.
struct TemplateWord {
  std::string_view name, text;
};

/// The names in braces of a template; an unclosed brace has none.
std::vector<std::string_view> wordsOf(std::string_view pattern);

/// The template with every {field} replaced; {{ and }} are braces. Words come
/// before fields of the same name.
StatusOr<std::string> fill(std::string_view pattern, const Example &example,
                           std::span<const TemplateWord> words = {});

} // namespace tessera::eval
