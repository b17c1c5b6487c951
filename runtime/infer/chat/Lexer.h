// Tokens of a template: text between tags, and the contents of tags.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::chat {

struct Token {
  enum class Kind : uint8_t {
    Text,       // outside of tags
    BlockBegin, // {%
    BlockEnd,
    PrintBegin, // {{
    PrintEnd,
    Name,
    String, // `text` is its value
    Int,
    Float,
    Operator, // one of == != <= >= // ** and single characters
    End
  };
  Kind kind = Kind::End;
  std::string text;
  uint32_t line = 1;
};

/// Splits `source` into tokens, with Jinja's trim_blocks and lstrip_blocks,
/// which chat templates assume: the line break after a block tag and the white
/// space before it on its line are removed. A - in the tag removes all white
/// space on its side, a + none. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

} // namespace tessera::chat
