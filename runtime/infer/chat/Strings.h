// Python's functions on strings, over UTF-8.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera::chat {

/// Removes the characters of `characters` from the chosen ends; white space if
/// it is empty.
std::string_view strippedText(std::string_view text,
                              std::string_view characters, bool left,
                              bool right);
/// At most `count` replacements from the left; all if it is negative.
std::string replacedText(std::string_view text, std::string_view what,
                         std::string_view by, int64_t count);
/// str.split: an empty separator means runs of white space; at most `count`
/// splits, any number if it is negative.
std::vector<std::string> splitText(std::string_view text,
                                   std::string_view separator, int64_t count);
std::vector<std::string> splitLines(std::string_view text);
std::string upperText(std::string_view text);
std::string lowerText(std::string_view text);
/// The first letter in upper case, the others in lower case.
std::string capitalizedText(std::string_view text);
/// str.title, or with `words` Jinja's filter, whose words end at white space,
/// hyphens and opening brackets only.
std::string titleText(std::string_view text, bool words);

} // namespace tessera::chat
