// Any regular expression ("/…") and any grammar is read in bounded time and
// memory, and what its masks allow can be taken.
#include "runtime/infer/grammar/Gbnf.h"
#include "runtime/infer/grammar/GrammarGuide.h"
#include "runtime/infer/grammar/TextForm.h"

#include <cstdlib>

using namespace tessera;
using namespace tessera::grammar;

static std::shared_ptr<const Vocabulary> vocabulary() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte)
    texts.emplace_back(1, char(byte));
  for (const char *each :
       {"ab", "abc", "aaaa", "12", " a", "\n\n", "é", "\xC3\xA9\xC3", "(("})
    texts.emplace_back(each);
  return std::make_shared<Vocabulary>(texts);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::shared_ptr<const Vocabulary> tokens = vocabulary();
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
  GrammarGuide guide(std::make_shared<TokenGrammar>(grammar.take(), tokens),
                     {});
  for (size_t step = 0; step < 24 && !guide.isComplete(); ++step) {
    auto mask = guide.allowed();
    if (!mask.ok())
      return 0; // too ambiguous, or nested too deeply
    // Some token that is allowed, by the input.
    size_t token = size ? data[step % size] : 0;
    for (size_t i = 0; i < tokens->size() && !(*mask)->contains(token); ++i)
      token = (token + 1) % tokens->size();
    if (!(*mask)->contains(token) || !guide.accept(int32_t(token)).ok())
      std::abort(); // a text that cannot go on
  }
  return 0;
}
