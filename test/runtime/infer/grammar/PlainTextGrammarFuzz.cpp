// Any regular expression ("/…") and any grammar is read in bounded time and
// memory, and what its masks allow can be taken.
#include "runtime/infer/grammar/Gbnf.h"
#include "runtime/infer/grammar/PlainTextGrammar.h"
#include "test/runtime/infer/grammar/WalkForm.h"

using namespace tessera;
using namespace tessera::grammar;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const auto tokens = bytesAnd(
      {"ab", "abc", "aaaa", "12", " a", "\n\n", "é", "\xC3\xA9\xC3", "(("});
  std::string_view text(reinterpret_cast<const char *>(data), size);
  auto grammar = text.starts_with('/') ? grammarOfRegex(text.substr(1))
                                       : grammarOfGbnf(text);
  if (!grammar.ok()) {
    if (grammar.message().find('\n') != std::string::npos)
      std::abort(); // an error is one line
    return 0;
  }
  if (size % 2 == 0)
    grammar->beginWithSpace();
  walk(grammar.take(), tokens, data, size);
  return 0;
}
