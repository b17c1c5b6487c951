// JSON of small files that are not ours, parsed into a document.
#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace tessera {

/// `text` as JSON, or a discarded value if it is none or nests deeper than 32.
/// nlohmann's parser does not recurse, but printing and comparing do: without
/// the bound a megabyte of brackets would overflow the stack.
nlohmann::json parseShallowJson(std::string_view text);

/// A name out of such a file, in quotes, as an error shows it: one line, of
/// bounded length.
std::string shownName(std::string_view name);

} // namespace tessera
