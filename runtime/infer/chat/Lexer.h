// A template's text as tokens: what stands between tags, and what is in them.
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
    String, // `text` is what it stands for
    Int,
    Float,
    Operator, // one of == != <= >= // ** and single characters
    End
  };
  Kind kind = Kind::End;
  std::string text;
  uint32_t line = 1;
};

/// Cuts `source` under Jinja's trim_blocks and lstrip_blocks, by which chat
/// templates are written: the line break after a block tag and the white space
/// of its line before it are left out; - takes all white space on its side and
/// + none. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

} // namespace tessera::chat
