// Helpers for error messages about untrusted files (config.json, recipe.yaml).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/support/Status.h"

namespace tessera {

/// The whole file, or why not: missing, a directory, unreadable, larger than
/// `maxBytes`.
StatusOr<std::string> readTextFile(const std::string &path, int64_t maxBytes);

/// `text` on one line: control bytes escaped, truncated after `limit` bytes.
std::string oneLine(std::string_view text, std::size_t limit = 60);

/// oneLine in single quotes.
std::string quote(std::string_view text);

/// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool isUtf8(std::string_view text);

/// ", did you mean 'lr'?" for the candidate nearest to `word` by edit distance
/// if one is near enough to be a slip; otherwise empty.
std::string suggestion(std::string_view word,
                       std::span<const std::string_view> candidates);

/// "a, b or c".
std::string choices(std::span<const std::string_view> words);

} // namespace tessera
